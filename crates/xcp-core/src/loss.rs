// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_loss.h: which losses are congestion, and the answer.

use crate::cubic::Cubic;
use crate::ffi;
use crate::Sender;

/// What one connection's sender knows of losses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    cubic: Cubic,
    ceiling_B: u64,
    threshold_B: u64,
    rtt: u64,
    base: u64,
    taken_B: u64,
    given_B: u64,
    run_lost: u32,
    run_sent: u32,
    run: u16,
    clean: u16,
    /// Clean rounds until probation, and then until trust; 0 before the first
    /// distrust.
    pub wait: u16,
    answered: u8,
    lifted: u8,
    pub(crate) state: u8,
}

impl Loss {
    /// Whether feedback alone moves the window.
    #[must_use]
    pub fn trusts(&self) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_trusts(self) }
    }

    /// Whether the window follows TCP's rules.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_is_tcp(self) }
    }

    /// The most that may be asked for, B.
    #[must_use]
    pub fn limit(&self, limit_B: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_limit(self, limit_B) }
    }

    /// A sample of the RTT, ticks.
    pub fn on_rtt(&mut self, sample: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_rtt(self, sample) }
    }

    /// Feedback has moved a window of `before_B`.
    pub fn on_feedback(&mut self, sender: &mut Sender, before_B: u64) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_feedback(self, sender, before_B) }
    }

    /// TCP begins to repair losses.
    pub fn on_recovery(&mut self, sender: &mut Sender, other_hops: bool) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_recovery(self, sender, other_hops) }
    }

    /// TCP was told of a mark (ECN).
    pub fn on_mark(&mut self, sender: &mut Sender) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_mark(self, sender) }
    }

    /// A retransmission timed out.
    pub fn on_timeout(&mut self, sender: &mut Sender) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_timeout(self, sender) }
    }

    /// A round is over: how long it took, packets found lost in it, and arrived.
    pub fn on_round(&mut self, sender: &mut Sender, elapsed_us: u64, lost: u32, arrived: u32) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_loss_on_round(self, sender, elapsed_us, lost, arrived) }
    }
}
