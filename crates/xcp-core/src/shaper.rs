// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_shaper.h: when a queue may begin its next packet.

use crate::ffi;

/// How long some bytes (below 2^32) take at a rate that is not 0.
#[must_use]
pub fn time_ns(rate_Bps: u64, bytes: u64) -> u64 {
    // SAFETY: takes and returns integers; the divisor is not 0.
    unsafe { ffi::xcp_core_shaper_time(rate_Bps.max(1), bytes) }
}

/// A queue's part of a medium, whose clock it is given.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Shaper {
    /// When the next packet may begin.
    pub slot_ns: u64,
    paid_ns: u64,
    credit_ns: u64,
    rest: u64,
    has_slot: u32,
    pub(crate) last_B: u32,
}

impl Shaper {
    /// Takes the next slot, paying for `pay_ns`; `waited` if a packet has waited for
    /// it since the last one began.
    pub fn take(&mut self, free_ns: &mut u64, now_ns: u64, pay_ns: u64, waited: bool) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_shaper_take(self, free_ns, now_ns, pay_ns, waited) }
    }

    /// A packet of so many bytes (below 2^32) begins in the slot.
    pub fn begin(&mut self, free_ns: &mut u64, rate_Bps: u64, bytes: u64) {
        // SAFETY: records of the right layout, borrowed for the call; the
        // divisor is not 0.
        unsafe { ffi::xcp_core_shaper_begin(self, free_ns, rate_Bps.max(1), bytes) }
    }

    /// When to look at the slot, for the rate may have risen; the clock is its
    /// own.
    pub fn next_look(&mut self, free_ns: &mut u64, now_ns: u64, rate_Bps: u64) -> u64 {
        // SAFETY: records of the right layout, borrowed for the call; the
        // divisor is not 0.
        unsafe { ffi::xcp_core_shaper_next_look(self, free_ns, now_ns, rate_Bps.max(1)) }
    }

    /// Whether it waits for its slot.
    #[must_use]
    pub fn has_slot(&self) -> bool {
        self.has_slot != 0
    }
}
