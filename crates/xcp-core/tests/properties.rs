// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What must hold for any traffic in the whole range: capacity 1 KB/s to
//! 125 GB/s, RTT 10 us to 60 s, packets of 40 to 65,535 bytes, 1 to 1,000,000
//! flows. core/ is compiled to stop at undefined behaviour here, so a signed
//! overflow, a bad shift or a division by zero fails too.

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_core::model::{self, Model};
use xcp_core::wire::{self, Forward, Kind, Return};
use xcp_core::{Params, Receiver, Router, Sender, TICKS_PER_SEC};

const TICK: f64 = TICKS_PER_SEC as f64;
/// The longest time that core/ knows (64 s), ticks; the wire has 16 s.
const TICKS_MAX: f64 = ((1u64 << 34) - 1) as f64;

/// Largest super-packet, B.
const SUPER_B: f64 = 524_288.0;
/// The control interval before the first XCP packet.
const INITIAL_NS: u64 = 200_000_000;

/// The same cases every time, so that a red run can be repeated.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..=high.ln()).prop_map(f64::exp)
}

/// A packet, relative to its trace.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// XCP, XCP with its RTT unknown, or another protocol.
    kind: u8,
    n: u32,
    size_B: f64,
    rtt: f64,
    x: f64,
    /// Request by an equal share of the capacity; None asks for all.
    request: Option<f64>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        prop_oneof![8 => Just(0u8), 1 => Just(1), 2 => Just(2)],
        prop_oneof![8 => Just(1u32), 3 => 2..=45u32, 1 => 46..=2_048u32],
        log_uniform(40.0, 65_535.0),
        log_uniform(0.5, 2.0),
        log_uniform(0.25, 4.0),
        prop::option::weighted(0.3, -0.5..0.5f64),
    )
        .prop_map(|(kind, n, size_B, rtt, x, request)| Drawn {
            kind,
            n,
            size_B: size_B.min(SUPER_B / f64::from(n)).max(40.0).round(),
            rtt,
            x,
            request,
        })
}

/// What happens in one control interval.
#[derive(Clone, Debug)]
struct Interval {
    packets: Vec<Drawn>,
    /// Its length, by the length that was due.
    length: f64,
    /// Backlog at its end, by what the link sends in an RTT.
    backlog: f64,
}

fn interval() -> impl Strategy<Value = Interval> {
    (
        prop_oneof![9 => 1..120usize, 1 => Just(0)],
        prop_oneof![3 => Just(1.0), 1 => log_uniform(1.0, 100.0)],
        prop_oneof![1 => Just(0.0), 1 => log_uniform(0.001, 10.0)],
    )
        .prop_flat_map(|(count, length, backlog)| {
            prop::collection::vec(drawn(), count).prop_map(move |packets| Interval {
                packets,
                length,
                backlog,
            })
        })
}

/// Traffic on one link.
#[derive(Clone, Debug)]
struct Trace {
    capacity_Bps: u64,
    rtt_s: f64,
    flows: f64,
    load: f64,
    intervals: Vec<Interval>,
}

fn trace() -> impl Strategy<Value = Trace> {
    (
        log_uniform(1e3, 125e9),
        log_uniform(10e-6, 60.0),
        log_uniform(1.0, 1e6),
        log_uniform(0.01, 3.0),
        prop::collection::vec(interval(), 1..8),
    )
        .prop_map(|(capacity, rtt_s, flows, load, intervals)| Trace {
            capacity_Bps: capacity as u64,
            rtt_s,
            flows,
            load,
            intervals,
        })
}

/// A drawn packet in the units of core/.
struct Units {
    n: u32,
    size_B: u64,
    rtt: u64,
    x: u64,
    delta: i32,
}

impl Trace {
    fn units(&self, p: &Drawn) -> Units {
        let ticks = |s: f64| (s * TICK).round().clamp(1.0, TICKS_MAX) as u64;
        let rate_Bps = self.capacity_Bps as f64 * self.load / self.flows;
        // all together never give back more than the capacity
        let share_Bps = self.capacity_Bps as f64 / 60.0 / f64::from(p.n);
        Units {
            n: p.n,
            size_B: p.size_B as u64,
            rtt: match p.kind {
                0 => ticks((self.rtt_s * p.rtt).clamp(10e-6, 60.0)),
                _ => 0,
            },
            x: ticks(p.size_B / rate_Bps * p.x),
            delta: p
                .request
                .map_or(i32::MAX, |share| (share * share_Bps).round() as i32),
        }
    }
}

/// core/ and its model side by side.
struct Pair {
    core: Router,
    model: Model,
    now_ns: u64,
    /// Sum of X of the interval that the pools come from, s.
    sum_x_s: f64,
    /// Both pools as the interval began.
    pools_Bps: f64,
    /// Has anything been given back to the pool of increases since?
    grew: bool,
    /// To an all but empty one?
    unclear: bool,
}

fn near(what: &str, got: f64, want: f64, tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:e}, not {want:e} within {tolerance:e}"
    );
    Ok(())
}

impl Pair {
    fn new(capacity_Bps: u64) -> Self {
        let params = Params {
            capacity_Bps,
            min_interval_ns: 1_000_000,
        };
        Pair {
            core: Router::new(params, 0),
            model: Model::new(model::Params::core(capacity_Bps as f64), 0.0),
            now_ns: 0,
            sum_x_s: 0.0,
            pools_Bps: 0.0,
            grew: false,
            unclear: false,
        }
    }

    fn arrive(&mut self, p: &Drawn, u: &Units) {
        let bytes = u.size_B * u64::from(u.n);
        self.core.arrival(bytes);
        self.model.arrival(bytes as f64);
        if p.kind == 0 {
            self.core.arrival_xcp(u.n, u.x, u.rtt);
            self.model.arrival_xcp(&of_model(u));
        }
    }

    /// Both grants for all wire packets, B/s; what core/ carries is granted.
    fn depart(&mut self, u: &Units) -> Result<(f64, f64), TestCaseError> {
        let (before, pos_Bps) = (*self.core.pool(), self.model.pos_Bps);
        let got = self.core.departure(u.n, u.size_B, u.x, u.rtt, u.delta);
        let want = self.model.departure(&of_model(u)).delta_Bps;
        let after = self.core.pool();
        prop_assert!(got <= u.delta, "granted {got} to a request of {}", u.delta);
        let n = f64::from(u.n);
        if after.pos > before.pos || self.model.pos_Bps > pos_Bps {
            self.grew = true;
            self.unclear |= pos_Bps.min(before.pos_Bps()) <= 1e-5 * self.pools_Bps;
        }
        let carried = after.carry_Bps() - before.carry_Bps();
        if want < f64::from(i32::MIN) {
            prop_assert_eq!(got, i32::MIN);
            return Ok((want * n, want * n));
        }
        Ok((f64::from(got) * n + carried, want * n))
    }

    fn end(&mut self, interval: &Interval) -> Result<(), TestCaseError> {
        let capacity = self.model.params.capacity_Bps;
        let length = self.core.interval_ns() as f64 * interval.length;
        self.now_ns += length as u64;
        // the kernel counts it in 32 bits
        let backlog_B = (capacity * self.model.d_s * interval.backlog) as u32 as u64;
        self.core.backlog(backlog_B);
        self.core.queue_end(backlog_B, self.now_ns);
        self.model.backlog(backlog_B as f64);
        self.model.queue_end(backlog_B as f64);
        near(
            "Tq",
            self.core.tq_ns() as f64 / 1e9,
            self.model.tq_s,
            1e-5 * self.model.tq_s + 2e-9,
        )?;

        let sum_x_s = self.model.sum_x;
        let renewed = self.core.interval_end(self.now_ns);
        prop_assert_eq!(renewed, self.model.interval_end(self.now_ns as f64 / 1e9));
        let m = &self.model;
        let pools = m.pos_Bps + m.neg_Bps;
        near("d", self.core.d_s(), m.d_s, 1e-5 * m.d_s)?;
        if renewed {
            (self.sum_x_s, self.pools_Bps) = (sum_x_s, pools);
            self.grew = false;
            near("pos", self.core.pos_Bps(), m.pos_Bps, 1e-5 * pools)?;
            near("neg", self.core.neg_Bps(), m.neg_Bps, 1e-5 * pools)?;
        }
        Ok(())
    }
}

fn of_model(u: &Units) -> model::Packet {
    model::Packet {
        n: f64::from(u.n),
        size_B: u.size_B as f64,
        x_s: u.x as f64 / TICK,
        rtt_s: u.rtt as f64 / TICK,
        delta_Bps: f64::from(u.delta),
    }
}

proptest! {
    #![proptest_config(cases(3000))]

    /// The sum of what core/ hands out in an interval is the model's. They
    /// may part where packets give back more than the pool of decreases has:
    /// core/ lets a packet as long as the whole interval before (in X) have
    /// all of it, and rounding decides whether an all but empty pool counts
    /// as empty, which nothing fills.
    #[test]
    fn aggregate_feedback_is_the_models(trace in trace()) {
        let mut pair = Pair::new(trace.capacity_Bps);
        for interval in &trace.intervals {
            let pools = pair.model.pos_Bps + pair.model.neg_Bps;
            let (mut got, mut want, mut asked) = (0.0, 0.0, 0.0);
            for p in &interval.packets {
                let u = trace.units(p);
                pair.arrive(p, &u);
                let whole = u.x as f64 / TICK >= pair.sum_x_s * (1.0 - 1e-9);
                if pair.unclear || pair.grew && whole {
                    return Ok(());
                }
                if p.kind != 2 {
                    let (g, w) = pair.depart(&u)?;
                    got += g;
                    want += w;
                    asked += p.request.map_or(0.0, |_| w.abs());
                }
            }
            near("feedback", got, want, 1e-5 * (pools + asked))?;
            pair.end(interval)?;
        }
    }

    /// Increases never exceed the pool, whatever is asked for; what is given
    /// back may be handed on.
    #[test]
    fn increases_come_from_the_pool(trace in trace()) {
        let mut pair = Pair::new(trace.capacity_Bps);
        for interval in &trace.intervals {
            let start = *pair.core.pool();
            let (mut up, mut down) = (0.0, 0.0);
            for p in &interval.packets {
                let u = trace.units(p);
                pair.arrive(p, &u);
                if p.kind == 0 {
                    let got = pair.core.departure(u.n, u.size_B, u.x, u.rtt, u.delta);
                    let all = f64::from(got) * f64::from(u.n);
                    up += all.max(0.0);
                    down += all.min(0.0);
                }
            }
            let carry = start.carry_Bps();
            let most = start.pos_Bps() + carry - down;
            prop_assert!(up <= most * (1.0 + 1e-9) + 1e-6, "{up} of {most}");
            pair.end(interval)?;
        }
    }

    /// Any inputs at all: the extremes of every type, in any order.
    #[test]
    fn no_input_breaks_the_router(
        capacity_Bps in extreme_u64(),
        min_interval_ns in extreme_u64(),
        steps in prop::collection::vec((any::<u8>(), extreme_u64(), extreme_u64(), extreme_u64(), any::<i32>()), 1..60),
    ) {
        let params = Params {
            capacity_Bps: capacity_Bps.clamp(1_000, 125_000_000_000),
            min_interval_ns: min_interval_ns.clamp(50_000, 1_000_000_000),
        };
        let mut router = Router::new(params, 0);
        let mut now_ns = 0u64;
        for (what, a, b, c, delta) in steps {
            let n = (c as u32 & 0xffff).max(1);
            match what % 5 {
                0 => router.arrival(a & 0xffff_ffff),
                1 => router.arrival_xcp(n, (a >> 30).max(1), (b >> 30).max(1)),
                2 => {
                    let got = router.departure(n, (a & 0xffff).max(40), b >> 30, c >> 30, delta);
                    prop_assert!(got <= delta);
                }
                3 => {
                    router.backlog(a);
                    router.queue_end(b, now_ns);
                }
                _ => {
                    now_ns = now_ns.saturating_add(a >> 16);
                    router.interval_end(now_ns);
                    prop_assert!(router.interval_ns() >= params.min_interval_ns.min(INITIAL_NS));
                    prop_assert!(router.interval_ns() <= 64_000_000_000);
                }
            }
        }
    }
}

fn extreme_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (0..64u32).prop_map(|b| 1 << b)
    ]
}

proptest! {
    #![proptest_config(cases(2000))]

    /// The parts of all CPUs make the pool, and none is more than it.
    #[test]
    fn pools_split_without_growing(
        pool in 0..(1u64 << 44),
        parts in prop::collection::vec(0..(1u64 << 40), 1..64),
    ) {
        let total: u64 = parts.iter().sum();
        prop_assume!(total > 0);
        let sum: u64 = parts.iter().map(|p| xcp_core::split(pool, *p, total)).sum();
        let lost = pool.abs_diff(sum) as f64;
        prop_assert!(lost <= pool as f64 * 1e-8 + parts.len() as f64, "{sum} of {pool}");
    }

    /// What the receiver returns and what is still pending is what came in.
    #[test]
    fn the_receiver_loses_nothing(
        steps in prop::collection::vec((any::<i32>(), 1..=65_535u32, 0..=3u8, 1..=64u32), 1..100),
    ) {
        let mut receiver = Receiver::default();
        let (mut came, mut went) = (0i64, 0i64);
        for (delta, n, takes, copies) in steps {
            receiver.add(delta, n);
            came += i64::from(delta) * i64::from(n);
            for _ in 0..takes {
                went += i64::from(receiver.take(copies)) * i64::from(copies);
            }
            prop_assert_eq!(came, went + receiver.pending_Bps);
        }
    }

    /// The window moves by feedback * RTT and keeps the fraction, as long as
    /// neither one packet nor the largest window bounds it.
    #[test]
    fn the_window_is_the_sum_of_the_feedback(
        wire_B in 40..=65_535u32,
        rtt in log_uniform(10e-6, 60.0),
        feedback in prop::collection::vec(-1_000_000..=1_000_000i64, 1..200),
    ) {
        let rtt = (rtt * TICK) as u64;
        let mut sender = Sender::new(wire_B, 1 << 28, u64::MAX >> 8, rtt);
        let start = sender.cwnd_B;
        let mut sum = 0i128;
        for fb in feedback {
            sender.feedback(fb);
            sum += i128::from(fb) * i128::from(rtt);
            let moved = (i128::from(sender.cwnd_B) - i128::from(start)) * (1 << 28)
                + i128::from(sender.cwnd_frac);
            prop_assert_eq!(moved, sum);
        }
    }

    /// Any feedback leaves a window of at least a packet, and no more than is
    /// allowed; pacing is the window by the RTT; the request is no decrease.
    #[test]
    fn the_window_keeps_its_bounds(
        wire_B in 40..=65_535u32,
        packets in 0..=(1u64 << 40),
        limit_B in extreme_u64(),
        rtt in prop_oneof![Just(0u64), 2_684u64..(60 << 28)],
        feedback in prop::collection::vec(any::<i64>(), 1..20),
    ) {
        let limit_B = limit_B & ((1 << 46) - 1);
        let mut sender = Sender::new(wire_B, packets.min((1 << 45) / u64::from(wire_B)), limit_B, rtt);
        for fb in feedback {
            sender.feedback(fb);
            sender.update();
            prop_assert!(sender.cwnd_B >= u64::from(wire_B));
            prop_assert!(sender.cwnd_B <= Sender::CWND_MAX_B);
            prop_assert!(sender.request_Bps >= 0);
            prop_assert!(sender.packets() >= 1);
            if rtt > 0 {
                let pace = sender.cwnd_B as f64 / (rtt as f64 / TICK);
                let pace = pace.min(Sender::CWND_MAX_B as f64);
                near("pacing", sender.pacing_Bps as f64, pace, pace * 1e-6 + 1.0)?;
                prop_assert!(sender.next_x() >= 1);
            }
        }
    }

    /// The sum of X over a window's packets is the RTT.
    #[test]
    fn x_sums_up_to_the_rtt(
        wire_B in 40..=9_000u32,
        packets in 1..2_000u64,
        rtt in log_uniform(100e-6, 15.0),
    ) {
        let rtt = (rtt * TICK) as u64;
        prop_assume!(rtt > 2 * packets);
        let mut sender = Sender::new(wire_B, packets, u64::MAX >> 18, rtt);
        let sum: u64 = (0..packets).map(|_| sender.next_x()).sum();
        prop_assert!(sum.abs_diff(rtt) <= 1, "{} of {}", sum, rtt);
    }

    /// What is built is parsed back.
    #[test]
    fn options_survive_the_wire(
        (rtt, x, delta, last_xcp_router) in any::<(u32, u32, i32, u32)>(),
        (xcp_ttl, hops, feedback) in any::<(u8, u8, i32)>(),
        other_hops in 0..=15u8,
    ) {
        let f = Forward { rtt, x, delta, last_xcp_router, xcp_ttl, xcp_hops: 0 };
        let r = Return { feedback, xcp_hops: hops, other_hops };
        prop_assert_eq!(Forward::parse(&f.build()), Some(f));
        let both = f.build_both(&r);
        prop_assert_eq!(Forward::parse(&both), Some(f));
        prop_assert_eq!(Return::parse(&both, Kind::Both), Some(r));
        prop_assert_eq!(Return::parse(&r.build(), Kind::Return), Some(r));
        for (option, kind) in [(&both[..], Kind::Both), (&f.build()[..], Kind::Forward)] {
            let mut header = vec![1; 20];
            header.extend(option);
            let end = header.len();
            prop_assert_eq!(wire::find(&header, end), (kind, 20));
        }
    }

    /// Any bytes at all are read within their bounds, and an edit keeps the
    /// checksum as right or wrong as it was.
    #[test]
    fn any_bytes_are_parsed_within_bounds(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        header_len in 0..70usize,
        delta in any::<i32>(),
        ttl in any::<u8>(),
    ) {
        // a copy that ends where it ends, for memory checkers
        let exact: Box<[u8]> = bytes.clone().into();
        let (kind, offset) = wire::find(&exact, header_len);
        if !matches!(kind, Kind::Forward | Kind::Both) {
            return Ok(());
        }
        prop_assert!(offset + 2 <= header_len);
        let before = ones_sum(&bytes);
        if wire::edit(&mut bytes, offset, delta, ttl) {
            let parsed = Forward::parse(&bytes[offset..]);
            prop_assert_eq!(parsed.map(|f| f.delta), Some(delta));
            prop_assert_eq!(ones_sum(&bytes) % 0xffff, before % 0xffff);
        } else {
            prop_assert_eq!(&bytes[..], &exact[..]);
        }
    }
}

/// The one's complement sum that a checksum makes constant.
fn ones_sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|b| u64::from(b[0]) << 8 | u64::from(*b.get(1).unwrap_or(&0)))
        .sum()
}
