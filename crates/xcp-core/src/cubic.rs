// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_cubic.h: how CUBIC's window grows after a cut (RFC 9438).

use crate::ffi;

/// A window since its last cut.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    max_B: u64,
    epoch_B: u64,
    epoch_us: u64,
    pub(crate) rounds: u64,
}

impl Cubic {
    /// A window is cut: what it is then, B.
    pub fn cut(&mut self, cwnd_B: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cubic_cut(self, cwnd_B) }
    }

    /// An RTT is over.
    pub fn round(&mut self, elapsed_us: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cubic_round(self, elapsed_us) }
    }

    /// What the window may be an RTT from now, B, in packets of `wire_B`.
    ///
    /// # Panics
    /// If `wire_B` is 0.
    #[must_use]
    pub fn window(&self, wire_B: u64, rtt_us: u64) -> u64 {
        assert_ne!(wire_B, 0, "packets have bytes");
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cubic_window(self, wire_B, rtt_us) }
    }
}

/// The integer cube root.
#[must_use]
pub fn cbrt(v: u64) -> u64 {
    // SAFETY: pure.
    unsafe { ffi::xcp_core_cbrt(v) }
}
