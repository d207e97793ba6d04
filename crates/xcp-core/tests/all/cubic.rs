// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compares core/xcp_cubic.h with a floating-point model of RFC 9438.

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_core::*;

const WIRE_B: u64 = 1_500;
const C: f64 = 0.4;

/// Returns the larger of W_cubic and W_est in packets, `time_s` and `rounds` after a cut.
fn model(max: f64, epoch: f64, time_s: f64, rounds: f64) -> f64 {
    let k = ((max - epoch) / C).cbrt();
    let friendly = epoch + rounds * 9.0 / 17.0;
    let beyond = (friendly - max).max(0.0) * 8.0 / 9.0;
    (C * (time_s - k).powi(3) + max).max(friendly + beyond)
}

/// Cuts a window of `packets`, then lets `rounds` pass.
fn after(packets: u64, rounds: u64, rtt_us: u64) -> xcp_cubic {
    let mut cubic = xcp_cubic::default();
    xcp_cubic_cut(&mut cubic, packets * WIRE_B);
    for _ in 0..rounds {
        xcp_cubic_round(&mut cubic, rtt_us);
    }
    cubic
}

#[test]
fn window_follows_rfc_9438() {
    for packets in [2, 10, 100, 1_000, 100_000] {
        for rtt_us in [1_000, 50_000, 500_000] {
            for rounds in [0, 1, 10, 100, 600] {
                let got = xcp_cubic_window(&after(packets, rounds, rtt_us), WIRE_B, rtt_us) as f64;
                let time_s = (rounds + 1) as f64 * rtt_us as f64 / 1e6;
                let max = packets as f64;
                let want = model(max, 0.7 * max, time_s, rounds as f64);
                let off = (got / WIRE_B as f64 - want).abs();
                assert!(
                    off <= 0.002 * want + 0.2,
                    "{packets} packets, {rtt_us} us, round {rounds}: {got} B, {want} packets"
                );
            }
        }
    }
}

#[test]
fn window_reaches_its_old_size_after_k() {
    // K = xcp_cbrt(0.3 * 100 / 0.4) = 4.22 s
    let at = |rounds| xcp_cubic_window(&after(100, rounds, 100_000), WIRE_B, 100_000) / WIRE_B;
    assert!(at(0) < 75);
    assert_eq!(at(41), 100);
    assert!(at(100) > 170);
}

#[test]
fn fast_convergence_lowers_the_plateau() {
    let mut cubic = xcp_cubic::default();
    assert_eq!(xcp_cubic_cut(&mut cubic, 100_000), 70_000);
    assert_eq!(xcp_cubic_cut(&mut cubic, 90_000), 63_000);
    for _ in 0..2 {
        xcp_cubic_round(&mut cubic, 1_000_000);
    }
    // the plateau is 0.85 * 90,000 and lasts for a while: K is 2.8 s
    let plateau_B = xcp_cubic_window(&cubic, WIRE_B, 1_000_000);
    assert!((76_500..80_000).contains(&plateau_B), "{plateau_B}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn cube_roots_are_exact(v in any::<u64>(), bits in 0..64u32) {
        let v = v >> bits;
        let root = u128::from(xcp_cbrt(v));
        prop_assert!(root.pow(3) <= u128::from(v));
        prop_assert!((root + 1).pow(3) > u128::from(v));
    }

    /// The window never shrinks between two cuts, whatever the times and sizes.
    #[test]
    fn window_never_shrinks_between_cuts(
        cwnd_B in 1..=1u64 << 46,
        wire_B in 1..=65_535u64,
        times_us in prop::collection::vec(any::<u64>(), 0..50),
        rtt_us in 0..=64_000_000u64,
    ) {
        let mut cubic = xcp_cubic::default();
        let mut before_B = xcp_cubic_cut(&mut cubic, cwnd_B);
        for elapsed_us in times_us {
            xcp_cubic_round(&mut cubic, elapsed_us >> 30);
            let now_B = xcp_cubic_window(&cubic, wire_B, rtt_us);
            prop_assert!(now_B >= before_B);
            before_B = now_B;
        }
    }
}
