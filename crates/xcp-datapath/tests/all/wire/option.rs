// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Builds the XCP option and the other TCP options around it.

use serde::Serialize;

pub const KIND: u8 = 254;
pub const ID: [u8; 2] = *b"XC";
pub const VERSION: u8 = 1;
/// The version of a return header that carries a running total.
pub const TOTAL_VERSION: u8 = 2;
/// The option that follows the handshake option of a host that supports running totals.
pub const TOTALS: [u8; 4] = [KIND, 4, b'X', b'T'];

/// NOP, NOP, timestamps: the 12 bytes that usually come first.
pub const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 1, 0x86, 0xa0, 0, 0, 0x30, 0x39];
/// The options of a SYN: MSS 1460, SACK permitted, timestamps, NOP, window scale 7.
pub const SYN: [u8; 20] = [
    2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 1, 0x86, 0xa0, 0, 0, 0, 0, 1, 3, 3, 7,
];

/// The fields from a sender to the routers. Some formats lack some of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forward {
    pub rtt_ticks: u32,
    pub rtt_s: f64,
    pub x_ticks: u32,
    pub x_s: f64,
    pub delta_Bps: i32,
    pub last_xcp_router: Option<u32>,
    pub xcp_ttl: Option<u8>,
    pub xcp_hops: Option<u8>,
    /// xcp_ttl minus the TTL of the IP header.
    pub other_hops: Option<i16>,
}

/// The fields from a receiver to the sender. Some formats lack some of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Return {
    #[serde(flatten)]
    pub feedback: Feedback,
    pub xcp_hops: Option<u8>,
    pub other_hops: Option<u8>,
}

/// The feedback of the routers, in one of two forms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Feedback {
    /// The change of throughput, in B/s.
    #[serde(rename = "feedback_Bps")]
    Change(i32),
    /// The sum of all changes since the connection began, in units of 8 B/s; it wraps around.
    #[serde(rename = "feedback_total")]
    Total(i32),
}

impl Feedback {
    fn version(self) -> u8 {
        match self {
            Feedback::Change(_) => VERSION,
            Feedback::Total(_) => TOTAL_VERSION,
        }
    }

    fn bytes(self) -> [u8; 4] {
        let (Feedback::Change(value) | Feedback::Total(value)) = self;
        value.to_be_bytes()
    }
}

/// Converts ticks of 2^-28 s to seconds.
pub fn seconds(ticks: u32) -> f64 {
    f64::from(ticks) / f64::from(1 << 28)
}

/// Returns a field; this format has all of them.
fn said<T>(field: Option<T>) -> T {
    field.expect("a field of the option")
}

fn flags(version: u8, hops: Option<u8>) -> u8 {
    version << 4 | said(hops)
}

fn head(length: u8) -> Vec<u8> {
    vec![KIND, length, ID[0], ID[1]]
}

pub fn handshake() -> Vec<u8> {
    head(4)
}

pub fn handshake_with_totals() -> Vec<u8> {
    [handshake(), TOTALS.to_vec()].concat()
}

pub fn back(r: Return) -> Vec<u8> {
    let mut o = head(10);
    o.push(flags(r.feedback.version(), r.other_hops));
    o.push(said(r.xcp_hops));
    o.extend(r.feedback.bytes());
    o
}

pub fn forward(f: Forward) -> Vec<u8> {
    let mut o = head(22);
    o.push(flags(VERSION, f.xcp_hops));
    o.push(said(f.xcp_ttl));
    o.extend(f.rtt_ticks.to_be_bytes());
    o.extend(f.x_ticks.to_be_bytes());
    o.extend(f.delta_Bps.to_be_bytes());
    o.extend(said(f.last_xcp_router).to_be_bytes());
    o
}

pub fn both(f: Forward, r: Return) -> Vec<u8> {
    let mut o = forward(f);
    o[1] = 28;
    o.push(said(r.xcp_hops));
    o.push(flags(r.feedback.version(), r.other_hops));
    o.extend(r.feedback.bytes());
    o
}
