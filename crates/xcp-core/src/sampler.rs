// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_sharing.h: how many flows other traffic has.

use crate::ffi;

const SAMPLES: usize = 32;

/// Compares the flows of bytes of other traffic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    last_ns: u64,
    hash: [u32; SAMPLES],
    next: u32,
    pairs: u32,
    same: u32,
    pub(crate) busy: u32,
}

impl Sampler {
    /// Counts a packet of `bytes` B on a processor that has `left_B` before the
    /// next byte to look at; true if its flow is to be looked at: one byte in
    /// every `every_B`.
    pub fn due(left_B: &mut u64, bytes: u64, every_B: u64) -> bool {
        // SAFETY: a number, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_due(left_B, bytes, every_B) }
    }

    /// Looks at a flow, known by its hash.
    pub fn add(&mut self, hash: u32, now_ns: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_add(self, hash, now_ns) }
    }

    /// The number of flows, 2^-8; 0 before anything was compared, and seconds
    /// after the last one.
    #[must_use]
    pub fn flows(&self, now_ns: u64) -> u32 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_flows(self, now_ns) }
    }
}
