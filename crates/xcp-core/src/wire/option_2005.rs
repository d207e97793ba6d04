// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_option_2005.h: packets and milliseconds of Zhang & Henderson.

use super::Forward;
use crate::{ffi, Receiver, Sender};

/// The most that `H_feedback` says, 2^-12 packets.
pub const VALUE_MAX: i64 = 4095 << 28;

/// The fields of a forward option.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Option2005 {
    /// As on the wire; [`value`] reads it.
    pub feedback: u16,
    /// RTT, ms, rounded up; 0 = unknown.
    pub rtt_ms: u16,
    /// Packets in flight during that.
    pub cwnd: u16,
}

/// The value of `H_feedback`, 2^-12 packets.
#[must_use]
pub fn value(feedback: u16) -> i64 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_2005_value(feedback) }
}

/// `H_feedback` for a value in 2^-12 packets, cut towards 0 and saturated; of
/// whole packets only if `whole`.
#[must_use]
pub fn code(value: i64, whole: bool) -> u16 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_2005_code(value, whole) }
}

/// B/s as 2^-12 packets of `size_B` in `rtt_ms`, cut towards 0.
#[must_use]
pub fn of_Bps(rate_Bps: i64, rtt_ms: u32, size_B: u32) -> i64 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_2005_of_Bps(rate_Bps, rtt_ms, size_B) }
}

impl Option2005 {
    /// What a sender writes on a segment of `size_B`; `rest` is what its
    /// wishes so far could not say, 2^-12 packets.
    pub fn ask(sender: &Sender, size_B: u32, rest: &mut i64) -> Self {
        let mut h = Self::default();
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_2005_ask(sender, size_B, rest, false, &mut h) };
        h
    }

    /// What routers read, of a packet of `size_B`.
    #[must_use]
    pub fn forward(&self, size_B: u32) -> Forward {
        let mut f = Forward::default();
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_2005_forward(self, size_B, &mut f) };
        f
    }

    /// The router's answer to `n` packets of `size_B`: `H_feedback`, and what
    /// it grants each of `granted` (B/s); the rest goes to `carry` (B/s).
    #[must_use]
    pub fn grant(&self, size_B: u32, n: u32, mut granted: i32, carry: &mut i64) -> (u16, i32) {
        // SAFETY: records of the right layout, borrowed for the call.
        let feedback =
            unsafe { ffi::xcp_core_2005_grant(self, size_B, n, &mut granted, carry, false) };
        (feedback, granted)
    }
}

impl Sender {
    /// Feedback of so many 2^-12 packets in `H_rtt` came back.
    pub fn feedback_2005(&mut self, value: i64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_2005_feedback(self, value) }
    }
}

impl Receiver {
    /// A forward option arrived that stands for `n` wire packets.
    pub fn add_2005(&mut self, feedback: u16, n: u32) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_receiver_add_2005(self, feedback, n) }
    }

    /// `H_feedback` for a packet that will be copied `n` times, at least 1.
    pub fn take_2005(&mut self, n: u32) -> u16 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_receiver_take_2005(self, n.max(1)) }
    }
}
