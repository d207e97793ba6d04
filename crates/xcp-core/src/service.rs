// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_service.h: which of two queues is next.

use crate::ffi;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The one whose weight is given.
    A,
    /// The one that has the rest.
    B,
}

/// Service by weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service {
    /// What A is owed, 2^-16 B.
    pub owed: i64,
}

impl Service {
    /// Whose packet is next, if one of them has any.
    #[must_use]
    pub fn next(&self, a_has: bool, b_has: bool) -> Option<Queue> {
        // SAFETY: takes and returns plain values.
        let a = unsafe { ffi::xcp_core_service_a_next(self.owed, a_has, b_has) };
        match (a, b_has) {
            (true, _) => Some(Queue::A),
            (false, true) => Some(Queue::B),
            (false, false) => None,
        }
    }

    /// A packet of a queue begins; `weight` is A's, 2^-16.
    pub fn sent(&mut self, weight: u32, queue: Queue, other_has: bool, bytes: u64) {
        let a = queue == Queue::A;
        // SAFETY: takes and returns plain values.
        self.owed = unsafe { ffi::xcp_core_service_sent(self.owed, weight, a, other_has, bytes) };
    }
}
