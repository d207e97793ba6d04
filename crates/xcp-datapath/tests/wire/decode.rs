// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a router must see in a frame: the reference that tests compare with.

use serde::Serialize;

use super::checksum;
use super::frame::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, TCP};
use super::option::{seconds, Forward, Return, ID, KIND, VERSION};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    #[default]
    None,
    Malformed,
    Handshake,
    Return,
    Forward,
    Both,
}

/// A decoded frame. What lies behind a malformed header is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Decoded {
    pub kind: Kind,
    pub malformed: bool,
    pub ip_version: Option<u8>,
    pub ttl: Option<u8>,
    /// From the beginning of the frame.
    pub tcp_offset: Option<usize>,
    /// From the beginning of the frame.
    pub option_offset: Option<usize>,
    pub checksum_valid: Option<bool>,
    pub forward: Option<Forward>,
    #[serde(rename = "return")]
    pub back: Option<Return>,
}

impl Decoded {
    /// Whether a router may edit it.
    pub fn is_forward(&self) -> bool {
        matches!(self.kind, Kind::Forward | Kind::Both)
    }
}

/// The TCP segment in a frame.
pub struct Segment<'a> {
    pub addresses: &'a [u8],
    pub bytes: &'a [u8],
    pub offset: usize,
    ttl: u8,
}

impl Segment<'_> {
    pub fn checksum_error(&self) -> u16 {
        checksum::error(self.addresses, TCP, self.bytes)
    }
}

struct Malformed;

fn be16(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    let b = bytes.get(at..at + 2).ok_or(Malformed)?;
    Ok(u16::from_be_bytes([b[0], b[1]]))
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("4 bytes"))
}

pub fn decode(frame: &[u8]) -> Decoded {
    let mut seen = Decoded::default();
    let found = try_decode(frame, &mut seen);
    if found.is_err() {
        seen.kind = Kind::Malformed;
        seen.malformed = true;
    }
    seen
}

fn try_decode(frame: &[u8], seen: &mut Decoded) -> Result<(), Malformed> {
    let Some(tcp) = segment_of(frame, seen)? else {
        return Ok(());
    };
    if tcp.bytes.len() < 20 {
        return Err(Malformed);
    }
    let header = usize::from(tcp.bytes[12] >> 4) * 4;
    if header < 20 || header > tcp.bytes.len() {
        return Err(Malformed);
    }
    seen.ttl = Some(tcp.ttl);
    seen.tcp_offset = Some(tcp.offset);
    seen.checksum_valid = Some(tcp.checksum_error() == 0);
    let Some((at, o)) = find(&tcp.bytes[..header])? else {
        return Ok(());
    };
    seen.kind = kind(o)?;
    seen.option_offset = Some(tcp.offset + at);
    if seen.is_forward() {
        seen.forward = Some(forward(o, tcp.ttl));
    }
    seen.back = match seen.kind {
        Kind::Return => Some(back(o[5], o[4], &o[6..])),
        Kind::Both => Some(back(o[22], o[23], &o[24..])),
        _ => None,
    };
    Ok(())
}

/// The segment that a decodable frame carries, if any.
pub fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    segment_of(frame, &mut Decoded::default()).ok().flatten()
}

fn segment_of<'a>(frame: &'a [u8], seen: &mut Decoded) -> Result<Option<Segment<'a>>, Malformed> {
    let mut at = 12;
    let mut ethertype = be16(frame, at)?;
    for _ in 0..2 {
        if ethertype == 0x8100 || ethertype == 0x88a8 {
            at += 4;
            ethertype = be16(frame, at)?;
        }
    }
    at += 2;
    match ethertype {
        ETHERTYPE_IPV4 => {
            seen.ip_version = Some(4);
            v4(frame, at)
        }
        ETHERTYPE_IPV6 => {
            seen.ip_version = Some(6);
            v6(frame, at)
        }
        _ => Ok(None),
    }
}

fn v4(frame: &[u8], at: usize) -> Result<Option<Segment<'_>>, Malformed> {
    let ip = &frame[at..];
    if ip.len() < 20 || ip[0] >> 4 != 4 {
        return Err(Malformed);
    }
    let header = usize::from(ip[0] & 15) * 4;
    let total = match usize::from(be16(ip, 2)?) {
        0 => ip.len(), // a super-packet of more than 64 KB
        total => total,
    };
    if header < 20 || total < header || total > ip.len() {
        return Err(Malformed);
    }
    if ip[9] != TCP || be16(ip, 6)? & 0x3fff != 0 {
        return Ok(None);
    }
    Ok(Some(Segment {
        addresses: &ip[12..20],
        bytes: &ip[header..total],
        offset: at + header,
        ttl: ip[8],
    }))
}

fn v6(frame: &[u8], at: usize) -> Result<Option<Segment<'_>>, Malformed> {
    let ip = &frame[at..];
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return Err(Malformed);
    }
    let length = match usize::from(be16(ip, 4)?) {
        0 => ip.len() - 40, // a super-packet of more than 64 KB
        length => length,
    };
    let mut rest = ip.get(40..40 + length).ok_or(Malformed)?;
    let mut next = ip[6];
    let mut offset = at + 40;
    for _ in 0..8 {
        // hop-by-hop, routing and destination options
        if ![0, 43, 60].contains(&next) {
            break;
        }
        let length = match rest {
            [_, units, ..] => (usize::from(*units) + 1) * 8,
            _ => return Err(Malformed),
        };
        next = rest[0];
        rest = rest.get(length..).ok_or(Malformed)?;
        offset += length;
    }
    Ok((next == TCP).then_some(Segment {
        addresses: &ip[8..40],
        bytes: rest,
        offset,
        ttl: ip[7],
    }))
}

/// The XCP option in a TCP header, and where it begins.
fn find(tcp: &[u8]) -> Result<Option<(usize, &[u8])>, Malformed> {
    let mut at = 20;
    while at < tcp.len() {
        match tcp[at] {
            0 => break,
            1 => at += 1,
            kind => {
                let length = usize::from(*tcp.get(at + 1).ok_or(Malformed)?);
                let option = tcp.get(at..at + length).ok_or(Malformed)?;
                if length < 2 {
                    return Err(Malformed);
                }
                if kind == KIND && length >= 4 && option[2..4] == ID {
                    return Ok(Some((at, option)));
                }
                at += length;
            }
        }
    }
    Ok(None)
}

fn kind(option: &[u8]) -> Result<Kind, Malformed> {
    match option.len() {
        4 => Ok(Kind::Handshake),
        _ if option[4] >> 4 != VERSION => Err(Malformed),
        10 => Ok(Kind::Return),
        22 => Ok(Kind::Forward),
        28 => Ok(Kind::Both),
        _ => Err(Malformed),
    }
}

fn forward(o: &[u8], ttl: u8) -> Forward {
    let (rtt_ticks, x_ticks) = (be32(&o[6..]), be32(&o[10..]));
    Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps: be32(&o[14..]) as i32,
        last_xcp_router: be32(&o[18..]),
        xcp_ttl: o[5],
        xcp_hops: o[4] & 15,
        other_hops: i16::from(o[5]) - i16::from(ttl),
    }
}

fn back(xcp_hops: u8, flags: u8, feedback: &[u8]) -> Return {
    Return {
        feedback_Bps: be32(feedback) as i32,
        xcp_hops,
        other_hops: flags & 15,
    }
}
