// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Properties that must hold for any traffic in the whole range: capacity 1 KB/s to
//! 125 GB/s, RTT 10 us to 16 s, packets of 40 to 65,535 bytes, 1 to 1,000,000
//! flows. In test builds undefined behaviour in core/ aborts (UBSan), so signed overflows,
//! bad shifts and divisions by zero fail too.

#![allow(non_snake_case)] // units in names

use std::cell::Cell;
use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use xcp_core::model::Model;
use xcp_core::*;

const TICK: f64 = TICKS_PER_SEC as f64;
/// The longest time on the wire, 16 s.
const TICKS_MAX: f64 = u32::MAX as f64;

/// The largest GSO packet, B.
const SUPER_B: f64 = 524_288.0;
/// The control interval before the first XCP packet.
const INITIAL_NS: u64 = 200_000_000;

/// Uses a fixed seed, so that a failure can be reproduced.
pub fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// Includes both limits, and draws each limit exactly in a twentieth of the cases.
fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    let between = (low.ln()..=high.ln()).prop_map(move |v| v.exp().clamp(low, high));
    prop_oneof![18 => between, 1 => Just(low), 1 => Just(high)]
}

/// A random packet, with values relative to those of its trace.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// 0: XCP, 1: XCP with unknown RTT, 2: another protocol.
    kind: u8,
    n: u32,
    size_B: f64,
    rtt: f64,
    x: f64,
    /// The request relative to an equal share of the capacity; None requests the maximum.
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

/// The traffic of one control interval.
#[derive(Clone, Debug)]
struct Interval {
    packets: Vec<Drawn>,
    /// Its length relative to the length that was due.
    length: f64,
    /// Input traffic relative to the capacity: a burst of another protocol adds missing
    /// traffic, and a longer interval compensates for too much.
    load: Option<f64>,
    /// Backlog at its end, relative to what the link sends in an RTT.
    backlog: f64,
}

fn interval() -> impl Strategy<Value = Interval> {
    (
        prop_oneof![6 => 1..120usize, 3 => 1..4usize, 1 => Just(0)],
        prop_oneof![9 => Just(None), 1 => Just(Some(2u8))],
        prop_oneof![3 => Just(1.0), 1 => log_uniform(1.0, 100.0)],
        prop::option::weighted(0.6, log_uniform(0.5, 2.0)),
        prop_oneof![1 => Just(0.0), 1 => log_uniform(0.001, 10.0)],
    )
        .prop_flat_map(|(count, kind, length, load, backlog)| {
            prop::collection::vec(drawn(), count).prop_map(move |mut packets| {
                for p in &mut packets {
                    p.kind = kind.unwrap_or(p.kind);
                }
                Interval {
                    packets,
                    length,
                    load,
                    backlog,
                }
            })
        })
}

/// Traffic on one link.
#[derive(Clone, Debug)]
struct Trace {
    capacity_Bps: u64,
    min_interval_ns: u64,
    /// The largest RTT that counts, ticks; 0 means 1 s.
    max_rtt: u32,
    /// The parts of the law that are disabled.
    without: u32,
    rtt_s: f64,
    flows: f64,
    load: f64,
    intervals: Vec<Interval>,
}

fn trace() -> impl Strategy<Value = Trace> {
    (
        log_uniform(1e3, 125e9),
        log_uniform(50e3, 10e6),
        prop_oneof![Just(0), Just(u32::MAX)],
        0..=PUBLISHED,
        log_uniform(10e-6, 15.0),
        log_uniform(1.0, 1e6),
        log_uniform(0.01, 3.0),
        prop::collection::vec(interval(), 2..8),
    )
        .prop_map(
            |(capacity, min_interval, max_rtt, without, rtt_s, flows, load, intervals)| Trace {
                capacity_Bps: capacity as u64,
                min_interval_ns: min_interval as u64,
                max_rtt,
                without,
                rtt_s,
                flows,
                load,
                intervals,
            },
        )
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
        // all packets together never give back more than the capacity
        let share_Bps = self.capacity_Bps as f64 / 60.0 / f64::from(p.n);
        Units {
            n: p.n,
            size_B: p.size_B as u64,
            rtt: match p.kind {
                0 => ticks((self.rtt_s * p.rtt).clamp(10e-6, 15.0)),
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
    rtt_s: f64,
    /// Sum of X of the interval that the pools were computed from, s.
    sum_x_s: f64,
    /// The sum of both pools at the end of that interval.
    pools_Bps: f64,
    /// Bytes that have arrived since the interval's start.
    bytes: u64,
    /// Whether anything was given back to the pool of increases since then.
    grew: bool,
    /// Whether core/ and the model may differ from here to the interval's end.
    unclear: bool,
    /// The difference that rounding can make once the carry is full.
    rounded_Bps: f64,
    most_n: f64,
}

/// The smallest window: one packet, or one packet per 125 ms if that is less.
fn least_window(wire_B: u32, rtt: u64) -> u64 {
    let wire_B = u64::from(wire_B);
    if rtt == 0 {
        return wire_B;
    }
    (wire_B * rtt / (1 << 25)).min(wire_B).max(1)
}

fn near(what: &str, got: f64, want: f64, tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:e}, not {want:e} within {tolerance:e}"
    );
    Ok(())
}

impl Pair {
    fn new(trace: &Trace) -> Self {
        let params = xcp_router_params {
            capacity_Bps: trace.capacity_Bps,
            min_interval_ns: trace.min_interval_ns,
            without: trace.without,
            max_rtt: trace.max_rtt,
            ..xcp_router_params::default()
        };
        let in_f64 = model::Params {
            min_interval_s: trace.min_interval_ns as f64 / 1e9,
            max_rtt_s: match trace.max_rtt {
                0 => 1.0,
                max => f64::from(max) / TICK,
            },
            ..model::Params::without(trace.capacity_Bps as f64, trace.without)
        };
        Pair {
            core: Router::new(params, 0),
            model: Model::new(in_f64, 0.0),
            now_ns: 0,
            rtt_s: trace.rtt_s,
            sum_x_s: 0.0,
            pools_Bps: 0.0,
            bytes: 0,
            grew: false,
            unclear: false,
            rounded_Bps: 0.0,
            most_n: 0.0,
        }
    }

    fn arrive(&mut self, p: &Drawn, u: &Units) {
        self.arrive_bytes(u.size_B * u64::from(u.n));
        if p.kind == 0 {
            self.core.arrival_xcp(u.n, u.size_B, u.x, u.rtt);
            self.model.arrival_xcp(&to_model_packet(u));
        }
        // core/ gives a packet whose X is the whole previous interval everything in the
        // pool, the model at most what the pool held at first
        let (x_s, _) = self.model.believed(&to_model_packet(u));
        let whole = x_s >= self.sum_x_s * (1.0 - 1e-9);
        self.unclear |= p.kind == 0 && self.grew && whole;
    }

    fn arrive_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.core.arrival(bytes);
        self.model.arrival(bytes as f64);
    }

    /// Returns both grants for all wire packets, B/s. What core/ carries over counts as granted.
    fn depart(&mut self, u: &Units) -> Result<(f64, f64), TestCaseError> {
        let before = *self.core.pool();
        let (pos_Bps, cp) = (self.model.pos_Bps, self.model.cp);
        let got = self.core.departure(u.n, u.size_B, u.x, u.rtt, u.delta);
        let spare_Bps = self.model.spare_Bps;
        let want = self.model.departure(&to_model_packet(u)).delta_Bps;
        let spared = self.model.spare_Bps - spare_Bps;
        // rounding remainders, each below n, take up space in core/'s carry
        self.most_n = self.most_n.max(f64::from(u.n));
        let full_Bps = self.model.carry_max_Bps;
        if full_Bps > 0.0 && self.model.spare_Bps >= full_Bps - self.most_n {
            self.rounded_Bps += self.most_n;
        }
        let after = self.core.pool();
        prop_assert!(got <= u.delta, "granted {got} for a request of {}", u.delta);
        let n = f64::from(u.n);
        // an empty pool stays empty, and rounding decides whether it is empty
        let empty = before.pos == 0 && cp == 0.0;
        if !empty && (after.pos > before.pos || self.model.pos_Bps > pos_Bps) {
            self.grew = true;
            self.unclear |=
                pos_Bps.min(pool_Bps(before.pos, before.shift)) <= 1e-5 * self.pools_Bps;
        }
        let carried = pool_Bps(after.carry, after.shift) - pool_Bps(before.carry, before.shift);
        if want < f64::from(i32::MIN) {
            prop_assert_eq!(got, i32::MIN);
            return Ok((want * n, want * n));
        }
        Ok((f64::from(got) * n + carried, want * n + spared))
    }

    /// Ends the interval. Returns true if the next interval has new pools.
    fn end(&mut self, interval: &Interval) -> Result<bool, TestCaseError> {
        let capacity = self.model.params.capacity_Bps;
        let (start_ns, due_ns) = (self.now_ns, self.core.interval_ns());
        let mut elapsed_ns = due_ns as f64 * interval.length;
        if let Some(load) = interval.load {
            let full_B = (capacity * load * elapsed_ns / 1e9) as u64;
            if self.bytes < full_B {
                self.arrive_bytes(full_B - self.bytes);
            } else {
                elapsed_ns = elapsed_ns.max(self.bytes as f64 / (capacity * load) * 1e9);
            }
        }
        self.bytes = 0;
        self.now_ns += elapsed_ns as u64;
        prop_assert!(!self.core.interval_due(start_ns + due_ns - 1));
        prop_assert!(!self.core.interval_due(start_ns.saturating_sub(1)));
        prop_assert!(self.core.interval_due(self.now_ns));

        // Q / d stays below 2^43 B/s, where core/ saturates; the kernel stores the backlog in
        // 32 bits
        let backlog_B = (capacity * self.rtt_s * interval.backlog) as u64;
        let backlog_B = backlog_B.min(u64::from(u32::MAX));
        self.core.backlog(backlog_B);
        self.core.queue_end(backlog_B, self.now_ns);
        self.model.backlog(backlog_B as f64);
        self.model.queue_end(backlog_B as f64);
        let tq_ns = self.core.tq_ns();
        let tolerance = 1e-5 * self.model.tq_s + 2e-9;
        near("Tq", tq_ns as f64 / 1e9, self.model.tq_s, tolerance)?;
        prop_assert!(!self.core.queue_due(self.now_ns + tq_ns - 1));
        prop_assert!(self.core.queue_due(self.now_ns + tq_ns));

        let sum_x_s = self.model.sum_x;
        let carry_Bps = pool_Bps(self.core.pool().carry, self.core.pool().shift);
        self.model.granted_Bps = self.core.granted_Bps() as f64;
        let renewed = self.core.interval_end(self.now_ns);
        self.model.params.gamma = self.core.gamma();
        prop_assert_eq!(renewed, self.model.interval_end(self.now_ns as f64 / 1e9));
        let m = &self.model;
        let unit_Bps = self.core.unit_Bps();
        // unclaimed grants are counted again; rounding errors are not
        let kept_Bps = if renewed {
            carry_Bps.fract()
        } else {
            carry_Bps
        };
        near(
            "carry",
            pool_Bps(self.core.pool().carry, self.core.pool().shift),
            kept_Bps,
            unit_Bps,
        )?;
        near("d", self.core.d_s(), m.d_s, 1e-5 * m.d_s)?;
        near("y", self.core.y_Bps() as f64, m.y_Bps, 1e-5 * m.y_Bps + 1.0)?;
        if renewed {
            let pools = m.pos_Bps + m.neg_Bps;
            near("pos", self.core.pos_Bps(), m.pos_Bps, 1e-5 * pools)?;
            near("neg", self.core.neg_Bps(), m.neg_Bps, 1e-5 * pools)?;
            near("F", self.core.f_Bps() as f64, m.f_Bps, 1e-5 * pools + 1.0)?;
            (self.sum_x_s, self.pools_Bps) = (sum_x_s, pools);
            // rounding decides the sign of F
            let even = m.f_Bps.abs() <= 1e-5 * m.y_Bps.max(capacity);
            (self.grew, self.unclear, self.rounded_Bps) = (false, even, 0.0);
        }
        Ok(renewed)
    }
}

fn to_model_packet(u: &Units) -> model::Packet {
    model::Packet {
        n: f64::from(u.n),
        size_B: u.size_B as f64,
        x_s: u.x as f64 / TICK,
        rtt_s: u.rtt as f64 / TICK,
        delta_Bps: f64::from(u.delta),
    }
}

/// core/ grants the same total as the model in every interval. The two may differ where
/// packets give back more than the pool of decreases holds: rounding decides whether a nearly
/// empty pool counts as empty, and an empty pool is not refilled. Such intervals are rare and
/// are skipped.
#[test]
fn aggregate_feedback_equals_that_of_the_model() {
    const TRACES: u32 = 3000;
    let [compared, shuffled, shrunk, unclear] = [(); 4].map(|()| Cell::new(0));
    let count = |c: &Cell<u32>| c.set(c.get() + 1);
    let result = TestRunner::new(cases(TRACES)).run(&trace(), |trace| {
        let mut pair = Pair::new(&trace);
        for interval in &trace.intervals {
            let (mut got, mut want) = (0.0, 0.0);
            for p in &interval.packets {
                let u = trace.units(p);
                pair.arrive(p, &u);
                if p.kind != 2 {
                    let (g, w) = pair.depart(&u)?;
                    got += g;
                    want += w;
                }
            }
            if pair.unclear {
                count(&unclear);
            } else {
                let tolerance = 1e-5 * pair.pools_Bps + pair.rounded_Bps;
                near("feedback", got, want, tolerance)?;
                if pair.pools_Bps > 0.0 {
                    count(&compared);
                }
            }
            if pair.end(interval)? {
                if pair.model.pos_Bps > 0.0 && pair.model.neg_Bps > 0.0 {
                    count(&shuffled);
                }
                if pair.model.f_Bps < 0.0 {
                    count(&shrunk);
                }
            }
        }
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    // fail if too few intervals were compared
    for (what, c, least) in [
        ("compared", &compared, 2 * TRACES),
        ("shuffled", &shuffled, TRACES / 4),
        ("shrunk", &shrunk, TRACES),
    ] {
        assert!(c.get() >= least, "{what}: {} of {least}", c.get());
    }
    assert!(10 * unclear.get() <= compared.get(), "{}", unclear.get());
}

proptest! {
    #![proptest_config(cases(1500))]

    /// Increases never exceed the pool plus what is given back to it, whatever is
    /// requested; rounding adds less than 1 B/s for each wire packet.
    #[test]
    fn increases_come_from_the_pool(trace in trace()) {
        let mut pair = Pair::new(&trace);
        for interval in &trace.intervals {
            let start = *pair.core.pool();
            let mut up_Bps = 0.0;
            let mut most_Bps = pool_Bps(start.pos, start.shift) + pool_Bps(start.carry, start.shift);
            for p in &interval.packets {
                let u = trace.units(p);
                pair.arrive(p, &u);
                if p.kind == 0 {
                    let before = *pair.core.pool();
                    let got = pair.core.departure(u.n, u.size_B, u.x, u.rtt, u.delta);
                    let after = pair.core.pool();
                    balance(&before, after, u.n, got)?;
                    let gained_Bps = pool_Bps(after.pos, after.shift) - pool_Bps(before.pos, before.shift);
                    let passed_Bps = pool_Bps(after.carry, after.shift) - pool_Bps(before.carry, before.shift);
                    most_Bps += gained_Bps.max(0.0).max(gained_Bps + passed_Bps);
                    if got > 0 {
                        up_Bps += f64::from(got) * f64::from(u.n);
                    } else {
                        most_Bps += f64::from(u.n);
                    }
                }
            }
            prop_assert!(up_Bps <= most_Bps * (1.0 + 1e-9), "{up_Bps} of {most_Bps}");
            pair.end(interval)?;
        }
    }

    /// Tries any inputs, including the extremes of every type, in any order.
    #[test]
    fn router_keeps_its_invariants_for_any_input(
        capacity_Bps in extreme_u64(),
        min_interval_ns in extreme_u64(),
        steps in prop::collection::vec((any::<u8>(), extreme_u64(), extreme_u64(), extreme_u64(), any::<i32>()), 1..60),
    ) {
        let params = xcp_router_params {
            capacity_Bps: capacity_Bps.clamp(1_000, 125_000_000_000),
            min_interval_ns: min_interval_ns.clamp(50_000, 1_000_000_000),
            ..xcp_router_params::default()
        };
        let mut router = Router::new(params, 0);
        let (mut now_ns, mut least_B) = (0u64, 0u64);
        for (what, a, b, c, delta) in steps {
            let n = (c as u32 & 0xffff).max(1);
            match what % 5 {
                0 => router.arrival(a & 0xffff_ffff),
                1 => router.arrival_xcp(n, (c >> 48).max(40), (a >> 30).max(1), (b >> 30).max(1)),
                2 => {
                    let before = *router.pool();
                    let got = router.departure(n, (a & 0xffff).max(40), b >> 30, c >> 30, delta);
                    prop_assert!(got <= delta);
                    balance(&before, router.pool(), n, got)?;
                }
                3 => {
                    router.backlog(a);
                    router.queue_end(b, now_ns);
                    prop_assert_eq!(router.queue_B(), least_B.min(a).min(b));
                    least_B = b;
                    let drain_s = b.min(1 << 34) as f64 / params.capacity_Bps as f64;
                    let tq_s = ((router.d_s() - drain_s) / 2.0).max(0.002);
                    near("Tq", router.tq_ns() as f64 / 1e9, tq_s, 1e-5 * tq_s)?;
                }
                _ => {
                    now_ns = now_ns.saturating_add(a >> 16);
                    router.check_rtts(now_ns);
                    router.interval_end(now_ns);
                    prop_assert!(router.interval_ns() >= params.min_interval_ns.min(INITIAL_NS));
                    prop_assert!(router.interval_ns() <= 64_000_000_000);
                }
            }
        }
    }
}

/// Checks that a packet takes exactly its grant out of the pools, and that the pools stay
/// within their number of bits. Only a decrease may cost more, if no pool can take it; and
/// what 32 bits cannot hold is lost.
fn balance(
    before: &xcp_router_pool,
    after: &xcp_router_pool,
    n: u32,
    got: i32,
) -> Result<(), TestCaseError> {
    let less = |a: u64, b: u64| i128::from(a) - i128::from(b);
    let written = (i128::from(got) * i128::from(n)) << after.shift;
    let granted = written - less(before.carry, after.carry);
    let spent = less(before.pos, after.pos) - less(before.neg, after.neg);
    prop_assert!(
        granted == spent || granted < spent && got < 0 || got == i32::MIN,
        "{granted} of {spent}: {before:?} {after:?}"
    );
    prop_assert!(after.neg <= before.neg && before.neg < 1 << 44 && after.pos < 1 << 44);
    // a fraction of a B/s that could not be written, the remainder of the division by n,
    // and what other packets did not request
    let unwanted = (1 << 44) / 16;
    let unwritten = u64::from(n) << after.shift;
    let most = before.carry.max(unwritten).max(unwanted) + u64::from(n);
    prop_assert!(after.carry <= most, "{before:?} {after:?}");
    Ok(())
}

fn router_10_mbit(min_interval_ns: u64) -> Router {
    let params = xcp_router_params {
        capacity_Bps: 1_250_000,
        min_interval_ns,
        ..xcp_router_params::default()
    };
    Router::new(params, 0)
}

/// Checks the RTTs at a time; returns whether the interval ends then.
fn ends_at(router: &mut Router, at_ms: u64) -> bool {
    let now_ns = at_ms * 1_000_000;
    router.check_rtts(now_ns);
    router.interval_due(now_ns)
}

/// Packets that waited in a queue, and so report a long RTT, do not hide a short path.
#[test]
fn an_interval_of_more_than_two_rtts_ends_early() {
    let ms = 1_000_000;
    let rtt = |ms: f64| (ms / 1e3 * TICK) as u64;
    // the first interval, 200 ms, on a path of 4 ms
    let mut router = router_10_mbit(ms);
    assert!(!ends_at(&mut router, 30), "no RTT is known");
    router.arrival_xcp(1, 1_500, rtt(1.0), rtt(4.0));
    assert!(!ends_at(&mut router, 31), "checked 1 ms ago");
    assert!(ends_at(&mut router, 60));
    assert!(router.interval_end(60 * ms));
    assert!((3_990_000..4_010_000).contains(&router.interval_ns()));
    // an interval of 100 ms, after the flows of that path have ended
    router.arrival_xcp(1, 1_500, rtt(1.0), rtt(100.0));
    assert!(router.interval_end(70 * ms));
    let ends = |router: &mut Router, times_ms: Range<u64>, rtt_ms: f64| {
        times_ms.into_iter().find(|at| {
            router.arrival_xcp(1, 1_500, rtt(1.0), rtt(rtt_ms));
            ends_at(router, *at)
        })
    };
    assert_eq!(
        ends(&mut router, 70..170, 51.0),
        None,
        "less than 2 times 51 ms"
    );
    router.arrival_xcp(1, 1_500, rtt(500.0), rtt(1000.0));
    assert!(router.interval_end(170 * ms));
    assert!(router.interval_ns() > 500 * ms, "packets had waited");
    router.arrival_xcp(1, 1_500, rtt(900.0), rtt(1000.0));
    let end_ms = ends(&mut router, 170..1170, 50.0).expect("it is too long");
    assert!((270..520).contains(&end_ms), "{end_ms}");
    assert!(router.interval_end(end_ms * ms));
    assert!((49 * ms..51 * ms).contains(&router.interval_ns()));
}

/// Also on a short path, an interval lasts as long as the configured minimum.
#[test]
fn an_interval_that_ends_early_has_the_least_length() {
    let ms = 1_000_000;
    let ticks = |ms: f64| (ms / 1e3 * TICK) as u64;
    let mut router = router_10_mbit(40 * ms);
    let end_ms = (0..200).find(|at| {
        router.arrival_xcp(1, 1_500, ticks(1.0), ticks(4.0));
        ends_at(&mut router, *at)
    });
    let end_ms = end_ms.expect("the first interval, 200 ms, is too long");
    assert!((40..80).contains(&end_ms), "{end_ms}");
    assert!(router.interval_ns() >= 40 * ms);
}

/// The packets of an RTT get all that is handed out when a stopped link has returned, although
/// those before them had waited and their X was many times as long.
#[test]
fn path_that_has_become_short_gets_the_whole_pool() {
    let ms = 1_000_000;
    let ticks = |ms: f64| (ms / 1e3 * TICK) as u64;
    let mut router = router_10_mbit(ms);
    let arrive = |router: &mut Router, x_ms: f64, rtt_ms: f64| {
        router.arrival(1_500);
        router.arrival_xcp(1, 1_500, ticks(x_ms), ticks(rtt_ms));
    };
    arrive(&mut router, 500.0, 1000.0);
    assert!(router.interval_end(200 * ms));
    arrive(&mut router, 500.0, 1000.0);
    let end_ms = (200..1200).step_by(20).find(|at| {
        arrive(&mut router, 20.0, 100.0);
        ends_at(&mut router, *at)
    });
    assert!(router.interval_end(end_ms.expect("it is too long") * ms));
    let pool_Bps = router.pos_Bps();
    let granted: i32 = (0..5)
        .map(|_| router.departure(1, 1_500, ticks(20.0), ticks(100.0), i32::MAX))
        .sum();
    assert!(
        f64::from(granted) > 0.9 * pool_Bps,
        "{granted} of {pool_Bps}"
    );
}

/// A packet whose X is at least the whole interval takes exactly the whole pool.
#[test]
fn a_packet_with_x_above_the_interval_takes_the_whole_pool() {
    let params = xcp_router_params {
        capacity_Bps: 1_000_000_000,
        min_interval_ns: 1_000_000,
        ..xcp_router_params::default()
    };
    let mut router = Router::new(params, 0);
    router.arrival(1500);
    router.arrival_xcp(1, 1500, 1000, 1 << 20);
    assert!(router.interval_end(INITIAL_NS));
    let pool = router.pos_Bps().floor();
    assert!(pool > 0.0);
    for x in (0..=24).flat_map(|b| [1000 << b, (1000 << b) + 377]) {
        let got = router.clone().departure(1, 1500, x, 1 << 20, i32::MAX);
        assert_eq!(f64::from(got), pool, "X {x}");
    }
}

/// A queue or a load beyond the range of the router's integers counts as the largest
/// value in that range.
#[test]
fn out_of_range_queue_and_load_saturate() {
    let most_Bps = ((1u64 << 43) - 1) as f64;
    for (without, alpha, beta) in [(PUBLISHED, 0.4, 0.226), (0, 0.6, 0.4)] {
        let params = xcp_router_params {
            capacity_Bps: 1_000,
            min_interval_ns: 50_000,
            without,
            ..xcp_router_params::default()
        };
        for b in 44..64 {
            let mut router = Router::new(params, 0);
            router.set_queue((1 << b) + 12_345);
            router.arrival(40);
            router.arrival_xcp(1, 1500, 1, 1);
            assert!(router.interval_end(INITIAL_NS));
            let cut = router.neg_Bps() / (beta * most_Bps);
            assert!((cut - 1.0).abs() < 1e-5, "queue: {cut}");

            let mut router = Router::new(params, 0);
            router.arrival((1 << b) + 12_345);
            router.arrival_xcp(1, 1500, 1, 1);
            assert!(router.interval_end(1));
            let cut = router.neg_Bps() / (alpha * most_Bps);
            assert!((cut - 1.0).abs() < 1e-5, "load: {cut}");
            assert_eq!(router.y_Bps() as f64, most_Bps);
        }
    }
}

pub fn extreme_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (0..64u32).prop_map(|b| 1 << b)
    ]
}

proptest! {
    #![proptest_config(cases(2000))]

    /// The parts of all CPUs add up to the pool, and no part exceeds it.
    #[test]
    fn parts_of_a_split_pool_add_up_to_it(
        pool in 0..(1u64 << 44),
        parts in prop::collection::vec(0..(1u64 << 40), 1..64),
    ) {
        let total: u64 = parts.iter().sum();
        prop_assume!(total > 0);
        let sum: u64 = parts.iter().map(|p| xcp_router_split(pool, *p, total)).sum();
        prop_assert_eq!(xcp_router_split(pool, total, total), pool);
        let lost = pool.abs_diff(sum) as f64;
        prop_assert!(lost <= pool as f64 * 1e-8 + parts.len() as f64, "{sum} of {pool}");
    }

    /// Feedback returned plus feedback pending equals feedback received, and everything
    /// that fits is returned.
    #[test]
    fn receiver_returns_all_feedback(
        steps in prop::collection::vec((any::<i32>(), 1..=65_535u32, 0..=3u8, 1..=64u32), 1..100),
    ) {
        let mut receiver = xcp_receiver::default();
        let (mut came, mut went) = (0i64, 0i64);
        for (delta, n, takes, copies) in steps {
            xcp_receiver_add(&mut receiver, delta, n);
            came += i64::from(delta) * i64::from(n);
            for _ in 0..takes {
                let feedback = xcp_receiver_take(&mut receiver, copies);
                went += i64::from(feedback) * i64::from(copies);
                prop_assert!(
                    feedback.abs() == i32::MAX
                        || receiver.pending.abs() < i64::from(copies)
                );
            }
            prop_assert_eq!(came, went + receiver.pending);
        }
    }

    /// ACKs that carry a running total may be lost, duplicated or delayed: once the last one
    /// has arrived, the sender has everything that the receiver returned.
    #[test]
    fn running_total_survives_lost_duplicate_and_late_acks(
        steps in prop::collection::vec((-1_000_000_000..1_000_000_000i32, 0..=3u8), 1..100),
        total in any::<u32>(),
    ) {
        let mut receiver = xcp_receiver { total, ..xcp_receiver::default() };
        let (mut seen, mut came, mut went, mut applied) = (total, 0i64, 0i64, 0i64);
        let mut late = total;
        for (delta, fate) in steps {
            xcp_receiver_add(&mut receiver, delta, 1);
            came += i64::from(delta);
            went += xcp_receiver_total(&mut receiver);
            prop_assert_eq!(came, went + receiver.pending);
            prop_assert!((0..8).contains(&receiver.pending));
            for _ in 0..fate.min(2) {
                applied += xcp_total_change(&mut seen, receiver.total as i32);
            }
            if fate == 3 {
                // an earlier ACK arrives late
                applied += xcp_total_change(&mut seen, late as i32);
            }
            late = receiver.total;
        }
        applied += xcp_total_change(&mut seen, receiver.total as i32);
        // modulo the range of the field
        prop_assert_eq!((applied - went) % (8 << 32), 0);
        if went.abs() < 1 << 33 {
            prop_assert_eq!(applied, went);
        }
    }

    /// The window changes by feedback * RTT and keeps the fraction, as long as neither one
    /// packet nor the largest window limits it.
    #[test]
    fn window_is_the_sum_of_all_feedback(
        wire_B in 40..=65_535u32,
        rtt in log_uniform(10e-6, 60.0),
        feedback in prop::collection::vec((any::<i32>(), 0..31u32), 1..200),
    ) {
        let rtt = (rtt * TICK) as u64;
        let start = XCP_CWND_MAX_B / 2;
        let mut sender = new_sender(wire_B, 1, u64::MAX >> 8, rtt);
        sender.cwnd_B = start;
        let mut sum = 0i128;
        for (fb, smaller) in feedback {
            let fb = fb >> smaller;
            xcp_sender_feedback(&mut sender, i64::from(fb));
            sum += i128::from(fb) * i128::from(rtt);
            let moved = (i128::from(sender.cwnd_B) - i128::from(start)) * (1 << 28)
                + i128::from(sender.cwnd_frac);
            prop_assert_eq!(moved, sum);
        }
    }

    /// An unused window shrinks to its recent use, or to the initial window; a used window
    /// shrinks to its limit.
    #[test]
    fn unused_window_shrinks(
        wire_B in 40..=65_535u32,
        packets in 1..=(1u64 << 29),
        limit_B in 0..=(1u64 << 46),
        used_B in prop::collection::vec(0..=(1u64 << 45), 1..8),
    ) {
        let mut sender = new_sender(wire_B, packets, u64::MAX >> 18, 1 << 28);
        sender.limit_B = limit_B;
        let mut used = 0.0f64;
        let mut cwnd = sender.cwnd_B as f64;
        for (round, now_B) in used_B.into_iter().enumerate() {
            let starved = round % 3 != 1;
            used = (now_B as f64).max(used * 0.75);
            let may = used.max(10.0 * f64::from(wire_B));
            cwnd = cwnd.min(if starved { may } else { may.max(limit_B as f64) });
            xcp_sender_age(&mut sender, now_B, starved);
            let error = (sender.cwnd_B as f64 - cwnd).abs();
            prop_assert!(error <= 8.0 + cwnd * 1e-12, "{} {cwnd}", sender.cwnd_B);
        }
        sender.cwnd_frac = 1;
        xcp_sender_reset(&mut sender, 3);
        prop_assert_eq!(xcp_sender_packets(&sender), 3);
        prop_assert_eq!((sender.cwnd_B, sender.cwnd_frac), (3 * u64::from(wire_B), 0));
    }

    /// After a pause the window is halved for each timeout that fits into the pause, down to
    /// the initial window, and is never raised.
    #[test]
    fn window_after_a_pause_is_halved_for_each_timeout(
        wire_B in 40..=65_535u32,
        packets in 1..=(1u64 << 29),
        timeouts in 0..70u32,
        idle_us in any::<u64>(),
    ) {
        let rtt_us = 100_000;
        let mut sender = new_sender(wire_B, packets, u64::MAX >> 18, xcp_ns_to_ticks(rtt_us * 1000));
        let before = sender.cwnd_B;
        let least = before.min(10 * u64::from(wire_B));
        let mut other = sender;
        xcp_sender_restart(&mut sender, u64::from(timeouts) * (rtt_us + 200_000) + rtt_us);
        prop_assert_eq!(sender.cwnd_B, (before.checked_shr(timeouts).unwrap_or(0)).max(least));
        xcp_sender_restart(&mut other, idle_us);
        prop_assert!((least..=before).contains(&other.cwnd_B));
    }

    /// Any feedback, of 44 bits or saturated to that, leaves a window between the minimum
    /// (one packet, or one packet per 125 ms) and the maximum. It at most halves or doubles
    /// a window below one packet. The pacing rate is the window / RTT, at least a packet per
    /// 125 ms. X is computed from the window that can really be sent, and never exceeds the
    /// RTT in the header. The request is the distance to the limit, spread over the packets
    /// of an RTT.
    #[test]
    fn sender_window_stays_within_its_bounds(
        wire_B in 40..=65_535u32,
        packets in 0..=(1u64 << 40),
        limit_B in extreme_u64(),
        rtt in prop_oneof![Just(0u64), Just(1), 2_684u64..(60 << 28)],
        feedback in prop::collection::vec((any::<i64>(), 0..63u32), 1..20),
    ) {
        let limit_B = limit_B & ((1 << 46) - 1);
        let mut sender = new_sender(wire_B, packets.min((1 << 45) / u64::from(wire_B)), limit_B, rtt);
        for (fb, smaller) in feedback {
            let fb = fb >> smaller;
            let exact = |s: &xcp_sender| (i128::from(s.cwnd_B) << 28) + i128::from(s.cwnd_frac);
            let moved = i128::from(fb.clamp(1 - (1 << 44), (1 << 44) - 1)) * i128::from(rtt);
            let mut want = exact(&sender) + moved;
            if sender.cwnd_B < u64::from(wire_B) {
                let whole = i128::from(sender.cwnd_B) << 28;
                want = want.clamp(exact(&sender) - whole / 2 - (1 << 28), exact(&sender) + whole + (1 << 28));
            }
            let least_B = least_window(wire_B, rtt);
            want = want.max(i128::from(least_B) << 28);
            xcp_sender_feedback(&mut sender, fb);
            if want >> 28 >= i128::from(XCP_CWND_MAX_B) {
                prop_assert_eq!(sender.cwnd_B, XCP_CWND_MAX_B);
            } else if sender.cwnd_B >= 2 * u64::from(wire_B) {
                prop_assert_eq!(exact(&sender), want);
            } else {
                near("window", exact(&sender) as f64, want as f64, f64::from(2u32 << 28))?;
            }
            xcp_sender_update(&mut sender);
            prop_assert_eq!(xcp_sender_packets(&sender), sender.cwnd_B.div_ceil(u64::from(wire_B)));
            if rtt > 0 {
                let pace = sender.cwnd_B as f64 / (rtt as f64 / TICK);
                // no packet is delayed for longer than 125 ms
                let pace = pace.max(8.0 * f64::from(wire_B)).min(XCP_CWND_MAX_B as f64);
                near("pacing", sender.pacing_Bps as f64, pace, pace * 1e-6 + 1.0)?;
                let window_B = sender.cwnd_B.min(limit_B).max(least_B);
                let x = rtt * u64::from(wire_B) / window_B;
                let next = xcp_sender_next_x(&mut sender);
                prop_assert!(next >= 1 && (x..=x + 1).contains(&next), "X {next}, not {x}");
                let spare_Bps = limit_B.saturating_sub(window_B) as f64 / (rtt as f64 / TICK);
                prop_assert!(next <= xcp_sender_header_rtt(&sender), "X {next}, RTT {}", xcp_sender_header_rtt(&sender));
                let part = (f64::from(wire_B) / window_B as f64).min(1.0);
                let request = (spare_Bps * part).min(f64::from(i32::MAX));
                near("request", f64::from(sender.request_Bps), request, request * 1e-6 + 1.0)?;
                sender.ends = 1;
                xcp_sender_update(&mut sender);
                let last_B = window_B.min(u64::from(wire_B));
                let back = (last_B as f64 / (rtt as f64 / TICK)).min(f64::from(i32::MAX));
                near("given back", -f64::from(sender.request_Bps), back, back * 1e-6 + 1.0)?;
                sender.ends = 0;
            } else {
                prop_assert_eq!((sender.request_Bps, xcp_sender_next_x(&mut sender)), (0, 0));
            }
        }
    }

    /// An RTT below 3.9 ms counts as 3.9 ms. The ACK of a packet that was alone in flight
    /// may have been delayed, so it does not raise the RTT while the window is below one
    /// packet.
    #[test]
    fn rtt_of_a_short_path_ignores_jitter_and_delayed_acks(
        short in log_uniform(1e-6, 3.9e-3),
        late in log_uniform(5e-3, 0.2),
        (packets, alone) in (0..3u64, any::<bool>()),
    ) {
        let least = u64::from(XCP_RTT_MIN);
        let mut sender = new_sender(1_500, packets, u64::MAX >> 18, 0);
        xcp_sender_rtt(&mut sender, (short * TICK) as u64, false);
        prop_assert_eq!((sender.rtt, sender.rtt_base), (least, least));
        if packets == 0 {
            sender.cwnd_B = 100;
        }
        xcp_sender_update(&mut sender);
        xcp_sender_rtt(&mut sender, (late * TICK) as u64, alone);
        let lifted = packets > 0 || !alone;
        prop_assert_eq!(sender.rtt > least, lifted, "{} from {}", sender.rtt, least);
    }

    /// The X of all packets of a window add up to the RTT, also after the window has shrunk.
    #[test]
    fn x_of_a_window_adds_up_to_the_rtt(
        wire_B in 40..=9_000u32,
        packets in 1..2_000u64,
        (first, shrunk) in (0..2_000u64, 1..2_000u64),
        rtt in log_uniform(100e-6, 15.0),
    ) {
        let rtt = (rtt * TICK) as u64;
        prop_assume!(rtt > 2 * packets);
        let mut sender = new_sender(wire_B, packets, u64::MAX >> 18, rtt);
        let sum: u64 = (0..packets).map(|_| xcp_sender_next_x(&mut sender)).sum();
        prop_assert!(sum.abs_diff(rtt) <= 1, "{} of {}", sum, rtt);
        for _ in 0..first {
            xcp_sender_next_x(&mut sender);
        }
        let shrunk = shrunk.min(packets);
        xcp_sender_reset(&mut sender, shrunk);
        xcp_sender_update(&mut sender);
        let sum: u64 = (0..shrunk).map(|_| xcp_sender_next_x(&mut sender)).sum();
        prop_assert!(sum.abs_diff(rtt) <= 1, "{} of {}, {} packets", sum, rtt, shrunk);
    }

    /// Conversions of up to 64 s round down to whole units.
    #[test]
    fn time_conversions_round_down(v in extreme_u64(), smaller in 0..64u32) {
        let v = v >> smaller;
        let ns = u128::from(v.min(63_999_999_999));
        prop_assert_eq!(u128::from(xcp_ns_to_ticks(v)), (ns << 28) / 1_000_000_000);
        let ticks = u128::from(v.min((1 << 34) - 1));
        prop_assert_eq!(u128::from(xcp_ticks_to_ns(v)), (ticks * 1_000_000_000) >> 28);
        prop_assert_eq!(xcp_bits(v), u64::BITS - v.leading_zeros());
    }

    /// Built options are found at any position and parsed to the same values.
    #[test]
    fn options_round_trip(
        f in forward(),
        feedback in any::<i32>(),
        (xcp_hops, other_hops) in any::<(u8, u8)>(),
        fixed in any::<[u8; 20]>(),
        before in prop::collection::vec(other_option(), 0..4),
        after in prop::collection::vec(other_option(), 0..4),
    ) {
        let r = xcp_return { feedback, xcp_hops, other_hops, version: 1 + other_hops % 2 };
        let both = wire::build_both(&f, &r);
        // 4 bits have room for 15
        let parsed_f = xcp_forward { xcp_hops: f.xcp_hops.min(15), ..f };
        let parsed_r = xcp_return { other_hops: other_hops.min(15), ..r };
        for (kind, option) in [
            (XCP_HANDSHAKE, &wire::handshake()[..]),
            (XCP_RETURN, &wire::build_return(&r)),
            (XCP_FORWARD, &wire::build_forward(&f)),
            (XCP_BOTH, &both),
        ] {
            let mut header = [&fixed[..], &before.concat()].concat();
            let offset = header.len();
            header.extend(option);
            header.extend(after.concat());
            if offset + option.len() > 60 {
                continue;
            }
            header.truncate(60);
            prop_assert_eq!(wire::find(&header, header.len()), (kind, offset));
            let usual = offset == 32 && header[20..24] == [1, 1, 8, 10];
            let quick = wire::at_32(&header);
            if usual && matches!(kind, XCP_FORWARD | XCP_BOTH) {
                prop_assert_eq!(quick, kind);
            } else {
                prop_assert_eq!(quick, XCP_NONE);
            }
            let o = &header[offset..];
            let forward = matches!(kind, XCP_FORWARD | XCP_BOTH).then_some(parsed_f);
            let returned = matches!(kind, XCP_RETURN | XCP_BOTH).then_some(parsed_r);
            if forward.is_some() {
                prop_assert_eq!(wire::parse_forward(o), forward);
            }
            prop_assert_eq!(wire::parse_return(o, kind), returned);
        }
    }

    /// Parsing any bytes stays within their bounds: bytes behind the end make no difference,
    /// and an option that is found lies within the header.
    #[test]
    fn parsing_any_bytes_stays_within_bounds(
        mut bytes in segment(),
        cut in prop_oneof![Just(80), 0..80usize],
        len in header_len(),
    ) {
        let readable = bytes.len().min(cut);
        bytes.resize(160, 0);
        let mut ones = bytes.clone();
        ones[readable..].fill(0xff);
        let found = wire::find(&bytes[..readable], len);
        prop_assert_eq!(found, wire::find(&ones[..readable], len));
        prop_assert_eq!(wire::at_32(&bytes[..readable]), wire::at_32(&ones[..readable]));
        let (kind, offset) = found;
        if !matches!(kind, XCP_NONE | XCP_MALFORMED | XCP_RETURN_2005) {
            prop_assert!(offset >= 20 && offset + wire::option_len(kind) <= len);
            let start = match kind {
                XCP_FORWARD_2005 => [14, 8, bytes[offset + 2], bytes[offset + 3]],
                _ => [254, bytes[offset + 1], 0x58, 0x43],
            };
            prop_assert_eq!(&bytes[offset..offset + 4], &start);
        }
        // wire::at_32 agrees with wire::find, or finds nothing
        if readable >= len && (20..=60).contains(&len) {
            let quick = wire::at_32(&bytes[..len]);
            prop_assert!(quick == XCP_NONE || found == (quick, 32));
        }
    }

    /// A router's edit writes the delta, counts the hop and lowers xcp_ttl towards the TTL.
    /// A correct checksum stays correct, and a wrong one stays wrong.
    #[test]
    fn edit_updates_delta_hops_ttl_and_checksum(
        f in forward(),
        (delta, ip_ttl) in any::<(i32, u8)>(),
        // include small changes, which test the carry in the checksum
        change in prop::option::of(-260..4i32),
        mut bytes in prop::collection::vec(any::<u8>(), 40..80),
        offset in 0..70usize,
    ) {
        let delta = change.map_or(delta, |c| f.delta.wrapping_add(c));
        let option = wire::build_forward(&f);
        let fits = (20..60).contains(&offset) && offset + option.len() <= bytes.len();
        if fits {
            bytes[offset..offset + option.len()].copy_from_slice(&option);
        }
        let before = bytes.clone();
        prop_assert_eq!(wire::edit(&mut bytes, offset, delta, ip_ttl), fits);
        if !fits {
            prop_assert_eq!(bytes, before);
            return Ok(());
        }
        let want = xcp_forward {
            delta,
            xcp_hops: f.xcp_hops.saturating_add(1).min(15),
            xcp_ttl: f.xcp_ttl - u8::from(f.xcp_ttl > ip_ttl),
            ..f
        };
        prop_assert_eq!(wire::parse_forward(&bytes[offset..]), Some(want));
        prop_assert_eq!(ones_sum(&bytes) % 0xffff, ones_sum(&before) % 0xffff);
    }
}

pub fn forward() -> impl Strategy<Value = xcp_forward> {
    any::<(u32, u32, i32, u32, u8, u8)>().prop_map(
        |(rtt, x, delta, last_xcp_router, xcp_ttl, xcp_hops)| xcp_forward {
            rtt,
            x,
            delta,
            last_xcp_router,
            xcp_ttl,
            xcp_hops,
        },
    )
}

/// A TCP option that is not an XCP option.
fn other_option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => Just(vec![1]),
        2 => any::<[u8; 8]>().prop_map(|v| [&[1, 1, 8, 10][..], &v].concat()),
        1 => (prop_oneof![2..14u8, 16..254u8], prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(kind, v)| {
            [&[kind, v.len() as u8 + 2][..], &v].concat()
        }),
        // another TCP option experiment
        1 => Just(vec![254, 4, 0x58, 0x44]),
    ]
}

/// The first bytes of a TCP segment, with well-formed or damaged options.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let experiment = (
        prop_oneof![4 => prop::sample::select(vec![4u8, 10, 22, 28]), 1 => any::<u8>()],
        prop_oneof![4 => 0x10..0x20u8, 1 => any::<u8>()],
        any::<[u8; 23]>(),
    )
        .prop_map(|(length, flags, rest)| {
            let mut option = [&[254, length, 0x58, 0x43, flags][..], &rest].concat();
            option.truncate(usize::from(length).max(5));
            option
        });
    let option = prop_oneof![
        3 => other_option(),
        3 => experiment,
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    let before = prop_oneof![
        Just(vec![]),
        Just(vec![1, 1, 8, 10, 0, 1, 2, 3, 4, 5, 6, 7])
    ];
    (
        any::<[u8; 20]>(),
        before,
        prop::collection::vec(option, 0..5),
    )
        .prop_map(|(fixed, before, options)| [&fixed[..], &before, &options.concat()].concat())
}

fn header_len() -> impl Strategy<Value = usize> {
    prop_oneof![3 => (5..=15usize).prop_map(|words| 4 * words), 1 => 0..70usize]
}

#[test]
fn damaged_options_are_malformed() {
    let of_version = |version: u8, length: u8| {
        let mut option = vec![0; usize::from(length)];
        option[..5].copy_from_slice(&[254, length, 0x58, 0x43, version << 4]);
        option
    };
    for options in [
        vec![2, 0, 1, 1],
        vec![2, 1, 1, 1],
        vec![2, 5, 1, 1],
        vec![1, 1, 1, 2],
        vec![254, 3, 0, 254],
        vec![1, 254, 4, 0x58],
        of_version(1, 11),
        of_version(0, 10),
        of_version(2, 22),
        of_version(15, 28),
    ] {
        let header = [&[0; 20][..], &options].concat();
        let (kind, _) = wire::find(&header, header.len());
        assert_eq!(kind, XCP_MALFORMED, "{options:?}");
    }
}

#[test]
fn other_options_and_bytes_after_the_end_of_options_are_ignored() {
    for options in [
        vec![],
        vec![1, 1, 1, 1],
        // the end of options
        vec![0, 254, 4, 0x58, 0x43, 0, 0, 0],
        vec![1, 0, 2, 0],
        // too short for an experiment identifier: its bytes are the next option
        vec![254, 3, 0x58, 0x43, 2, 1, 1, 1],
    ] {
        let header = [&[0; 20][..], &options].concat();
        let (kind, _) = wire::find(&header, header.len());
        assert_eq!(kind, XCP_NONE, "{options:?}");
    }
}

/// The one's complement sum, which the checksum keeps constant.
pub fn ones_sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|b| u64::from(b[0]) << 8 | u64::from(*b.get(1).unwrap_or(&0)))
        .sum()
}

/// The pacing rate uses the mean of RTT and base RTT; X uses the RTT. The base RTT does not change.
#[test]
fn pacing_follows_a_longer_rtt_by_half() {
    let base = 1 << 27; // 0.5 s in ticks
    let mut sender = new_sender(1_500, 400, 1 << 40, base);
    assert_eq!((sender.x, sender.pacing_Bps), (base / 400, 1_200_000));
    for _ in 0..40 {
        xcp_sender_rtt(&mut sender, 3 * base, false);
    }
    xcp_sender_update(&mut sender);
    assert_eq!((sender.rtt, sender.rtt_base), (3 * base, base));
    assert_eq!((sender.x, sender.pacing_Bps), (3 * base / 400, 600_000));
}

/// At the start of a connection each window is sent in half an RTT.
#[test]
fn a_new_connection_is_paced_twice_as_fast() {
    let mut sender = new_sender(1_500, 400, 1 << 40, 1 << 27);
    for (arrived, pacing_Bps) in [(0, 2_400_000), (199, 2_400_000), (200, 1_200_000)] {
        sender.arrived = arrived;
        xcp_sender_update(&mut sender);
        assert_eq!(sender.pacing_Bps, pacing_Bps);
    }
}
