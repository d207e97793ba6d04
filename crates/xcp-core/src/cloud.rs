// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_cloud.h: what a virtual router knows of the cloud that it stands for.

use crate::ffi;

/// What is known of a cloud, by its probes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Cloud {
    /// When a probe last came, ns; 0: none.
    pub told_ns: u64,
    /// What it has waited in the cloud, ns.
    pub wait_ns: u64,
    /// What trains of probes have found free, B/s; 0: not known.
    pub free_Bps: u64,
    /// The standard error of that, B/s.
    pub error_Bps: u64,
    /// When the last train came, ns.
    pub free_ns: u64,
    /// When a probe that met no queue was sent, by its sender's clock, ns.
    pub base_sent_ns: u64,
    /// And received, by this one's.
    pub base_received_ns: u64,
    /// Routers in it that are not XCP.
    pub routers: u32,
    /// [`Cloud::NOT_HELD_BACK`], or 0.
    pub flags: u32,
}

impl Cloud {
    /// While it stands aside, no delta is lowered: for experiments.
    pub const NOT_HELD_BACK: u32 = 1;

    /// Whether the last probe is young enough, where control intervals have
    /// `d_ns`.
    #[must_use]
    pub fn known(&self, now_ns: u64, d_ns: u64) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cloud_known(self, now_ns, d_ns) }
    }

    /// What it is taken to carry at least, B/s, where `link_Bps` was found, or 0
    /// if nothing was.
    #[must_use]
    pub fn least_Bps(&self, link_Bps: u64, d_ns: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cloud_least(self, link_Bps, d_ns) }
    }

    /// What is handed out beyond what came through it, B/s, where it has so many
    /// flows, in units of 2^-8.
    #[must_use]
    pub fn over_Bps(&self, flows: u32, d_ns: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cloud_over(self, flows, d_ns) }
    }

    /// The most that the search for its capacity exceeds what came through it, B/s.
    #[must_use]
    pub(crate) fn step_Bps(&self, d_ns: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cloud_step(self, d_ns) }
    }

    /// What a packet of this RTT and X, ticks, and size leaves with of a delta, B/s,
    /// while the virtual router stands aside.
    #[must_use]
    pub fn held_back_Bps(&self, delta_Bps: i32, rtt: u32, x: u32, size_B: u64) -> i32 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_crowd_delta(self, delta_Bps, rtt, x, size_B) }
    }

    /// Its backlog, B, where it carries `link_Bps`, below 2^44.
    #[must_use]
    pub fn backlog_B(&self, link_Bps: u64) -> u64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_cloud_backlog(self, link_Bps) }
    }
}

/// Whose queue a cloud's is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    start_ns: u64,
    min_wait_ns: u64,
    /// Until then the virtual router stands aside, ns.
    pub aside_ns: u64,
    full: u32,
    pub(crate) tries: u32,
}

impl Crowd {
    /// Takes in what a probe has waited in the cloud.
    pub fn look(&mut self, wait_ns: u64, now_ns: u64, d_ns: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_crowd_look(self, wait_ns, now_ns, d_ns) }
    }

    /// Whether the virtual router stands aside.
    #[must_use]
    pub fn is_aside(&self, now_ns: u64) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_crowd_aside(self, now_ns) }
    }
}
