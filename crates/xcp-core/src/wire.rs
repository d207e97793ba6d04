// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_wire.h: parses, builds and edits the TCP option; the header of the
//! drafts is in its own module.

pub mod header;

use crate::*;

/// Length of the handshake option, B.
pub const HANDSHAKE_LEN: usize = 4;
/// Length of a pure ACK's option, B.
pub const RETURN_LEN: usize = 10;
/// Length of a data segment's option, B.
pub const FORWARD_LEN: usize = 22;
/// Length of the option of a data segment that also returns feedback, B.
pub const BOTH_LEN: usize = 28;

const HEADER_MIN: usize = 20;
const HEADER_MAX: usize = 60;
const CHECKSUM: usize = 16;

/// The length of an option of this kind, B; 0 for none.
#[must_use]
pub fn option_len(kind: xcp_kind) -> usize {
    match kind {
        XCP_HANDSHAKE => HANDSHAKE_LEN,
        XCP_RETURN => RETURN_LEN,
        XCP_FORWARD => FORWARD_LEN,
        XCP_BOTH => BOTH_LEN,
        XCP_FORWARD_2005 => XCP_2005_FORWARD_LEN as usize,
        XCP_RETURN_2005 => XCP_2005_RETURN_LEN as usize,
        _ => 0,
    }
}

/// Looks for the option in its usual place, after timestamps, in a complete
/// TCP header (20 to 60 bytes).
#[must_use]
pub fn at_32(header: &[u8]) -> xcp_kind {
    if header.len() < HEADER_MIN {
        return XCP_NONE;
    }
    let len = header.len().min(HEADER_MAX) as u32;
    // SAFETY: reads below `len` only, all of it in the slice.
    unsafe { xcp_option_at_32(header.as_ptr(), len) }
}

/// Finds the option in a TCP header of `header_len` bytes, of which only
/// `readable` is available. The offset is from the header's start. The option
/// itself may be truncated: the parsers below check that.
#[must_use]
pub fn find(readable: &[u8], header_len: usize) -> (xcp_kind, usize) {
    let len = header_len.min(HEADER_MAX) as u32;
    let mut offset = 0;
    let range = readable.as_ptr_range();
    // SAFETY: reads from `start` to below `end` only, which is the slice.
    let kind = unsafe { xcp_option_find(range.start, len, range.end, &mut offset) };
    (kind, offset as usize)
}

/// A handshake option.
#[must_use]
pub fn handshake() -> [u8; HANDSHAKE_LEN] {
    let mut o = [0; HANDSHAKE_LEN];
    // SAFETY: writes as many bytes as the option has.
    unsafe { xcp_build_handshake(o.as_mut_ptr()) };
    o
}

/// The option of a pure ACK.
#[must_use]
pub fn build_return(r: &xcp_return) -> [u8; RETURN_LEN] {
    let mut o = [0; RETURN_LEN];
    // SAFETY: writes as many bytes as the option has.
    unsafe { xcp_build_return(o.as_mut_ptr(), r) };
    o
}

/// Reads an option of kind return or both; None for another kind or a truncated option.
#[must_use]
pub fn parse_return(option: &[u8], kind: xcp_kind) -> Option<xcp_return> {
    if !matches!(kind, XCP_RETURN | XCP_BOTH) || option.len() < option_len(kind) {
        return None;
    }
    // SAFETY: reads as many bytes as the kind has, checked above.
    Some(unsafe { xcp_parse_return(option.as_ptr(), kind) })
}

/// The option of a data segment.
#[must_use]
pub fn build_forward(f: &xcp_forward) -> [u8; FORWARD_LEN] {
    let mut o = [0; FORWARD_LEN];
    // SAFETY: writes as many bytes as the option has.
    unsafe { xcp_build_forward(o.as_mut_ptr(), f) };
    o
}

/// The option of a data segment that also returns feedback.
#[must_use]
pub fn build_both(f: &xcp_forward, r: &xcp_return) -> [u8; BOTH_LEN] {
    let mut o = [0; BOTH_LEN];
    // SAFETY: writes as many bytes as the option has.
    unsafe { xcp_build_both(o.as_mut_ptr(), f, r) };
    o
}

/// Reads an option of kind forward or both; None if it is truncated.
#[must_use]
pub fn parse_forward(option: &[u8]) -> Option<xcp_forward> {
    if option.len() < FORWARD_LEN {
        return None;
    }
    // SAFETY: reads FORWARD_LEN bytes, checked above.
    Some(unsafe { xcp_parse_forward(option.as_ptr()) })
}

/// A router's edit of the forward option at `offset` in a TCP segment: writes
/// `delta` (B/s), counts the hop, and updates the TCP checksum. Returns false
/// and changes nothing if the option is truncated or overlaps the fixed header.
pub fn edit(segment: &mut [u8], offset: usize, delta: i32, ip_ttl: u8) -> bool {
    edit_by(segment, offset, |option, offset| {
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { xcp_edit_forward(option.as_mut_ptr(), offset, delta, ip_ttl) }
    })
}

/// The edit by a virtual router, for a cloud of `routers` routers: they count as
/// XCP routers in xcp_ttl, but no XCP hop is counted.
pub fn edit_cloud(segment: &mut [u8], offset: usize, delta: i32, ip_ttl: u8, routers: u8) -> bool {
    edit_by(segment, offset, |option, offset| {
        let o = option.as_mut_ptr();
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { xcp_edit_forward_cloud(o, offset, delta, ip_ttl, routers) }
    })
}

/// Writes last_xcp_router of the forward option at `offset` in a TCP segment,
/// and updates the TCP checksum.
pub fn edit_last_router(segment: &mut [u8], offset: usize, router: u32) -> bool {
    edit_by(segment, offset, |option, offset| {
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { xcp_edit_last_router(option.as_mut_ptr(), offset, router) }
    })
}

/// Changes the option at `offset`, and the TCP checksum by the sum that `change` returns.
fn edit_by(
    segment: &mut [u8],
    offset: usize,
    change: impl FnOnce(&mut [u8; FORWARD_LEN], u32) -> u32,
) -> bool {
    if !(HEADER_MIN..HEADER_MAX).contains(&offset) {
        return false;
    }
    let option = segment.get_mut(offset..).and_then(|o| o.first_chunk_mut());
    let Some(option) = option else {
        return false;
    };
    let sum = change(option, offset as u32);
    let check = u16::from_ne_bytes([segment[CHECKSUM], segment[CHECKSUM + 1]]);
    let check = xcp_update_checksum(check, sum);
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&check.to_ne_bytes());
    true
}
