// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_sender.h: the window, and what to ask for.

use crate::ffi;

/// One connection's sender. Fields set by the caller take effect with
/// [`Sender::update`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Window, whole B.
    pub cwnd_B: u64,
    /// Its fraction, 2^-28 B.
    pub cwnd_frac: u32,
    /// A full packet on the wire, B.
    wire_B: u32,
    /// What can be sent in one RTT, in wire bytes, B.
    pub limit_B: u64,
    /// Used in an RTT, of late, B.
    pub used_B: u64,
    /// RTT, ticks; 0 = unknown.
    pub rtt: u64,
    /// Base RTT, by which feedback is taken, ticks.
    pub rtt_base: u64,
    /// Derived: min(cwnd, limit), B.
    pub window_B: u64,
    /// Derived: X, ticks.
    pub x: u64,
    x_rem: u64,
    x_acc: u64,
    /// Derived: 2 cwnd / (base + RTT), B/s; twice that in a start.
    pub pacing_Bps: u64,
    /// Derived: the change to ask for in each packet, B/s.
    pub request_Bps: i32,
    /// Packets that have arrived, in all: a start is over after some.
    pub arrived: u32,
    /// Not 0: nothing follows, and less than a window is left.
    pub ends: u32,
}

impl Sender {
    /// Largest window, B.
    pub const CWND_MAX_B: u64 = 1 << 46;

    /// What a shorter RTT counts as, ticks: 3.9 ms.
    pub const RTT_MIN: u64 = 1 << 20;

    /// A sender, its start long over, of `packets` packets of `wire_B` bytes (at least 1) each.
    #[must_use]
    pub fn new(wire_B: u32, packets: u64, limit_B: u64, rtt: u64) -> Self {
        let mut s = Sender {
            cwnd_B: 0,
            cwnd_frac: 0,
            wire_B: wire_B.max(1),
            limit_B,
            used_B: 0,
            rtt,
            rtt_base: rtt,
            window_B: 0,
            x: 0,
            x_rem: 0,
            x_acc: 0,
            pacing_Bps: 0,
            request_Bps: 0,
            arrived: u32::MAX,
            ends: 0,
        };
        s.reset(packets);
        s.update();
        s
    }

    /// A full packet on the wire, B.
    #[must_use]
    pub fn wire_B(&self) -> u32 {
        self.wire_B
    }

    /// Derives X, request and pacing rate after an input has changed. The RTT
    /// counts as at most 64 s.
    pub fn update(&mut self) {
        self.rtt = self.rtt.min((1 << 34) - 1);
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_update(self) }
    }

    /// X for the next packet, ticks.
    pub fn next_x(&mut self) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_next_x(self) }
    }

    /// A sample of the RTT, ticks; `alone`: of a packet that was alone in flight.
    pub fn rtt_sample(&mut self, sample: u64, alone: bool) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_rtt(self, sample, alone) }
    }

    /// The RTT for the header, ticks.
    #[must_use]
    pub fn rtt_told(&self) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_rtt_told(self) }
    }

    /// Feedback came back, B/s.
    pub fn feedback(&mut self, fb_Bps: i64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_feedback(self, fb_Bps) }
    }

    /// Sets the window to a number of packets, for a start or after a timeout.
    pub fn reset(&mut self, packets: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_reset(self, packets) }
    }

    /// An RTT went by in which `used_B` arrived; `starved`: at times there was
    /// less to send than the window allowed.
    pub fn age(&mut self, used_B: u64, starved: bool) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_age(self, used_B, starved) }
    }

    /// The application sends again after a pause.
    pub fn restart(&mut self, idle_us: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_restart(self, idle_us) }
    }

    /// The window in whole packets, rounded up.
    #[must_use]
    pub fn packets(&self) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sender_packets(self) }
    }
}
