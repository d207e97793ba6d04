// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The expected values of golden packets with the draft's header.

use super::Case;
use crate::wire::decode::{Decoded, Kind, Wire};
use crate::wire::frame::{Frame, TCP};
use crate::wire::header::{Header, Raw, MINIMAL};
use crate::wire::option::{seconds, Feedback, Forward, Return};

/// The RTT (ms), the throughput (B/ms), and the packet's length (bytes).
type Told2004 = (u32, u32, usize);
/// The RTT and X in ticks.
type Ticks = (u32, u32);

/// Values of version 1 converted to ticks by hand.
const TICKS_2004: [(Told2004, Ticks); 8] = [
    ((101, 67, 134), (27_111_981, 536_870)),
    ((101, 67, 138), (27_111_981, 552_896)),
    ((101, 67, 150), (27_111_981, 600_974)),
    ((101, 67, 154), (27_111_981, 617_000)),
    ((101, 67, 110), (27_111_981, 440_714)),
    ((u32::MAX, u32::MAX, 134), (u32::MAX, 0)),
    ((1, 1, 134), (268_435, 35_970_351)),
    ((0, 0, 134), (0, 0)),
];

/// Returns a case for a frame with this header, with the values expected from the header.
pub fn seen(name: &'static str, about: &'static str, frame: &Frame, header: Header) -> Case {
    let layers = frame.layers();
    let tcp = header.protocol == TCP;
    Case {
        name,
        about,
        expect: Decoded {
            kind: if header.format == MINIMAL {
                Kind::Return
            } else {
                Kind::Both
            },
            wire: Some(match header.version {
                1 => Wire::Header2004,
                2 => Wire::HeaderV2,
                _ => Wire::Header,
            }),
            ip_version: Some(frame.ip.version()),
            ttl: Some(frame.ttl),
            header_offset: Some(frame.xcp_offset()),
            tcp_offset: tcp.then(|| frame.tcp_offset()),
            checksum_valid: tcp.then_some(true),
            forward: forward(&header, frame),
            back: Some(back(&header)),
            header: Some(raw(&header)),
            ..Decoded::default()
        },
        layers,
    }
}

/// Returns xcp_ttl mod 15 and the number of other routers from a minimal header's fourth byte.
fn way(header: &Header) -> Option<(u8, u8)> {
    if header.format != MINIMAL || header.fourth < 16 {
        return None;
    }
    Some((header.fourth / 16 - 1, header.fourth % 16))
}

fn back(header: &Header) -> Return {
    Return {
        feedback: Feedback::Change(header.feedback_Bps),
        xcp_hops: None,
        other_hops: way(header).map(|w| w.1),
    }
}

fn raw(header: &Header) -> Raw {
    let old = header.version == 1 && header.format != MINIMAL;
    Raw {
        version: header.version,
        format: if header.format == MINIMAL {
            "minimal"
        } else {
            "standard"
        },
        length: match header.length {
            Some(length) => length,
            None => header.bytes().len() as u8,
        },
        next_protocol: header.protocol,
        rtt_ms: old.then_some(header.rtt),
        throughput_B_per_ms: old.then_some(header.pace),
        xcp_ttl_mod_15: way(header).map(|w| w.0),
        last_xcp_router: header.last_xcp_router,
    }
}

fn forward(header: &Header, frame: &Frame) -> Option<Forward> {
    if header.format == MINIMAL {
        return None;
    }
    let (rtt_ticks, x_ticks) = if header.version == 1 {
        ticks_2004(header.rtt, header.pace, frame.bytes().len())
    } else {
        (header.rtt, header.pace)
    };
    Some(Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps: header.delta_Bps,
        last_xcp_router: None,
        xcp_ttl: Some(header.fourth),
        xcp_hops: None,
        other_hops: match header.fourth {
            0 => None,
            ttl => Some(i16::from(ttl) - i16::from(frame.ttl)),
        },
    })
}

fn ticks_2004(rtt_ms: u32, throughput: u32, size_B: usize) -> Ticks {
    TICKS_2004
        .iter()
        .find(|t| t.0 == (rtt_ms, throughput, size_B))
        .unwrap_or_else(|| panic!("add {rtt_ms} ms, {throughput} B/ms, {size_B} B"))
        .1
}
