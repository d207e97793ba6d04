// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Forged headers in occasional packets of 60 bytes: the other flows are hardly affected.

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use xcp_core::*;

use crate::closed_loop::{run, Forged, Loop, Outcome};

const SECOND: u64 = TICKS_PER_SEC;
/// The largest value of a header field.
const MOST: u64 = u32::MAX as u64;

fn packet(x: u64, rtt: u64, delta: i32) -> xcp_bench_packet {
    xcp_bench_packet {
        size_B: 60,
        x,
        rtt,
        n: 1,
        delta,
        ..xcp_bench_packet::default()
    }
}

/// Runs ten flows over 10 Mb/s and 100 ms together with forged packets. Five flows end after
/// 30 s; the outcome covers the time after that.
fn outcome_with(every_s: f64, packet: xcp_bench_packet) -> Outcome {
    run(&Loop {
        flows: 10,
        configured_Bps: 1_250_000.0,
        measure: false,
        warm_s: 30.0,
        leave: Some((30.0, 5)),
        forged: Some(Forged {
            every_s,
            until_s: f64::INFINITY,
            packet,
        }),
        ..Loop::default()
    })
}

/// If the router trusted them, one such packet per second would raise d to 13 s and leave half
/// of the link unused.
#[test]
fn one_forged_long_rtt_per_second_does_not_slow_the_router() {
    let got = outcome_with(1.0, packet(MOST, MOST, i32::MAX));
    assert!(got.d_s < 0.12, "{got:?}");
    assert!(got.most_flows < 12.0, "{got:?}");
    assert!(got.utilisation > 0.96, "{got:?}");
}

/// Forged packets of 6 KB/s, 1/200 of the link, count as 12 flows, not as 1,600.
#[test]
fn forged_long_rtts_are_weighted_by_their_bytes() {
    let got = outcome_with(0.01, packet(MOST, MOST, i32::MAX));
    assert!(got.d_s < 0.8, "{got:?}");
    assert!(got.most_flows < 23.0, "{got:?}");
    assert!(got.utilisation > 0.75, "{got:?}");
}

/// A sender that claims to give back more than it can have sent does not affect other flows.
#[test]
fn forged_negative_deltas_do_not_affect_other_flows() {
    for rtt in [1, SECOND / 1000, SECOND / 10, SECOND] {
        let got = outcome_with(0.01, packet(1, rtt, i32::MIN));
        assert!(got.utilisation > 0.97, "RTT {rtt}: {got:?}");
        assert!(got.delay_s(0.99) < 0.02, "RTT {rtt}: {got:?}");
    }
}

/// Any forged headers, in up to a tenth of the link's capacity: once they end, the other flow
/// uses the whole link again within 20 round trips.
#[test]
fn flows_recover_after_forged_headers_end() {
    const RTT_S: f64 = 0.1;
    const END_S: f64 = 20.0;
    let number = prop_oneof![Just(0), Just(1), Just(MOST), 0..=MOST, 0..=SECOND];
    let delta = prop_oneof![Just(i32::MAX), Just(i32::MIN), Just(0), any::<i32>()];
    let drawn = (number.clone(), number, delta, 40..1500u64, 0.001..0.1);
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&drawn, |(x, rtt, delta, size_B, every_s)| {
        let got = run(&Loop {
            flows: 1,
            rtt_s: RTT_S,
            configured_Bps: 1_250_000.0,
            measure: false,
            warm_s: END_S + 20.0 * RTT_S,
            duration_s: END_S + 40.0 * RTT_S,
            forged: Some(Forged {
                every_s: f64::max(every_s, size_B as f64 / 125_000.0),
                until_s: END_S,
                packet: xcp_bench_packet {
                    size_B,
                    ..packet(x, rtt, delta)
                },
            }),
            ..Loop::default()
        });
        prop_assert!(got.utilisation > 0.95, "{got:?}");
        prop_assert!(got.delay_s(0.99) < 2.0 * RTT_S, "{got:?}");
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
}
