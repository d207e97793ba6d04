// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_router.h: the control laws of one output link, on one CPU.

use crate::cloud::Cloud;
use crate::ffi;

/// m * 2^e, with 2^31 <= m < 2^32 or m = 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Num {
    /// Mantissa.
    pub m: u64,
    /// Binary exponent.
    pub e: i32,
}

impl Num {
    /// The number in floating point.
    #[must_use]
    pub fn value(self) -> f64 {
        self.m as f64 * f64::from(self.e).exp2()
    }
}

/// How a pool is divided among packets: each takes part * m >> shift.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// pool * 2^shift / total.
    pub m: u64,
    /// A part of this size or more takes the whole pool.
    pub total: u64,
    /// Binary places of `m`.
    pub shift: u32,
}

/// What an operator sets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// Capacity to hand out, B/s.
    pub capacity_Bps: u64,
    /// The most that the link can carry, B/s; 0: not known.
    pub most_Bps: u64,
    /// Shortest control interval, ns.
    pub min_interval_ns: u64,
    /// What to leave out of the law, `enum xcp_law_term`;
    /// [`Params::PUBLISHED`]: all that the published law does not have.
    pub without: u32,
    /// RTTs count at most this, ticks; 0: 1 s.
    pub max_rtt: u32,
}

impl Params {
    /// All bits of `enum xcp_law_term`: the published law.
    pub const PUBLISHED: u32 = 63;
    /// gamma by the flows.
    const SHUFFLE: u32 = 32;
}

/// Sums over arrivals; they only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub input_traffic_B: u64,
    pub sum_x: u64,
    pub sum_rtt_x_lo: u64,
    pub sum_rtt_x_hi: u64,
    pub granted_Bps: i64,
}

/// What one interval decided for the next.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Law {
    pub pos: Share,
    pub neg: Share,
    pub pos_pool: u64,
    pub neg_pool: u64,
    pub d: u64,
    pub max_rtt: u32,
    pub shift: u32,
    pub carry_max: u64,
}

/// What is left to hand out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool {
    /// Increases left, 2^-shift B/s.
    pub pos: u64,
    /// Decreases left, 2^-shift B/s.
    pub neg: u64,
    /// Granted but not yet written, 2^-shift B/s.
    pub carry: u64,
    /// Binary places of the three.
    pub shift: u32,
    /// Padding.
    pub unused: u32,
}

impl Pool {
    fn Bps(&self, v: u64) -> f64 {
        v as f64 * (-f64::from(self.shift)).exp2()
    }

    /// Increases left, B/s.
    #[must_use]
    pub fn pos_Bps(&self) -> f64 {
        self.Bps(self.pos)
    }

    /// Decreases left, B/s.
    #[must_use]
    pub fn neg_Bps(&self) -> f64 {
        self.Bps(self.neg)
    }

    /// Granted but, for rounding, not yet written, B/s.
    #[must_use]
    pub fn carry_Bps(&self) -> f64 {
        self.Bps(self.carry)
    }
}

/// Clocks and estimates.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    pub last: Sums,
    pub rtts_from: RttSums,
    pub checked: RttSums,
    pub interval_start_ns: u64,
    pub interval_ns: u64,
    pub queue_start_ns: u64,
    pub tq_ns: u64,
    pub checked_ns: u64,
    pub min_backlog_B: u64,
    pub queue_B: u64,
    pub d: Num,
    pub capacity: Capacity,
    pub sharing: Sharing,
    pub flows: Flows,
    pub capacity_Bps: u64,
    pub over_Bps: u64,
    pub step_Bps: u64,
    pub y_Bps: u64,
    pub f_Bps: i64,
    pub granted_Bps: i64,
    pub intervals: u64,
}

/// Of all CPUs, from which on RTTs are averaged.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttSums {
    pub sum_x: u64,
    pub sum_rtt_x_lo: u64,
    pub sum_rtt_x_hi: u64,
}

/// core/xcp_capacity.h: what the link was found to carry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    pub seen_ns: u64,
    pub seen_sent_B: u64,
    pub min_backlog_B: u64,
    pub link_Bps: u64,
    pub left_Bps: u64,
    pub tried_Bps: u64,
    pub step_Bps: u64,
    pub most_Bps: u64,
    pub state: u32,
    pub unused: u32,
}

/// core/xcp_sharing.h: what other traffic leaves.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sharing {
    pub seen_other_B: u64,
    pub other_Bps: u64,
    pub share: u32,
    pub unused: u32,
}

/// core/xcp_flows.h: how many flows there are, and whether that has changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flows {
    pub now: u32,
    pub mean: u32,
    pub changed: u32,
    pub unused: u32,
}

/// The queue of other traffic in a control interval.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Other {
    /// Arrived since the beginning of time, B.
    pub other_B: u64,
    /// Least backlog that was found in the interval, B.
    pub min_backlog_B: u64,
    /// Its number of flows, 2^-8.
    pub flows: u32,
    /// XCP's share as it was set, 2^-16; 0: by the numbers of flows.
    pub share: u32,
}

/// An output link in a control interval, for [`Router::interval_end_seen`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// When this was seen, ns.
    pub now_ns: u64,
    /// Bytes that have left since the beginning of time, of all traffic.
    pub sent_B: u64,
    /// Backlog, B.
    pub backlog_B: u64,
    /// Least backlog that a packet found in the interval, B.
    pub min_backlog_B: u64,
    /// When a packet last found none, ns.
    pub free_ns: u64,
    /// What had left then, B.
    pub free_sent_B: u64,
}

impl Seen {
    /// The link as a packet finds it.
    pub fn look(&mut self, now_ns: u64, sent_B: u64, backlog_B: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_capacity_look(self, now_ns, sent_B, backlog_B) }
    }
}

/// A forward XCP packet, for [`Router::batch`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// Size of one wire packet, B.
    pub size_B: u64,
    /// X, ticks.
    pub x: u64,
    /// RTT, ticks; 0 = unknown.
    pub rtt: u64,
    /// Wire packets that it stands for.
    pub n: u32,
    /// Requested change, B/s.
    pub delta: i32,
    /// Result: what the router writes, B/s.
    pub granted: i32,
    /// Padding.
    pub unused: u32,
}

/// One CPU's part of a pool, by its part in the interval's total; the same
/// unit as `pool`.
#[must_use]
pub fn split(pool: u64, part: u64, total: u64) -> u64 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_router_split(pool, part, total) }
}

/// The router of one output link.
#[derive(Clone, Debug)]
pub struct Router {
    params: Params,
    state: State,
    law: Law,
    sums: Sums,
    pool: Pool,
}

impl Router {
    /// A router that has seen nothing yet.
    #[must_use]
    pub fn new(params: Params, now_ns: u64) -> Self {
        let mut state = State::default();
        let mut law = Law::default();
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_init(&mut state, &params, &mut law, now_ns) };
        Router {
            params,
            state,
            law,
            sums: Sums::default(),
            pool: Pool::default(),
        }
    }

    /// A packet of any kind arrives, or a super-packet with all its bytes.
    pub fn arrival(&mut self, bytes: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_arrival(&mut self.sums, bytes) }
    }

    /// A forward XCP packet arrives that stands for `n` of `size_B`; `x` and
    /// `rtt` (not 0) in ticks. Its bytes go to [`Router::arrival`].
    pub fn arrival_xcp(&mut self, n: u32, size_B: u64, x: u64, rtt: u64) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe {
            ffi::xcp_core_router_arrival_xcp(&mut self.sums, &self.law, n, size_B, x, rtt);
        }
    }

    /// A forward XCP packet leaves: returns the delta to write, B/s. `n` is at
    /// least 1, `size_B` that of one wire packet, `x` and `rtt` in ticks.
    pub fn departure(&mut self, n: u32, size_B: u64, x: u64, rtt: u64, delta: i32) -> i32 {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe {
            ffi::xcp_core_router_departure(
                &self.law,
                &mut self.pool,
                &mut self.sums,
                n.max(1),
                size_B,
                x,
                rtt,
                delta,
            )
        }
    }

    /// Arrival and departure of each packet, in one call.
    pub fn batch(&mut self, packets: &mut [Packet]) {
        // SAFETY: records of the right layout and a slice, borrowed for the call.
        unsafe {
            ffi::xcp_core_router_batch(
                &self.law,
                &mut self.pool,
                &mut self.sums,
                packets.as_mut_ptr(),
                packets.len(),
            );
        }
    }

    /// Is the control interval over?
    #[must_use]
    pub fn interval_due(&self, now_ns: u64) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_interval_due(&self.state, now_ns) }
    }

    /// Has the control interval lasted 8 times the average RTT of its packets?
    /// True 8 times in an interval at most.
    pub fn too_long(&mut self, now_ns: u64) -> bool {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_too_long(&mut self.state, &self.sums, now_ns) }
    }

    /// Is the queue-estimation interval over?
    #[must_use]
    pub fn queue_due(&self, now_ns: u64) -> bool {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_queue_due(&self.state, now_ns) }
    }

    /// Ends the control interval. False if it had no XCP packet: then d and
    /// what is left of the pools stay.
    pub fn interval_end(&mut self, now_ns: u64) -> bool {
        self.end(now_ns, None, None)
    }

    /// Whether the link carries far less or far more than it did: then the interval ends.
    #[must_use]
    pub fn link_changed(&self, seen: &Seen) -> bool {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_link_changed(&self.state, seen) }
    }

    /// Somebody who knows the link says that it carries `hint_Bps` now, and
    /// `before_Bps` until now; 0 where nothing is said.
    pub fn capacity_hint(&mut self, before_Bps: u64, hint_Bps: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_hint(&mut self.state, before_Bps, hint_Bps) }
    }

    /// The same on a link whose capacity is measured.
    pub fn interval_end_seen(&mut self, now_ns: u64, seen: &Seen) -> bool {
        self.end(now_ns, Some(seen), None)
    }

    /// The same on a link that other traffic shares, in a queue of its own.
    pub fn interval_end_shared(&mut self, now_ns: u64, seen: &Seen, other: &Other) -> bool {
        self.end(now_ns, Some(seen), Some(other))
    }

    /// The same of a virtual router, by what is known of its cloud.
    pub fn interval_end_cloud(&mut self, now_ns: u64, seen: &Seen, cloud: &Cloud) -> bool {
        self.state.step_Bps = cloud.step_Bps(self.state.interval_ns);
        self.end(now_ns, Some(seen), None)
    }

    fn end(&mut self, now_ns: u64, seen: Option<&Seen>, other: Option<&Other>) -> bool {
        // SAFETY: records of the right layout, borrowed for the calls; what is
        // not there is a null pointer.
        let renewed = unsafe {
            ffi::xcp_core_router_capacity(
                &mut self.state,
                &self.params,
                &self.sums,
                now_ns,
                seen.map_or(std::ptr::null(), std::ptr::from_ref),
                other.map_or(std::ptr::null(), std::ptr::from_ref),
            );
            ffi::xcp_core_router_interval_end(
                &mut self.state,
                &self.params,
                &self.sums,
                now_ns,
                &mut self.law,
            )
        };
        if renewed {
            self.refill();
        }
        renewed
    }

    /// Fills the pools again as the present law says.
    pub fn refill(&mut self) {
        let law = &self.law;
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe {
            ffi::xcp_core_router_pool_fill(&mut self.pool, law.pos_pool, law.neg_pool, law.shift);
        }
    }

    /// The backlog as a packet finds it, B.
    pub fn backlog(&mut self, backlog_B: u64) {
        // SAFETY: a record of the right layout, borrowed for the call.
        unsafe { ffi::xcp_core_router_backlog(&mut self.state, backlog_B) }
    }

    /// Ends a queue-estimation interval with the present backlog, B.
    pub fn queue_end(&mut self, backlog_B: u64, now_ns: u64) {
        // SAFETY: records of the right layout, borrowed for the call.
        unsafe {
            ffi::xcp_core_router_queue_end(&mut self.state, &self.params, backlog_B, now_ns);
        }
    }

    /// What is left of the pools.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool of increases as the interval began, B/s.
    #[must_use]
    pub fn pos_Bps(&self) -> f64 {
        self.law.pos_pool as f64 * (-f64::from(self.law.shift)).exp2()
    }

    /// The pool of decreases as the interval began, B/s.
    #[must_use]
    pub fn neg_Bps(&self) -> f64 {
        self.law.neg_pool as f64 * (-f64::from(self.law.shift)).exp2()
    }

    /// The unit of pools and cuts, B/s: 2^-shift.
    #[must_use]
    pub fn unit_Bps(&self) -> f64 {
        (-f64::from(self.law.shift)).exp2()
    }

    /// d, the average RTT, s.
    #[must_use]
    pub fn d_s(&self) -> f64 {
        self.state.d.value() / crate::TICKS_PER_SEC as f64
    }

    /// y, the input traffic of the last interval, B/s.
    #[must_use]
    pub fn y_Bps(&self) -> u64 {
        self.state.y_Bps
    }

    /// C, the capacity in use, B/s.
    #[must_use]
    pub fn capacity_Bps(&self) -> u64 {
        self.state.capacity_Bps
    }

    /// L, what the link was found to carry, B/s; 0 = not known.
    #[must_use]
    pub fn link_Bps(&self) -> u64 {
        self.state.capacity.link_Bps
    }

    /// N, the flows of the last interval.
    #[must_use]
    pub fn flows(&self) -> f64 {
        f64::from(self.state.flows.now) / 256.0
    }

    /// gamma, the part of the traffic that is shuffled in the present interval.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        // SAFETY: a record of the right layout, borrowed for the call.
        let q32 = unsafe {
            ffi::xcp_core_flows_gamma(
                &self.state.flows,
                self.params.without & Params::SHUFFLE != 0,
            )
        };
        f64::from(q32) / 32f64.exp2()
    }

    /// XCP's share of the link, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        f64::from(self.state.sharing.share) / 65536.0
    }

    /// o, what arrived at the other queue in the last interval, B/s.
    #[must_use]
    pub fn other_Bps(&self) -> u64 {
        self.state.sharing.other_Bps
    }

    /// F, the aggregate change of the last interval, B/s.
    #[must_use]
    pub fn f_Bps(&self) -> i64 {
        self.state.f_Bps
    }

    /// What was granted in the present interval, B/s.
    #[must_use]
    pub fn granted_Bps(&self) -> i64 {
        self.sums.granted_Bps - self.state.last.granted_Bps
    }

    /// Q, the persistent queue, B.
    #[must_use]
    pub fn queue_B(&self) -> u64 {
        self.state.queue_B
    }

    /// Sets Q, for tests and for routers that measure it otherwise, B.
    pub fn set_queue(&mut self, queue_B: u64) {
        self.state.queue_B = queue_B;
    }

    /// The control interval, ns.
    #[must_use]
    pub fn interval_ns(&self) -> u64 {
        self.state.interval_ns
    }

    /// The queue-estimation interval, ns.
    #[must_use]
    pub fn tq_ns(&self) -> u64 {
        self.state.tq_ns
    }
}
