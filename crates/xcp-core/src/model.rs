// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router's control laws in floating point, the reference for core/.
//! Source: Katabi, Handley, Rohrs (SIGCOMM 2002), draft-falk-xcp-spec-03.
//! Symbols and formulas are those of core/xcp_router.h; here times are in
//! seconds, sizes in bytes, rates in B/s, and nothing is rounded.

/// Constants, and choices that the drafts leave open.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// C, B/s.
    pub capacity_Bps: f64,
    /// The part of the spare bandwidth that is handed out per interval.
    pub alpha: f64,
    /// The part of the persistent queue that is drained per interval.
    pub beta: f64,
    /// The part of the traffic that is shuffled per interval.
    pub gamma: f64,
    /// d before the first XCP packet, s: 0.2 in core/, 0.05 in ns-2.
    pub initial_interval_s: f64,
    /// The least d, s: 0.001 in core/ and ns-2 (but ns-2 bounds only the timer).
    pub min_interval_s: f64,
    /// The least Tq, s.
    pub min_tq_s: f64,
    /// Larger RTTs count as this, s.
    pub max_rtt_s: f64,
    /// Whether header values are limited to what is possible (in core/, not in ns-2).
    pub doubts: bool,
    /// Terms of core/'s law that are off, `enum xcp_law_term`; ns-2 has none of them.
    pub without: u32,
}

impl Params {
    /// The parameters of core/, with the published law.
    #[must_use]
    pub fn core(capacity_Bps: f64) -> Self {
        Params {
            capacity_Bps,
            alpha: 0.4,
            beta: 0.226,
            gamma: 0.1,
            initial_interval_s: 0.2,
            min_interval_s: 0.001,
            min_tq_s: 0.002,
            max_rtt_s: f64::from(xcp_abi::XCP_MAX_RTT_TICKS) / crate::TICKS_PER_SEC as f64,
            doubts: true,
            without: PUBLISHED,
        }
    }

    /// The parameters of core/, with some terms of its law switched off.
    #[must_use]
    pub fn without(capacity_Bps: f64, without: u32) -> Self {
        let published = Params::core(capacity_Bps);
        let (alpha, beta) = match without & GAINS {
            0 => (0.6, 0.4),
            _ => (published.alpha, published.beta),
        };
        Params {
            alpha,
            beta,
            without,
            ..published
        }
    }

    /// The parameters of ns-2.35.
    #[must_use]
    pub fn ns2(capacity_Bps: f64) -> Self {
        Params {
            initial_interval_s: 0.05,
            doubts: false,
            ..Params::core(capacity_Bps)
        }
    }
}

const PUBLISHED: u32 = crate::PUBLISHED;
/// These are from `enum xcp_law_term`.
const GAINS: u32 = 1;
const GRANTED: u32 = 2;
const BEFORE: u32 = 4;
const EXPECT: u32 = 8;
const PASS_ON: u32 = 16;

/// The largest part of the pool that may be carried over.
const PASSED_ON: f64 = 1.0 / 16.0;
/// The smallest full packet.
const FULL_PACKET_B: f64 = 512.0;

/// A forward XCP packet, or `n` of them with one header.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Number of wire packets.
    pub n: f64,
    /// Size of one wire packet, B.
    pub size_B: f64,
    /// X, s.
    pub x_s: f64,
    /// RTT, s; 0 = unknown.
    pub rtt_s: f64,
    /// Requested change, B/s.
    pub delta_Bps: f64,
}

/// The router's answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The change in the departing packet, B/s.
    pub delta_Bps: f64,
    /// Whether this router has changed the packet's delta.
    pub rewritten: bool,
}

/// The router of one output link.
#[derive(Clone, Debug)]
pub struct Model {
    /// Constants.
    pub params: Params,
    /// Bytes that arrived since the start of the interval.
    pub input_traffic_B: f64,
    /// Sum of X, s.
    pub sum_x: f64,
    /// Sum of RTT X, s^2.
    pub sum_rtt_x: f64,
    /// d, s.
    pub d_s: f64,
    /// Length of the present interval, s.
    pub interval_s: f64,
    /// Q, B.
    pub queue_B: f64,
    /// Least backlog since the last queue estimate, B.
    pub min_backlog_B: f64,
    /// Length of the present queue-estimation interval, s.
    pub tq_s: f64,
    /// Increases that remain, B/s.
    pub pos_Bps: f64,
    /// Decreases that remain, B/s.
    pub neg_Bps: f64,
    /// Cp, B/s per s of X.
    pub cp: f64,
    /// Cn, B/s per B.
    pub cn: f64,
    /// y of the last interval, B/s.
    pub y_Bps: f64,
    /// F of the last interval, B/s.
    pub f_Bps: f64,
    /// Granted in the present interval, B/s.
    pub granted_Bps: f64,
    /// Shares that packets did not request, not yet given to others, B/s.
    pub spare_Bps: f64,
    granted_before_Bps: f64,
    /// Upper bound of `spare_Bps`; 0 in a cut.
    pub carry_max_Bps: f64,
    interval_start_s: f64,
}

fn whole_ticks(time_s: f64) -> f64 {
    let per_s = crate::TICKS_PER_SEC as f64;
    (time_s * per_s).floor() / per_s
}

impl Model {
    /// A router before its first packet.
    #[must_use]
    pub fn new(params: Params, now_s: f64) -> Self {
        Model {
            params,
            input_traffic_B: 0.0,
            sum_x: 0.0,
            sum_rtt_x: 0.0,
            d_s: params.initial_interval_s,
            interval_s: params.initial_interval_s,
            queue_B: 0.0,
            min_backlog_B: 0.0,
            tq_s: params.min_tq_s,
            pos_Bps: 0.0,
            neg_Bps: 0.0,
            cp: 0.0,
            cn: 0.0,
            y_Bps: 0.0,
            f_Bps: 0.0,
            granted_Bps: 0.0,
            spare_Bps: 0.0,
            granted_before_Bps: 0.0,
            carry_max_Bps: 0.0,
            interval_start_s: now_s,
        }
    }

    /// Counts an arriving packet of any kind, B.
    pub fn arrival(&mut self, bytes: f64) {
        self.input_traffic_B += bytes;
    }

    /// Counts an arriving forward XCP packet; ignores it if its RTT is unknown.
    /// Its bytes go to [`Model::arrival`].
    pub fn arrival_xcp(&mut self, p: &Packet) {
        if p.rtt_s == 0.0 {
            return;
        }
        let (x_s, rtt_s) = self.believed(p);
        self.sum_x += p.n * x_s;
        self.sum_rtt_x += p.n * x_s * rtt_s;
    }

    /// A packet's X and RTT, limited to what is possible, s; X in whole ticks, as in headers.
    #[must_use]
    pub fn believed(&self, p: &Packet) -> (f64, f64) {
        let rtt_s = p.rtt_s.min(self.params.max_rtt_s);
        let x_s = match self.params.doubts {
            true => p
                .x_s
                .min(whole_ticks(rtt_s * (p.size_B / FULL_PACKET_B).min(1.0))),
            false => p.x_s,
        };
        (x_s, rtt_s)
    }

    /// The possible effect of a packet's delta, B/s.
    fn credible(&self, p: &Packet, delta_Bps: f64) -> f64 {
        let (_, rtt_s) = self.believed(p);
        let down_s = match self.params.doubts {
            true => rtt_s.max(self.d_s),
            false => rtt_s,
        };
        delta_Bps.clamp(-p.size_B / down_s, p.size_B / rtt_s)
    }

    /// The departure of a forward XCP packet. All `n` get the same grant, each from its
    /// part of what remains.
    pub fn departure(&mut self, packet: &Packet) -> Grant {
        let delta = packet.delta_Bps;
        if packet.rtt_s == 0.0 {
            return Grant {
                delta_Bps: delta.min(0.0),
                rewritten: delta > 0.0,
            };
        }
        let (pos, neg) = (self.pos_Bps / packet.n, self.neg_Bps / packet.n);
        let mut p = (self.cp * self.believed(packet).0).min(pos);
        let mut n = (self.cn * packet.size_B).min(neg);
        let fb = p - n;
        let grant = fb + self.spare_Bps / packet.n;
        let rewritten = delta >= grant;
        let least = match self.params.doubts {
            // whole B/s, as in headers
            true => self.credible(packet, f64::NEG_INFINITY).ceil(),
            false => f64::NEG_INFINITY,
        };
        if rewritten {
            self.spare_Bps = 0.0;
        } else if delta > fb {
            self.spare_Bps -= (delta - fb) * packet.n;
        } else if self.carry_max_Bps > 0.0 {
            let room = (self.carry_max_Bps - self.spare_Bps).max(0.0) / packet.n;
            let gives = delta.max(least).min(fb);
            let rest = (fb - gives).min(room);
            self.spare_Bps += rest * packet.n;
            p = gives + n + rest;
        } else {
            let delta = delta.max(least).min(fb);
            n = neg.min(n + (fb - delta));
            p = delta + n;
        }
        let granted = if rewritten { grant } else { delta };
        self.granted_Bps += self.credible(packet, granted) * packet.n;
        // the last part of a pool leaves exactly 0, in floating point too
        let rest = |all: f64, part: f64| if part < all { all - part } else { 0.0 };
        self.pos_Bps = rest(pos, p) * packet.n;
        self.neg_Bps = rest(neg, n) * packet.n;
        if self.pos_Bps == 0.0 {
            self.cp = 0.0;
        }
        if self.neg_Bps == 0.0 {
            self.cn = 0.0;
        }
        Grant {
            delta_Bps: granted,
            rewritten,
        }
    }

    /// Ends the control interval at `now_s`. Returns false if it had no XCP packet:
    /// then d and the rest of the pools are kept.
    pub fn interval_end(&mut self, now_s: f64) -> bool {
        let Params {
            capacity_Bps,
            alpha,
            beta,
            gamma,
            min_interval_s,
            without,
            ..
        } = self.params;
        self.y_Bps = self.input_traffic_B / (now_s - self.interval_start_s).max(1e-9);
        self.interval_start_s = now_s;
        let (traffic_B, sum_x, sum_rtt_x) = (self.input_traffic_B, self.sum_x, self.sum_rtt_x);
        (self.input_traffic_B, self.sum_x, self.sum_rtt_x) = (0.0, 0.0, 0.0);
        let has = |term| without & term == 0;
        let mut ahead_Bps = 0.0;
        if has(GRANTED) {
            ahead_Bps = self.granted_Bps;
        }
        if has(BEFORE) {
            // whole B/s, as in headers
            ahead_Bps += (self.granted_before_Bps / 2.0).floor();
        }
        (self.granted_before_Bps, self.granted_Bps) = (self.granted_Bps, 0.0);
        if sum_x == 0.0 {
            return false;
        }
        self.d_s = (sum_rtt_x / sum_x).max(min_interval_s);
        self.interval_s = self.d_s;
        let drain_Bps = self.queue_B / self.d_s;
        let coming_Bps = (self.y_Bps + ahead_Bps).max(0.0);
        self.f_Bps = alpha * (capacity_Bps - coming_Bps) - beta * drain_Bps;
        let shuffle = (gamma * self.y_Bps - self.f_Bps.abs()).max(0.0);
        self.pos_Bps = self.f_Bps.max(0.0) + shuffle;
        self.neg_Bps = (-self.f_Bps).max(0.0) + shuffle;
        self.cp = self.pos_Bps / sum_x;
        (self.spare_Bps, self.carry_max_Bps) = (0.0, 0.0);
        self.cn = self.neg_Bps / traffic_B;
        if self.f_Bps >= 0.0 && has(PASS_ON) {
            self.carry_max_Bps = self.pos_Bps * PASSED_ON;
        } else if self.f_Bps < 0.0 && has(EXPECT) {
            self.cn *= (self.y_Bps / capacity_Bps).max(1.0);
        }
        true
    }

    /// Adds a sample of the backlog, B. ns-2 samples just before each packet departs and
    /// when the link becomes idle, core/ when a packet arrives.
    pub fn backlog(&mut self, backlog_B: f64) {
        self.min_backlog_B = self.min_backlog_B.min(backlog_B);
    }

    /// Ends a queue-estimation interval: Q is the least backlog sampled.
    /// The present one counts for the next (core/ counts it for both: call
    /// [`Model::backlog`] with it first).
    pub fn queue_end(&mut self, backlog_B: f64) {
        self.queue_B = self.min_backlog_B;
        self.min_backlog_B = backlog_B;
        let rest_s = (self.d_s - backlog_B / self.params.capacity_Bps) / 2.0;
        self.tq_s = self.params.min_tq_s.max(rest_s);
    }
}
