// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Builds the draft's XCP header in its three versions.

use std::net::IpAddr;

use serde::Serialize;

pub const STANDARD: u8 = 1;
pub const MINIMAL: u8 = 2;
pub const LEN: usize = 20;

/// The description of a header, including malformed ones.
#[derive(Clone, Copy)]
pub struct Header {
    pub version: u8,
    pub format: u8,
    pub protocol: u8,
    /// A wrong length.
    pub length: Option<u8>,
    /// xcp_ttl, or the hop report of a minimal header.
    pub fourth: u8,
    /// The RTT in the version's unit.
    pub rtt: u32,
    /// X, or the throughput in version 1.
    pub pace: u32,
    pub feedback_Bps: i32,
    pub delta_Bps: i32,
    pub last_xcp_router: Option<IpAddr>,
}

impl Header {
    pub fn bytes(&self) -> Vec<u8> {
        let last = match self.last_xcp_router {
            Some(IpAddr::V4(a)) => a.octets().to_vec(),
            Some(IpAddr::V6(a)) => a.octets().to_vec(),
            None => vec![],
        };
        let length = self.length.unwrap_or((LEN + last.len()) as u8);
        let tag = self.version << 4 | self.format;
        let (feedback, delta) = (self.feedback_Bps as u32, self.delta_Bps as u32);
        let (first, words) = match self.version {
            1 => (
                [tag, self.protocol, length],
                [self.rtt, self.pace, delta, feedback],
            ),
            2 => (
                [self.protocol, length, tag],
                [self.rtt, self.pace, delta, feedback],
            ),
            _ => (
                [self.protocol, length, tag],
                [self.pace, self.rtt, feedback, delta],
            ),
        };
        let mut bytes = first.to_vec();
        bytes.push(self.fourth);
        bytes.extend(words.iter().flat_map(|w| w.to_be_bytes()));
        bytes.extend(last);
        bytes
    }
}

/// The fields that only this format has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Raw {
    pub version: u8,
    pub format: &'static str,
    pub length: u8,
    pub next_protocol: u8,
    /// Only in version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_B_per_ms: Option<u32>,
    /// Only in the minimal format, if the receiver knows the hop counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xcp_ttl_mod_15: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_xcp_router: Option<IpAddr>,
}
