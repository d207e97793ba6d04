// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_wire.h: the TCP option, parsed, built and edited; the other wire
//! formats are in modules of their own.

pub mod header;
pub mod option_2005;

use crate::ffi;

/// Lengths of the option's forms, B.
pub const HANDSHAKE_LEN: usize = 4;
/// A pure ACK's option, B.
pub const RETURN_LEN: usize = 10;
/// A data segment's option, B.
pub const FORWARD_LEN: usize = 22;
/// The option of data that also returns feedback, B.
pub const BOTH_LEN: usize = 28;

const HEADER_MIN: usize = 20;
const HEADER_MAX: usize = 60;
const CHECKSUM: usize = 16;

/// What kind of option a header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// No XCP option.
    None,
    /// Options that do not parse, or an XCP option of unknown form.
    Malformed,
    /// On SYN and SYN-ACK.
    Handshake,
    /// On a pure ACK.
    Return,
    /// On data.
    Forward,
    /// On data that also returns feedback.
    Both,
    /// Of the format option-2005, on data.
    Forward2005,
    /// Of the format option-2005, with feedback; where it stands is not told.
    Return2005,
}

impl Kind {
    fn of(v: u32) -> Kind {
        [
            Kind::None,
            Kind::Malformed,
            Kind::Handshake,
            Kind::Return,
            Kind::Forward,
            Kind::Both,
            Kind::Forward2005,
            Kind::Return2005,
        ]
        .get(v as usize)
        .copied()
        .unwrap_or(Kind::Malformed)
    }

    /// Length of the option, B; 0 for none.
    #[must_use]
    pub fn option_len(self) -> usize {
        match self {
            Kind::None | Kind::Malformed => 0,
            Kind::Handshake => HANDSHAKE_LEN,
            Kind::Return => RETURN_LEN,
            Kind::Forward => FORWARD_LEN,
            Kind::Both => BOTH_LEN,
            Kind::Forward2005 => 8,
            Kind::Return2005 => 4,
        }
    }
}

/// The sender's fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// RTT, ticks; 0 = unknown.
    pub rtt: u32,
    /// X, ticks.
    pub x: u32,
    /// Throughput change, B/s.
    pub delta: i32,
    /// Address of the last XCP router, 0 if none.
    pub last_xcp_router: u32,
    /// The sender's TTL, lowered by XCP routers only.
    pub xcp_ttl: u8,
    /// XCP routers passed so far, 15 = 15 or more.
    pub xcp_hops: u8,
}

/// The receiver's fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// Throughput change granted, B/s; of version 2, the running total, 8 B/s.
    pub feedback: i32,
    /// XCP routers passed.
    pub xcp_hops: u8,
    /// Other routers passed, 15 = 15 or more.
    pub other_hops: u8,
    /// What the feedback is.
    pub version: u8,
}

/// Looks for the option where it usually stands, behind timestamps, in a whole
/// TCP header (20 to 60 bytes).
#[must_use]
pub fn at_32(header: &[u8]) -> Kind {
    if header.len() < HEADER_MIN {
        return Kind::None;
    }
    let len = header.len().min(HEADER_MAX) as u32;
    // SAFETY: reads below `len` only, all of it in the slice.
    Kind::of(unsafe { ffi::xcp_core_option_at_32(header.as_ptr(), len) })
}

/// Finds the option in a TCP header of `header_len` bytes, of which only
/// `readable` is there. The offset is from the header's start. The option
/// itself may be cut off: the parsers below check.
#[must_use]
pub fn find(readable: &[u8], header_len: usize) -> (Kind, usize) {
    let len = header_len.min(HEADER_MAX) as u32;
    let mut offset = 0;
    let range = readable.as_ptr_range();
    // SAFETY: reads from `start` to below `end` only, which is the slice.
    let kind = unsafe { ffi::xcp_core_option_find(range.start, len, range.end, &mut offset) };
    (Kind::of(kind), offset as usize)
}

/// A handshake option.
#[must_use]
pub fn handshake() -> [u8; HANDSHAKE_LEN] {
    let mut o = [0; HANDSHAKE_LEN];
    // SAFETY: writes as many bytes as the option has.
    unsafe { ffi::xcp_core_build_handshake(o.as_mut_ptr()) };
    o
}

impl Return {
    /// The option of a pure ACK.
    #[must_use]
    pub fn build(&self) -> [u8; RETURN_LEN] {
        let mut o = [0; RETURN_LEN];
        // SAFETY: writes as many bytes as the option has.
        unsafe { ffi::xcp_core_build_return(o.as_mut_ptr(), self) };
        o
    }

    /// Reads an option of kind return or both; None if it is another, or cut.
    #[must_use]
    pub fn parse(option: &[u8], kind: Kind) -> Option<Return> {
        if !matches!(kind, Kind::Return | Kind::Both) || option.len() < kind.option_len() {
            return None;
        }
        let mut r = Return::default();
        // SAFETY: reads as many bytes as the kind has, checked above.
        unsafe { ffi::xcp_core_parse_return(option.as_ptr(), kind as u32, &mut r) };
        Some(r)
    }
}

impl Forward {
    /// The option of a data segment.
    #[must_use]
    pub fn build(&self) -> [u8; FORWARD_LEN] {
        let mut o = [0; FORWARD_LEN];
        // SAFETY: writes as many bytes as the option has.
        unsafe { ffi::xcp_core_build_forward(o.as_mut_ptr(), self) };
        o
    }

    /// The option of a data segment that also returns feedback.
    #[must_use]
    pub fn build_both(&self, r: &Return) -> [u8; BOTH_LEN] {
        let mut o = [0; BOTH_LEN];
        // SAFETY: writes as many bytes as the option has.
        unsafe { ffi::xcp_core_build_both(o.as_mut_ptr(), self, r) };
        o
    }

    /// Reads an option of kind forward or both; None if it is cut.
    #[must_use]
    pub fn parse(option: &[u8]) -> Option<Forward> {
        if option.len() < FORWARD_LEN {
            return None;
        }
        let mut f = Forward::default();
        // SAFETY: reads FORWARD_LEN bytes, checked above.
        unsafe { ffi::xcp_core_parse_forward(option.as_ptr(), &mut f) };
        Some(f)
    }
}

/// A router's edit of the forward option at `offset` of a TCP segment: writes
/// `delta` (B/s), counts the hop, and mends the TCP checksum. False, and
/// nothing done, if the option is cut or overlaps the fixed header.
pub fn edit(segment: &mut [u8], offset: usize, delta: i32, ip_ttl: u8) -> bool {
    edit_by(segment, offset, |option, offset| {
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { ffi::xcp_core_edit_forward(option.as_mut_ptr(), offset, delta, ip_ttl) }
    })
}

/// The same of a virtual router, for a cloud of so many routers: they count as
/// XCP routers in xcp_ttl, and no XCP hop is counted.
pub fn edit_cloud(segment: &mut [u8], offset: usize, delta: i32, ip_ttl: u8, routers: u8) -> bool {
    edit_by(segment, offset, |option, offset| {
        let o = option.as_mut_ptr();
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { ffi::xcp_core_edit_forward_cloud(o, offset, delta, ip_ttl, routers) }
    })
}

/// Writes last_xcp_router of the forward option at `offset` of a TCP segment,
/// in the same way.
pub fn edit_last_router(segment: &mut [u8], offset: usize, router: u32) -> bool {
    edit_by(segment, offset, |option, offset| {
        // SAFETY: changes FORWARD_LEN bytes, as many as there are.
        unsafe { ffi::xcp_core_edit_last_router(option.as_mut_ptr(), offset, router) }
    })
}

/// Changes the option at `offset`, and the TCP checksum by what that returns.
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
    // SAFETY: takes and returns integers.
    let check = unsafe { ffi::xcp_core_mend_checksum(check, sum) };
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&check.to_ne_bytes());
    true
}
