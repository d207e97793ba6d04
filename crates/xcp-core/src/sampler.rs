// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_sharing.h: how many flows other traffic has.

use crate::ffi;

const SAMPLES: usize = 32;

/// Compares the flows of bytes of other traffic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    left_B: u64,
    hash: [u32; SAMPLES],
    next: u32,
    pairs: u32,
    same: u32,
    pub(crate) unused: u32,
}

impl Sampler {
    /// Counts a packet of `bytes` B; true if its flow is to be looked at: one
    /// byte in every `every_B`.
    pub fn due(&mut self, bytes: u64, every_B: u64) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_due(self, bytes, every_B) }
    }

    /// Looks at a flow, known by its hash.
    pub fn add(&mut self, hash: u32) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_add(self, hash) }
    }

    /// The number of flows, 2^-8; 0 before anything was compared.
    #[must_use]
    pub fn flows(&self) -> u32 {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_sampler_flows(self) }
    }
}
