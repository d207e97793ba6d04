// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The golden packets: frames with their expected decoded values.

mod broken;
mod broken_header;
mod header;
mod header_networks;
mod header_seen;
mod networks;
mod option;
mod option_2005;
mod option_2005_extremes;
mod without;

use super::decode::{Decoded, Kind, Wire};
use super::frame::{Frame, Layer};
use super::option::{self as wire_option, seconds, Feedback, Forward, Return, TIMESTAMPS};

const ACK: u8 = 0x10;
const SYN_FLAG: u8 = 0x02;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// An RTT of 100 ms, X of 2 ms, and a request for 10 kB/s more: the draft's example.
const RTT_TICKS: u32 = 26_843_546;
const X_TICKS: u32 = 536_871;
const DELTA_BPS: i32 = 10_000;
const TTL: u8 = 64;

pub struct Case {
    pub name: &'static str,
    pub about: &'static str,
    pub layers: Vec<Layer>,
    pub expect: Decoded,
}

impl Case {
    pub fn bytes(&self) -> Vec<u8> {
        self.layers.iter().flat_map(|l| l.1.clone()).collect()
    }

    fn with_checksum(mut self, valid: bool) -> Self {
        self.expect.checksum_valid = Some(valid);
        self
    }
}

/// Builds a data segment with these forward fields behind timestamps.
pub fn data(f: Forward, payload: usize) -> Vec<u8> {
    let frame = Frame {
        options: behind_timestamps(wire_option::forward(f)),
        payload,
        ..Frame::default()
    };
    frame.bytes()
}

/// Returns the golden packet with this name.
pub fn named(name: &str) -> Case {
    all()
        .into_iter()
        .find(|c| c.name == name)
        .unwrap_or_else(|| panic!("no golden packet {name}"))
}

pub fn all() -> Vec<Case> {
    [
        option::usual(),
        without::without(),
        networks::networks(),
        option::places(),
        broken::broken_options(),
        broken::broken_headers(),
        option::extremes(),
        option::totals(),
        option_2005::usual(),
        option_2005::places(),
        option_2005::networks(),
        option_2005::others(),
        option_2005_extremes::extremes(),
        header::versions(),
        header::last_routers(),
        header::next_protocols(),
        header::values(),
        header_networks::networks(),
        header_networks::fragments(),
        broken_header::broken(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The forward fields of most golden packets.
pub fn default_request() -> Forward {
    Forward {
        rtt_ticks: RTT_TICKS,
        rtt_s: seconds(RTT_TICKS),
        x_ticks: X_TICKS,
        x_s: seconds(X_TICKS),
        delta_Bps: DELTA_BPS,
        last_xcp_router: Some(0),
        xcp_ttl: Some(TTL),
        xcp_hops: Some(0),
        other_hops: Some(0),
    }
}

fn answer() -> Return {
    Return {
        feedback: Feedback::Change(-500),
        xcp_hops: Some(2),
        other_hops: Some(1),
    }
}

fn behind_timestamps(option: Vec<u8>) -> Vec<u8> {
    [TIMESTAMPS.to_vec(), option].concat()
}

/// Returns a data segment with the usual forward option.
fn usual_frame() -> Frame {
    Frame {
        options: behind_timestamps(wire_option::forward(default_request())),
        ..Frame::default()
    }
}

/// Returns a case with a correct TCP header and checksum.
fn case(name: &'static str, about: &'static str, frame: &Frame, expect: Decoded) -> Case {
    Case {
        name,
        about,
        layers: frame.layers(),
        expect: Decoded {
            ip_version: Some(frame.ip.version()),
            ttl: Some(frame.ttl),
            tcp_offset: Some(frame.tcp_offset()),
            checksum_valid: Some(true),
            ..expect
        },
    }
}

/// Returns a case in which a router does not parse TCP, or cannot.
fn opaque(name: &'static str, about: &'static str, frame: &Frame, malformed: bool) -> Case {
    Case {
        name,
        about,
        layers: frame.layers(),
        expect: Decoded {
            kind: if malformed {
                Kind::Malformed
            } else {
                Kind::None
            },
            malformed,
            ip_version: Some(frame.ip.version()),
            ..Decoded::default()
        },
    }
}

fn malformed() -> Decoded {
    Decoded {
        kind: Kind::Malformed,
        malformed: true,
        ..Decoded::default()
    }
}

/// Returns the expected values of a forward option at byte `at` of the TCP header.
fn forward(frame: &Frame, at: usize, f: Forward) -> Decoded {
    Decoded {
        kind: Kind::Forward,
        wire: Some(Wire::Option),
        option_offset: Some(frame.tcp_offset() + at),
        forward: Some(f),
        ..Decoded::default()
    }
}

fn returns(frame: &Frame, at: usize, r: Return) -> Decoded {
    Decoded {
        kind: Kind::Return,
        wire: Some(Wire::Option),
        option_offset: Some(frame.tcp_offset() + at),
        back: Some(r),
        ..Decoded::default()
    }
}

fn both(frame: &Frame, at: usize, f: Forward, r: Return) -> Decoded {
    Decoded {
        kind: Kind::Both,
        back: Some(r),
        ..forward(frame, at, f)
    }
}
