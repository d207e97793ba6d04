// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of core/xcp_level.h: max-min fairness over several bottlenecks.

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use xcp_core::model::Model;
use xcp_core::*;

use crate::properties::cases;

const TICK: f64 = TICKS_PER_SEC as f64;
const MIN_INTERVAL_NS: u64 = 1_000_000;

/// The flows of an interval, all with packets of one size.
#[derive(Clone, Debug)]
struct Flows {
    size_B: u64,
    n: u32,
    /// Packets per RTT.
    window: u32,
    /// RTT, relative to that of the trace.
    rtt: f64,
    /// The request relative to the flow's rate; None: as much as possible.
    request: Option<f64>,
}

#[derive(Clone, Debug)]
struct Trace {
    capacity_Bps: f64,
    rtt_s: f64,
    /// Backlog at each interval's end, relative to what the link sends in an RTT.
    backlog: f64,
    /// The flows; in each interval all of them send a window.
    flows: Vec<Flows>,
    intervals: usize,
}

fn flows() -> impl Strategy<Value = Flows> {
    (
        prop_oneof![40..=1500u64, Just(1500u64), 1500..=9000u64],
        prop_oneof![4 => Just(1u32), 1 => 2..=40u32],
        1..=100u32,
        0.5..2.0,
        prop::option::weighted(0.4, -0.5..0.5f64),
    )
        .prop_map(|(size_B, n, window, rtt, request)| Flows {
            size_B,
            n,
            window,
            rtt,
            request,
        })
}

fn trace() -> impl Strategy<Value = Trace> {
    (
        prop_oneof![Just(0.3), 0.75..1.25f64],
        0.002..1.0f64,
        prop_oneof![Just(0.0), 0.0..0.5f64],
        prop::collection::vec(flows(), 1..8),
        20..40usize,
    )
        .prop_map(|(load, rtt_s, backlog, flows, intervals)| {
            let sent: f64 = flows
                .iter()
                .map(|f| f.size_B as f64 * f64::from(f.n * f.window))
                .sum();
            Trace {
                capacity_Bps: (sent / rtt_s / load).max(1e4).floor(),
                rtt_s,
                backlog,
                flows,
                intervals,
            }
        })
}

#[track_caller]
fn near(what: &str, got: f64, want: f64, tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:e}, not {want:e} within {tolerance:e}"
    );
    Ok(())
}

struct Seen {
    settled: Cell<u32>,
    far: Cell<u32>,
    less: Cell<u32>,
    cut: Cell<u32>,
    unclear: Cell<u32>,
}

fn count(c: &Cell<u32>) {
    c.set(c.get() + 1);
}

fn compare(trace: &Trace, seen: &Seen) -> Result<(), TestCaseError> {
    let params = xcp_router_params {
        capacity_Bps: trace.capacity_Bps as u64,
        min_interval_ns: MIN_INTERVAL_NS,
        with: XCP_LAW_LEVEL,
        ..xcp_router_params::default()
    };
    let in_f64 = model::Params {
        level: true,
        ..model::Params::without(trace.capacity_Bps, 0)
    };
    let mut core = Router::new(params, 0);
    let mut model = Model::new(in_f64, 0.0);
    let mut now_ns = 0;
    for _ in 0..trace.intervals {
        for f in &trace.flows {
            let rtt = (trace.rtt_s * f.rtt * TICK) as u64;
            let x = (rtt / u64::from(f.window * f.n)).max(1);
            let rate_Bps = f.size_B as f64 * TICK / rtt as f64;
            let delta = match f.request {
                None => i32::MAX,
                Some(part) => (part * rate_Bps) as i32,
            };
            let p = model::Packet {
                n: f.n.into(),
                size_B: f.size_B as f64,
                x_s: x as f64 / TICK,
                rtt_s: rtt as f64 / TICK,
                delta_Bps: delta.into(),
            };
            for _ in 0..f.window {
                core.arrival(f.size_B * u64::from(f.n));
                model.arrival(p.size_B * p.n);
                core.arrival_xcp(f.n, f.size_B, x, rtt);
                model.arrival_xcp(&p);
                let lx = model.level.l_Bps * p.x_s;
                if (p.size_B / (lx * (1.0 - 1.0 / 16.0)) - 1.0).abs() < 1e-4 {
                    // rounding decides whether the packet is far
                    count(&seen.unclear);
                    return Ok(());
                }
                let g = model.level_grant_Bps(&p);
                let got = core.departure(f.n, f.size_B, x, rtt, delta);
                let want = model.departure(&p).delta_Bps;
                prop_assert!(got <= delta);
                if !model.level.settled {
                    continue;
                }
                if (g - p.delta_Bps).abs() < 2.0 + 2e-3 * rate_Bps {
                    // rounding decides whether the packet has less
                    count(&seen.unclear);
                    return Ok(());
                }
                let scale = rate_Bps + g.abs();
                near("delta", got.into(), want, 1.0 + 2e-3 * scale)?;
                count(&seen.settled);
                if model.far(&p) {
                    count(&seen.far);
                } else if p.delta_Bps < g {
                    count(&seen.less);
                }
            }
        }
        now_ns += core.interval_ns();
        let backlog_B = trace.capacity_Bps * trace.rtt_s * trace.backlog;
        core.set_queue(backlog_B as u64);
        model.queue_B = backlog_B.floor();
        model.granted_Bps = core.granted_Bps() as f64;
        prop_assert!(core.interval_end(now_ns));
        model.params.gamma = core.gamma();
        model.changed = core.changed();
        model.interval_end(now_ns as f64 / 1e9);
        let limit = 0.3 * trace.capacity_Bps;
        if (model.f_Bps.abs() / limit - 1.0).abs() < 1e-4 {
            count(&seen.unclear);
            return Ok(());
        }
        prop_assert_eq!(core.settled(), model.level.settled);
        let (l, lg) = (model.level.l_Bps, model.level.lg_Bps);
        near("L", core.level_Bps(), l, 1e-5 * l + 1.0)?;
        // kappa has 16 bits
        let scale = l + lg.abs() + trace.capacity_Bps / model.level.kappa * 1e-3;
        near("Lg", core.level_grant_Bps(), lg, 3e-3 * scale)?;
        if lg < 0.0 {
            count(&seen.cut);
        }
    }
    Ok(())
}

/// While settled, core/ grants each packet what the model grants it; between intervals both
/// have the same level.
#[test]
fn the_level_law_equals_its_model() {
    let seen = Seen {
        settled: Cell::new(0),
        far: Cell::new(0),
        less: Cell::new(0),
        cut: Cell::new(0),
        unclear: Cell::new(0),
    };
    let result = TestRunner::new(cases(1500)).run(&trace(), |trace| compare(&trace, &seen));
    if let Err(e) = result {
        panic!("{e}");
    }
    // fail if too few packets were compared
    for (what, seen, least) in [
        ("settled", &seen.settled, 1_000_000),
        ("far", &seen.far, 100_000),
        ("less", &seen.less, 50_000),
        ("cut", &seen.cut, 100),
    ] {
        assert!(seen.get() >= least, "{what}: {} of {least}", seen.get());
    }
    assert!(seen.unclear.get() < 400, "{}", seen.unclear.get());
}

proptest! {
    #![proptest_config(cases(1500))]

    /// Any headers, clocks and counters: no undefined behaviour, and no packet gets more than
    /// it requests or than what is possible.
    #[test]
    fn any_input_is_safe(
        capacity_Bps in 1_000..125_000_000_000u64,
        without in 0..=PUBLISHED,
        max_rtt in any::<u32>(),
        steps in prop::collection::vec(
            (any::<u8>(), any::<u64>(), 0..64u32, any::<u64>(), 0..64u32, any::<i32>()), 1..200),
    ) {
        let params = xcp_router_params {
            capacity_Bps,
            min_interval_ns: 50_000,
            without,
            max_rtt,
            with: XCP_LAW_LEVEL,
            ..xcp_router_params::default()
        };
        let mut router = Router::new(params, 0);
        let mut now_ns = 0u64;
        for (what, a, a_bits, b, b_bits, delta) in steps {
            let (a, b) = (a >> a_bits, b >> b_bits);
            let n = (b as u32 & 0xffff).max(1);
            let (size_B, x, rtt) = ((a & 0xffff).max(40), a >> 30, b & 0xffff_ffff);
            match what % 8 {
                0 => router.set_queue(a),
                1 => {
                    now_ns = now_ns.saturating_add(a >> 20);
                    router.interval_end(now_ns);
                    prop_assert!(router.level_Bps() >= 0.0);
                    prop_assert!(router.level_Bps() < 1e14);
                    prop_assert!(router.level_grant_Bps().abs() < 3e14);
                }
                _ => {
                    router.arrival(size_B * u64::from(n));
                    if rtt > 0 {
                        router.arrival_xcp(n, size_B, x, rtt);
                    }
                    let got = router.departure(n, size_B, x, rtt, delta);
                    prop_assert!(got <= delta);
                    prop_assert!(rtt > 0 || got == delta.min(0));
                }
            }
        }
    }
}
