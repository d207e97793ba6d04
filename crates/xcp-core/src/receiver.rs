// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_receiver.h: adds up what routers granted, and returns it.

use crate::ffi;

/// One connection's receiver.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// Received, not yet returned, B/s (of option-2005, 2^-12 packets).
    pub pending: i64,
    /// The running total of what was returned, in units of 8 B/s.
    pub total: u32,
    /// XCP routers on the way here, as the last forward header told.
    pub xcp_hops: u8,
    /// Other routers on the way here.
    pub other_hops: u8,
    /// Not 0: the other end understands running totals.
    pub totals: u8,
}

impl Receiver {
    /// A forward header arrived with `delta` (B/s) that stands for `n` wire
    /// packets.
    pub fn add(&mut self, delta: i32, n: u32) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_receiver_add(self, delta, n) }
    }

    /// The feedback (B/s) to write on a packet that will be copied `n` times,
    /// at least 1.
    pub fn take(&mut self, n: u32) -> i32 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_receiver_take(self, n.max(1)) }
    }

    /// Adds what is pending to the total; what that is, B/s.
    pub fn add_to_total(&mut self) -> i64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_receiver_total(self) }
    }
}

/// What a running total says beyond the last one `seen`, B/s.
pub fn total_change(seen: &mut u32, total: i32) -> i64 {
    // SAFETY: an integer, borrowed for the call.
    unsafe { ffi::xcp_core_total_change(seen, total) }
}
