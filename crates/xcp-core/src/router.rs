// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_router.h: the control laws of one output link, on one CPU.

use crate::*;

/// Switches off all additions to the published law.
pub const PUBLISHED: u32 = XCP_LAW_GAINS
    | XCP_LAW_GRANTED
    | XCP_LAW_BEFORE
    | XCP_LAW_EXPECT
    | XCP_LAW_PASS_ON
    | XCP_LAW_SHUFFLE;

/// Converts an amount in 2^-shift B/s, the unit of pools, to B/s.
#[must_use]
pub fn pool_Bps(amount: u64, shift: u32) -> f64 {
    amount as f64 * (-f64::from(shift)).exp2()
}

/// The rate of a factor of X, B/s.
fn rate_Bps(rate: &xcp_level_rate) -> f64 {
    let per_tick = rate.m as f64 * (-f64::from(rate.shift + u32::from(XCP_LEVEL_BYTE_BITS))).exp2();
    per_tick * crate::TICKS_PER_SEC as f64
}

fn value(n: xcp_num) -> f64 {
    n.m as f64 * f64::from(n.e).exp2()
}

/// The router of one output link.
#[derive(Clone, Debug)]
pub struct Router {
    params: xcp_router_params,
    state: xcp_router_state,
    law: xcp_router_law,
    sums: xcp_router_sums,
    pool: xcp_router_pool,
}

impl Router {
    /// A router before its first packet.
    #[must_use]
    pub fn new(params: xcp_router_params, now_ns: u64) -> Self {
        let mut state = xcp_router_state::default();
        let mut law = xcp_router_law::default();
        xcp_router_init(&mut state, &params, &mut law, now_ns);
        Router {
            params,
            state,
            law,
            sums: xcp_router_sums::default(),
            pool: xcp_router_pool::default(),
        }
    }

    /// Counts an arriving packet of any kind, or a GSO packet with all its bytes.
    pub fn arrival(&mut self, bytes: u64) {
        xcp_router_arrival(&mut self.sums, bytes);
    }

    /// Counts an arriving forward XCP packet that stands for `n` packets of `size_B`;
    /// `x` and `rtt` (not 0) are in ticks. Its bytes go to [`Router::arrival`].
    pub fn arrival_xcp(&mut self, n: u32, size_B: u64, x: u64, rtt: u64) {
        let claim = xcp_router_claim(&self.law, size_B, x, rtt);
        xcp_router_arrival_xcp(&mut self.sums, n, &claim);
    }

    /// The departure of a forward XCP packet: returns the delta to write, B/s. `n` is at
    /// least 1, `size_B` the size of one wire packet, `x` and `rtt` are in ticks.
    pub fn departure(&mut self, n: u32, size_B: u64, x: u64, rtt: u64, delta: i32) -> i32 {
        let (n, claim) = (n.max(1), xcp_router_claim(&self.law, size_B, x, rtt));
        let (law, pool, sums) = (&self.law, &mut self.pool, &mut self.sums);
        xcp_router_grant(law, pool, sums, n, &claim, delta)
    }

    /// Handles arrival and departure of each packet, in one call.
    pub fn batch(&mut self, packets: &mut [xcp_bench_packet]) {
        let (law, pool, sums) = (&self.law, &mut self.pool, &mut self.sums);
        // SAFETY: a slice of so many records, borrowed for the call.
        unsafe { xcp_bench_packets(law, pool, sums, packets.as_mut_ptr(), packets.len()) }
    }

    /// Whether the control interval is over.
    #[must_use]
    pub fn interval_due(&self, now_ns: u64) -> bool {
        xcp_router_interval_due(&self.state, now_ns)
    }

    /// Shortens the control interval if it is more than twice as long as the average RTT of
    /// the packets since the last check, and has lasted that RTT.
    pub fn check_rtts(&mut self, now_ns: u64) {
        if xcp_router_check_due(&self.state, now_ns) {
            xcp_router_check_rtts(&mut self.state, &self.params, &self.sums, now_ns);
        }
    }

    /// Whether the queue-estimation interval is over.
    #[must_use]
    pub fn queue_due(&self, now_ns: u64) -> bool {
        xcp_router_queue_due(&self.state, now_ns)
    }

    /// Ends the control interval. Returns false if it had no XCP packet: then d and the
    /// rest of the pools are kept.
    pub fn interval_end(&mut self, now_ns: u64) -> bool {
        self.end(now_ns, None, None)
    }

    /// Whether the link carries far less or far more than before: then the interval ends.
    #[must_use]
    pub fn link_changed(&self, seen: &xcp_link_samples) -> bool {
        xcp_capacity_changed(&self.state.capacity, seen, self.state.interval_ns)
    }

    /// Changes the hint of the link's capacity from `before_Bps` to `hint_Bps`; 0: no hint.
    pub fn capacity_hint(&mut self, before_Bps: u64, hint_Bps: u64) {
        xcp_capacity_hint(&mut self.state.capacity, before_Bps, hint_Bps);
    }

    /// As [`Router::interval_end`], on a link whose capacity is measured.
    pub fn interval_end_seen(&mut self, now_ns: u64, seen: &xcp_link_samples) -> bool {
        self.end(now_ns, Some(seen), None)
    }

    /// As [`Router::interval_end`], on a link shared with other traffic in its own queue.
    pub fn interval_end_shared(
        &mut self,
        now_ns: u64,
        seen: &xcp_link_samples,
        other: &xcp_sharing_interval,
    ) -> bool {
        self.end(now_ns, Some(seen), Some(other))
    }

    /// As [`Router::interval_end`], for a virtual router, with measurements of its cloud.
    pub fn interval_end_cloud(
        &mut self,
        now_ns: u64,
        seen: &xcp_link_samples,
        cloud: &xcp_cloud,
    ) -> bool {
        self.state.step_Bps = xcp_cloud_step(cloud, self.state.interval_ns);
        self.end(now_ns, Some(seen), None)
    }

    fn end(
        &mut self,
        now_ns: u64,
        seen: Option<&xcp_link_samples>,
        other: Option<&xcp_sharing_interval>,
    ) -> bool {
        let (state, params, sums) = (&mut self.state, &self.params, &self.sums);
        xcp_router_capacity(state, params, sums, now_ns, seen, other);
        let renewed = xcp_router_interval_end(state, params, sums, now_ns, &mut self.law);
        if renewed {
            xcp_router_level_end(state, params, &mut self.law);
            self.refill();
        }
        renewed
    }

    /// Fills the pools again from the present law.
    pub fn refill(&mut self) {
        let law = &self.law;
        xcp_router_pool_fill(&mut self.pool, law.pos_pool, law.neg_pool, law.shift);
    }

    /// Adds the backlog that a packet finds, B.
    pub fn backlog(&mut self, backlog_B: u64) {
        xcp_router_backlog(&mut self.state, backlog_B)
    }

    /// Ends a queue-estimation interval with the present backlog, B.
    pub fn queue_end(&mut self, backlog_B: u64, now_ns: u64) {
        xcp_router_queue_end(&mut self.state, &self.params, backlog_B, now_ns);
    }

    /// What remains of the pools.
    #[must_use]
    pub fn pool(&self) -> &xcp_router_pool {
        &self.pool
    }

    /// The pool of increases at the start of the interval, B/s.
    #[must_use]
    pub fn pos_Bps(&self) -> f64 {
        pool_Bps(self.law.pos_pool, self.law.shift)
    }

    /// The pool of decreases at the start of the interval, B/s.
    #[must_use]
    pub fn neg_Bps(&self) -> f64 {
        pool_Bps(self.law.neg_pool, self.law.shift)
    }

    /// The unit of pools and cuts, B/s: 2^-shift.
    #[must_use]
    pub fn unit_Bps(&self) -> f64 {
        pool_Bps(1, self.law.shift)
    }

    /// d, the average RTT, s.
    #[must_use]
    pub fn d_s(&self) -> f64 {
        value(self.state.d) / crate::TICKS_PER_SEC as f64
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

    /// L, the measured capacity of the link, B/s; 0 = unknown.
    #[must_use]
    pub fn link_Bps(&self) -> u64 {
        self.state.capacity.link_Bps
    }

    /// N, the number of flows in the last interval.
    #[must_use]
    pub fn flows(&self) -> f64 {
        f64::from(self.state.flows.now) / f64::from(1 << XCP_FLOW_BITS)
    }

    /// gamma, the part of the traffic that is shuffled in the present interval.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        let published = self.params.without & XCP_LAW_SHUFFLE != 0;
        let q32 = xcp_flows_gamma(&self.state.flows, published);
        f64::from(q32) / 32f64.exp2()
    }

    /// Whether the level law grants in the present interval.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.law.level.mode == XCP_LEVEL_SETTLED
    }

    /// Whether N has changed within the last intervals: flows have come or gone.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.state.flows.changed > 0
    }

    /// L, the level, B/s; 0 if no flow was at it.
    #[must_use]
    pub fn level_Bps(&self) -> f64 {
        rate_Bps(&self.law.level.l)
    }

    /// Lg, the rate towards which the flows at the level are steered, B/s.
    #[must_use]
    pub fn level_grant_Bps(&self) -> f64 {
        rate_Bps(&self.law.level.lg)
    }

    /// XCP's share of the link, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        f64::from(self.state.sharing.share) / f64::from(XCP_SHARE_ONE)
    }

    /// o, arrivals at the queue of other traffic in the last interval, B/s.
    #[must_use]
    pub fn other_Bps(&self) -> u64 {
        self.state.sharing.other_Bps
    }

    /// F, the aggregate change of the last interval, B/s.
    #[must_use]
    pub fn f_Bps(&self) -> i64 {
        self.state.f_Bps
    }

    /// The sum of grants in the present interval, B/s.
    #[must_use]
    pub fn granted_Bps(&self) -> i64 {
        self.sums.granted_Bps - self.state.last.granted_Bps
    }

    /// Q, the persistent queue, B.
    #[must_use]
    pub fn queue_B(&self) -> u64 {
        self.state.queue_B
    }

    /// Sets Q (B), for tests and for routers that measure it in another way.
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
