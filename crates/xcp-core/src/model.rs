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
    /// The level law, core/xcp_level.h. Whether flows have come or gone is an input, like
    /// gamma: [`Model::changed`].
    pub level: bool,
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
            level: false,
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
/// The terms of `enum xcp_law_term`, with its values.
const GAINS: u32 = 1;
const GRANTED: u32 = 2;
const BEFORE: u32 = 4;
const EXPECT: u32 = 8;
const PASS_ON: u32 = 16;

/// The largest part of the pool that may be carried over.
const PASSED_ON: f64 = 1.0 / 16.0;
/// The constants of core/xcp_level.h, from here to LX_MAX_B.
const KAPPA_MAX: f64 = 0.2;
const KAPPA_X: f64 = 0.025;
const EPS: f64 = 1.0 / 16.0;
const RHO: f64 = 1.0 / 16.0;
const SETTLED: f64 = 0.3;
const LIMITED_PARTS: f64 = 50.0;
const CUT_MAX: f64 = 4.0;
const CUT_TOP: f64 = 32.0;
const M_MIN_S: f64 = 65536.0 / crate::TICKS_PER_SEC as f64;
const LX_MAX_B: f64 = 1048576.0;
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

/// Sums over a class of packets of the level law.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelClass {
    /// Sum of s, B.
    pub size_B: f64,
    /// Sum of X, s.
    pub x_s: f64,
    /// Sum of s / m, B/s.
    pub rate_Bps: f64,
    /// Sum of X / m.
    pub part: f64,
}

/// The state of the level law.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    /// Sum of X^2, s^2.
    pub x2: f64,
    /// B, B/s.
    pub less_Bps: f64,
    /// Packets of A that got g.
    pub limited: LevelClass,
    /// Packets of A that got less.
    pub less: LevelClass,
    /// Packets far from the level.
    pub far: LevelClass,
    /// Whether the level law grants.
    pub settled: bool,
    /// L, B/s; 0 if A was empty.
    pub l_Bps: f64,
    /// Lg, B/s.
    pub lg_Bps: f64,
    /// kappa.
    pub kappa: f64,
    /// The most that a far packet gets, relative to L X / m.
    pub far_max: f64,
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
    /// Cp of the draft: the increase per X, B/s per s.
    pub cp: f64,
    /// Cn of the draft: the decrease per byte, B/s per B.
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
    /// The level law.
    pub level: Level,
    /// Whether flows have come or gone within the last intervals.
    pub changed: bool,
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
            level: Level::default(),
            changed: false,
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
        if self.params.level {
            if self.level.settled {
                return self.level_departure(packet);
            }
            self.level_count(packet, false);
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

    /// m of the level law, s.
    fn m_s(&self, p: &Packet) -> f64 {
        self.believed(p).1.max(self.d_s).max(M_MIN_S)
    }

    /// Whether a packet is far from the level.
    #[must_use]
    pub fn far(&self, p: &Packet) -> bool {
        let (x_s, _) = self.believed(p);
        p.size_B < (1.0 - EPS) * (self.level.l_Bps * x_s).min(LX_MAX_B)
    }

    fn level_count(&mut self, p: &Packet, less: bool) {
        let ((x_s, _), m_s) = (self.believed(p), self.m_s(p));
        let class = match (self.far(p), less) {
            (true, _) => &mut self.level.far,
            (false, true) => &mut self.level.less,
            (false, false) => &mut self.level.limited,
        };
        class.size_B += p.n * p.size_B;
        class.x_s += p.n * x_s;
        class.rate_Bps += p.n * p.size_B / m_s;
        class.part += p.n * x_s / m_s;
        self.level.x2 += p.n * x_s * x_s;
    }

    /// g of the level law, B/s.
    #[must_use]
    pub fn level_grant_Bps(&self, p: &Packet) -> f64 {
        let (x_s, _) = self.believed(p);
        let Level {
            l_Bps,
            lg_Bps,
            kappa,
            far_max,
            ..
        } = self.level;
        if self.far(p) {
            let lx = (l_Bps * x_s).min(LX_MAX_B);
            return (kappa * (lx - p.size_B)).min(far_max * lx) / self.m_s(p);
        }
        let lx = (lg_Bps * x_s).clamp(-LX_MAX_B, LX_MAX_B);
        kappa * (lx - p.size_B) / self.m_s(p)
    }

    /// The departure of a packet with a known RTT, while settled.
    fn level_departure(&mut self, p: &Packet) -> Grant {
        let g = self.level_grant_Bps(p);
        let rewritten = p.delta_Bps > g;
        let delta_Bps = if rewritten { g } else { p.delta_Bps };
        if !self.far(p) {
            let credible = p.n * self.credible(p, delta_Bps);
            self.granted_Bps += credible;
            if !rewritten {
                self.level.less_Bps += credible;
            }
        }
        self.level_count(p, !rewritten);
        Grant {
            delta_Bps,
            rewritten,
        }
    }

    /// Completes the end of an interval of `elapsed_s`.
    fn level_end(&mut self, elapsed_s: f64, traffic_B: f64, sum_x: f64) {
        let sums = self.level;
        let capacity = self.params.capacity_Bps;
        let all = |of: fn(&LevelClass) -> f64| of(&sums.limited) + of(&sums.less) + of(&sums.far);
        let (t1, t2) = (all(|c| c.rate_Bps), all(|c| c.part));
        let a_x = sums.limited.x_s + sums.less.x_s;
        let a_B = sums.limited.size_B + sums.less.size_B;
        let top = capacity.max(self.y_Bps);
        let l_Bps = match a_x > 0.0 {
            true => a_B / a_x,
            false => traffic_B / sum_x,
        }
        .min(top);
        let kappa = KAPPA_MAX.min(KAPPA_X * elapsed_s * sum_x / sums.x2);
        let (mut s1, mut s2) = (sums.limited.rate_Bps, sums.limited.part);
        let mut b = sums.less_Bps;
        if s2 < t2 / LIMITED_PARTS {
            (s1, s2, b) = (t1, t2, 0.0);
        }
        let mut change = self.f_Bps * elapsed_s / self.d_s;
        if self.f_Bps < 0.0 && self.params.without & EXPECT == 0 {
            change *= (capacity / self.y_Bps).min(1.0);
        }
        let flows = sum_x / elapsed_s;
        let most = 2.0 * (capacity / flows).min(top).max(l_Bps);
        let least = -(CUT_MAX * l_Bps / kappa).min(CUT_TOP * top);
        let sum = change.clamp(-top, top) - b.clamp(-top, top) + kappa * s1.min(top);
        let lg_Bps = sum / (kappa * s2);
        self.level = Level {
            settled: !self.changed && self.f_Bps.abs() <= SETTLED * capacity,
            l_Bps: if a_x > 0.0 { l_Bps } else { 0.0 },
            lg_Bps: lg_Bps.min(most).max(least),
            kappa,
            far_max: (self.f_Bps / (flows * l_Bps)).clamp(RHO, 1.0),
            ..Level::default()
        };
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
        let elapsed_s = (now_s - self.interval_start_s).max(1e-9);
        self.y_Bps = self.input_traffic_B / elapsed_s;
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
            let law = self.level;
            self.level = Level {
                settled: law.settled,
                l_Bps: law.l_Bps,
                lg_Bps: law.lg_Bps,
                kappa: law.kappa,
                far_max: law.far_max,
                ..Level::default()
            };
            return false;
        }
        self.d_s = (sum_rtt_x / sum_x).max(min_interval_s);
        self.interval_s = self.d_s;
        let drain_Bps = self.queue_B / self.d_s;
        let coming_Bps = (self.y_Bps + ahead_Bps).max(0.0);
        self.f_Bps = alpha * (capacity_Bps - coming_Bps) - beta * drain_Bps;
        let gamma = match self.params.level && !self.changed {
            true => 0.0,
            false => gamma,
        };
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
        if self.params.level {
            self.level_end(elapsed_s, traffic_B, sum_x);
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
