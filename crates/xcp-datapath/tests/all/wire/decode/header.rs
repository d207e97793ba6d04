// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Decodes the draft's XCP header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{be32, saturate, Decoded, Kind, Malformed, Segment, Wire};
use crate::wire::frame::TCP;
use crate::wire::header::{Raw, LEN, MINIMAL, STANDARD};
use crate::wire::option::{seconds, Feedback, Forward, Return};

/// The length byte of draft -00, which stands for 20 bytes.
const LENGTH_2004: u8 = 0x28;

/// The fields of the first word.
struct First {
    version: u8,
    format: u8,
    protocol: u8,
    length: u8,
}

impl First {
    /// Tries versions 2 and 3 first: their valid headers are never valid in version 1.
    fn read(h: &[u8]) -> Result<Self, Malformed> {
        let known = |tag: u8| [STANDARD, MINIMAL].contains(&(tag & 15));
        let of = |tag: u8, protocol, length| First {
            version: tag >> 4,
            format: tag & 15,
            protocol,
            length,
        };
        let is_new = [2, 3].contains(&(h[2] >> 4)) && known(h[2]) && [20, 24, 36].contains(&h[1]);
        let is_old = h[0] >> 4 == 1 && known(h[0]) && [20, 24, 36, LENGTH_2004].contains(&h[2]);
        if is_new {
            Ok(of(h[2], h[0], h[1]))
        } else if is_old {
            Ok(of(h[0], h[1], h[2]))
        } else {
            Err(Malformed)
        }
    }

    fn wire(&self) -> Wire {
        match self.version {
            1 => Wire::Header2004,
            2 => Wire::HeaderV2,
            _ => Wire::Header,
        }
    }

    /// The length of the header in bytes.
    fn bytes(&self) -> usize {
        match self.length {
            LENGTH_2004 => LEN,
            length => length.into(),
        }
    }
}

/// Decodes the header at the start of `ip`.
pub fn decode(ip: &Segment, seen: &mut Decoded) -> Result<(), Malformed> {
    let h = ip.bytes;
    if h.len() < LEN {
        return Err(Malformed);
    }
    let first = First::read(h)?;
    let rest = h.get(first.bytes()..).ok_or(Malformed)?;
    seen.ttl = Some(ip.ttl);
    seen.wire = Some(first.wire());
    seen.header_offset = Some(ip.offset);
    seen.header = Some(raw(&first, h));

    let minimal = first.format == MINIMAL;
    let feedback = &h[if first.version == 3 { 12 } else { 16 }..];
    seen.kind = if minimal { Kind::Return } else { Kind::Both };
    seen.back = Some(Return {
        feedback: Feedback::Change(be32(feedback) as i32),
        xcp_hops: None,
        other_hops: (minimal && h[3] >> 4 != 0).then_some(h[3] & 15),
    });
    if !minimal {
        seen.forward = Some(forward(&first, h, ip));
    }
    if first.protocol == TCP && rest.len() >= 20 {
        let tcp = Segment {
            bytes: rest,
            offset: ip.offset + first.bytes(),
            ..*ip
        };
        seen.tcp_offset = Some(tcp.offset);
        seen.checksum_valid = Some(tcp.checksum_error() == 0);
    }
    Ok(())
}

fn raw(first: &First, h: &[u8]) -> Raw {
    let minimal = first.format == MINIMAL;
    let old = first.version == 1 && !minimal;
    Raw {
        version: first.version,
        format: if minimal { "minimal" } else { "standard" },
        length: first.length,
        next_protocol: first.protocol,
        rtt_ms: old.then(|| be32(&h[4..])),
        throughput_B_per_ms: old.then(|| be32(&h[8..])),
        xcp_ttl_mod_15: (minimal && h[3] >> 4 != 0).then(|| (h[3] >> 4) - 1),
        last_xcp_router: last_router(&h[LEN..first.bytes()]),
    }
}

fn last_router(appended: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(appended) {
        return Some(Ipv4Addr::from(v4).into());
    }
    let v6 = <[u8; 16]>::try_from(appended).ok()?;
    Some(Ipv6Addr::from(v6).into())
}

fn forward(first: &First, h: &[u8], ip: &Segment) -> Forward {
    let (one, two) = (be32(&h[4..]), be32(&h[8..]));
    let (rtt_ticks, x_ticks, delta) = match first.version {
        1 => (in_ticks(one), x_of(two, ip.frame_B), &h[12..]),
        2 => (one, two, &h[12..]),
        _ => (two, one, &h[16..]),
    };
    Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps: be32(delta) as i32,
        last_xcp_router: None,
        xcp_ttl: Some(h[3]),
        xcp_hops: None,
        // 0: the sender did not set it
        other_hops: (h[3] != 0).then(|| i16::from(h[3]) - i16::from(ip.ttl)),
    }
}

fn in_ticks(rtt_ms: u32) -> u32 {
    saturate((i128::from(rtt_ms) << 28) / 1000)
}

/// Returns X of a packet of `size_B`, from the throughput in B/ms.
fn x_of(throughput_B_per_ms: u32, size_B: usize) -> u32 {
    match throughput_B_per_ms {
        0 => 0,
        t => saturate(((size_B as i128) << 28) / (i128::from(t) * 1000)),
    }
}
