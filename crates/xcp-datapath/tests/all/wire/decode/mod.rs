// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The reference decoder: tests compare the router program with it.

mod header;
mod tcp;

use serde::Serialize;

use super::checksum;
use super::frame::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, TCP, XCP};
use super::header::Raw;
use super::option::{Forward, Return};
use super::option_2005::Option2005;

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

/// The wire format of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Wire {
    #[serde(rename = "option")]
    Option,
    #[serde(rename = "option-2005")]
    Option2005,
    /// Version 3 of the drafts' header.
    #[serde(rename = "header")]
    Header,
    #[serde(rename = "header-v2")]
    HeaderV2,
    /// Version 1 of the drafts' header.
    #[serde(rename = "header-2004")]
    Header2004,
}

/// A decoded frame. Fields behind a malformed header are not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Decoded {
    pub kind: Kind,
    pub wire: Option<Wire>,
    pub malformed: bool,
    pub ip_version: Option<u8>,
    pub ttl: Option<u8>,
    /// Offset from the start of the frame.
    pub tcp_offset: Option<usize>,
    /// Offset from the start of the frame.
    pub option_offset: Option<usize>,
    /// Offset from the start of the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_offset: Option<usize>,
    pub checksum_valid: Option<bool>,
    /// Whether this is the handshake of a host that supports running totals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub totals: bool,
    pub forward: Option<Forward>,
    #[serde(rename = "return")]
    pub back: Option<Return>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option_2005: Option<Option2005>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Raw>,
}

impl Decoded {
    /// Returns whether a router may edit the frame.
    pub fn is_forward(&self) -> bool {
        matches!(self.kind, Kind::Forward | Kind::Both)
    }
}

/// The payload of an IP packet: a TCP segment, or an XCP header and what follows.
pub struct Segment<'a> {
    pub addresses: &'a [u8],
    pub bytes: &'a [u8],
    pub offset: usize,
    protocol: u8,
    ttl: u8,
    /// The length of the whole frame, which routers use as the packet size.
    frame_B: usize,
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

/// Limits a number to the range of a 32-bit field.
fn saturate(value: i128) -> u32 {
    value.clamp(0, u32::MAX.into()) as u32
}

pub fn decode(frame: &[u8]) -> Decoded {
    decode_as(frame, XCP)
}

/// Decodes a frame with another IP protocol number for XCP headers.
pub fn decode_as(frame: &[u8], xcp_protocol: u8) -> Decoded {
    let mut seen = Decoded::default();
    let found = try_decode(frame, xcp_protocol, &mut seen);
    if found.is_err() {
        seen.kind = Kind::Malformed;
        seen.malformed = true;
    }
    seen
}

fn try_decode(frame: &[u8], xcp_protocol: u8, seen: &mut Decoded) -> Result<(), Malformed> {
    match segment_of(frame, seen)? {
        Some(tcp) if tcp.protocol == TCP => tcp::decode(&tcp, seen),
        Some(xcp) if xcp.protocol == xcp_protocol => header::decode(&xcp, seen),
        _ => Ok(()),
    }
}

/// Returns the TCP segment directly behind the IP header of a decodable frame, if any.
pub fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    segment_of(frame, &mut Decoded::default())
        .ok()
        .flatten()
        .filter(|s| s.protocol == TCP)
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
        0 => ip.len(), // a GSO packet of more than 64 KB
        total => total,
    };
    if header < 20 || total < header || total > ip.len() {
        return Err(Malformed);
    }
    if be16(ip, 6)? & 0x3fff != 0 {
        return Ok(None); // a fragment
    }
    Ok(Some(Segment {
        addresses: &ip[12..20],
        bytes: &ip[header..total],
        offset: at + header,
        protocol: ip[9],
        ttl: ip[8],
        frame_B: frame.len(),
    }))
}

fn v6(frame: &[u8], at: usize) -> Result<Option<Segment<'_>>, Malformed> {
    let ip = &frame[at..];
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return Err(Malformed);
    }
    let length = match usize::from(be16(ip, 4)?) {
        0 => ip.len() - 40, // a GSO packet of more than 64 KB
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
    Ok(Some(Segment {
        addresses: &ip[8..40],
        bytes: rest,
        offset,
        protocol: next,
        ttl: ip[7],
        frame_B: frame.len(),
    }))
}
