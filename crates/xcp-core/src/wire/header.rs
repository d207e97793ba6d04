// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_header.h: the header of the drafts, between IP and TCP.

use std::net::Ipv6Addr;

use crate::*;

/// Length of the header, B.
pub const HEADER_LEN: usize = 20;

/// A version of the header that senders use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Version {
    /// Draft -00 and the thesis.
    V2004 = 1,
    /// Draft -03.
    V2007 = 3,
}

/// Reads the first word; the kind is both, return or malformed.
#[must_use]
pub fn read(h: &[u8; HEADER_LEN]) -> (xcp_kind, xcp_header) {
    let mut head = xcp_header::default();
    // SAFETY: reads HEADER_LEN bytes at most.
    let kind = unsafe { xcp_header_read(h.as_ptr(), &mut head) };
    (kind, head)
}

/// The forward fields of a header of kind both, on a packet of `size_B`.
#[must_use]
pub fn forward(h: &[u8; HEADER_LEN], version: u8, size_B: u32) -> xcp_forward {
    // SAFETY: reads HEADER_LEN bytes at most.
    unsafe { xcp_header_forward(h.as_ptr(), version, size_B) }
}

/// last_xcp_router after a header, in the form of [`router_id`]; `whole` is the header
/// with all appended bytes. 0: none.
#[must_use]
pub fn last_router(whole: &[u8]) -> u32 {
    let length = u8::try_from(whole.len()).unwrap_or(0);
    // SAFETY: reads `length` bytes at most.
    unsafe { xcp_header_last_router(whole.as_ptr(), length) }
}

/// The identifier of a router with this address in last_xcp_router.
#[must_use]
pub fn router_id(address: Ipv6Addr) -> u32 {
    // SAFETY: reads 16 bytes.
    unsafe { xcp_router_id(address.octets().as_ptr()) }
}

/// The feedback of a valid header, B/s.
#[must_use]
pub fn feedback(h: &[u8; HEADER_LEN], version: u8) -> i32 {
    // SAFETY: reads HEADER_LEN bytes at most.
    unsafe { xcp_header_feedback(h.as_ptr(), version) }
}

/// The header of a packet of `size_B`, with feedback in B/s.
#[must_use]
pub fn build(
    version: Version,
    protocol: u8,
    f: &xcp_forward,
    feedback: i32,
    size_B: u32,
) -> [u8; HEADER_LEN] {
    let mut h = [0; HEADER_LEN];
    // SAFETY: writes HEADER_LEN bytes.
    unsafe {
        xcp_build_header(h.as_mut_ptr(), version as u8, protocol, f, feedback, size_B);
    }
    h
}

/// The header of a pure ACK; `hop_report` is from `xcp_header_hop_report`.
#[must_use]
pub fn build_return(
    version: Version,
    protocol: u8,
    feedback: i32,
    hop_report: u8,
) -> [u8; HEADER_LEN] {
    let mut h = [0; HEADER_LEN];
    // SAFETY: writes HEADER_LEN bytes.
    unsafe {
        xcp_build_header_return(
            h.as_mut_ptr(),
            version as u8,
            protocol,
            feedback,
            hop_report,
        );
    }
    h
}

/// The number of XCP routers on the path of packets with the initial TTL `ttl`, if the
/// receiver reports it.
#[must_use]
pub fn hops(hop_report: u8, ttl: u8) -> Option<u32> {
    u32::try_from(xcp_header_hops(hop_report, ttl)).ok()
}
