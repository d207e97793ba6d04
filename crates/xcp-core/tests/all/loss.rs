// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of core/xcp_loss.h: which losses are congestion, and how the sender reacts.

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_core::*;

const WIRE_B: u32 = 1_500;
/// The first wait before a path is trusted again, rounds.
const WAIT: usize = 16;
/// Returns 0.7 of a window, rounded as in core/.
fn cut(cwnd_B: u64) -> u64 {
    (cwnd_B - cwnd_B * 3 / 10).max(WIRE_B.into())
}

/// A connection over a path of 100 ms.
struct Path {
    sender: xcp_sender,
    loss: xcp_loss,
    base: u64,
}

impl Path {
    fn new(packets: u64) -> Self {
        let base = xcp_ns_to_ticks(100_000_000);
        let sender = new_sender(WIRE_B, packets, 1 << 40, base);
        let mut loss = xcp_loss::default();
        xcp_loss_on_rtt(&mut loss, base);
        xcp_loss_on_round(&mut loss, &mut { sender }, 100_000, 0, 1);
        Self { sender, loss, base }
    }

    /// Runs a round with `lost` packets, in which packets wait for `waited` % of the base RTT.
    fn round(&mut self, lost: u32, waited: u64) {
        let rtt = self.base + self.base * waited / 100;
        self.sender.rtt = rtt;
        xcp_loss_on_rtt(&mut self.loss, rtt);
        let arrived = xcp_sender_packets(&self.sender) as u32;
        let elapsed_us = xcp_ticks_to_ns(rtt) / 1_000;
        xcp_loss_on_round(&mut self.loss, &mut self.sender, elapsed_us, lost, arrived);
    }

    /// Runs a round in which a hidden queue overflows.
    fn overflow(&mut self) {
        self.round(xcp_sender_packets(&self.sender) as u32 / 10 + 7, 50);
    }

    /// Applies feedback that changes the window by `bytes`, if nothing limits it.
    fn feedback(&mut self, bytes: i64) {
        let before_B = self.sender.cwnd_B;
        self.sender.limit_B = xcp_loss_limit(&self.loss, 1 << 40);
        let base = self.sender.rtt_base as i64;
        xcp_sender_feedback(&mut self.sender, bytes * (1 << 28) / base);
        xcp_loss_on_feedback(&mut self.loss, &mut self.sender, before_B);
    }

    /// Returns a path that has just become distrusted.
    fn distrusted(packets: u64) -> Self {
        let mut path = Self::new(packets);
        while xcp_loss_trusts(&path.loss) {
            path.overflow();
        }
        path.round(0, 0);
        path.round(0, 0);
        path
    }

    /// Runs clean rounds until the path is trusted; returns their number.
    fn rounds_to_trust(&mut self) -> usize {
        (1..5_000)
            .find(|_| {
                self.round(0, 0);
                xcp_loss_trusts(&self.loss)
            })
            .expect("enough clean rounds")
    }
}

#[test]
fn a_single_lossy_round_is_repaired_without_a_cut() {
    for (lost, waited) in [(1, 0), (50, 0), (1, 100), (50, 100)] {
        let mut path = Path::new(100);
        for _ in 0..5 {
            xcp_loss_on_recovery(&mut path.loss, &mut path.sender, false);
            path.round(lost, waited);
            path.round(0, waited);
        }
        assert_eq!(
            xcp_sender_packets(&path.sender),
            100,
            "{lost} lost, {waited} % wait"
        );
        assert!(xcp_loss_trusts(&path.loss));
    }
}

#[test]
fn consecutive_losses_with_a_hidden_queue_cut_once_per_two_rounds() {
    let mut path = Path::new(100);
    let before_B = path.sender.cwnd_B;
    path.overflow();
    assert_eq!(path.sender.cwnd_B, before_B);
    path.overflow();
    assert_eq!(path.sender.cwnd_B, cut(before_B));
    // these packets were lost before the cut and are detected after it
    xcp_loss_on_recovery(&mut path.loss, &mut path.sender, true);
    path.round(20, 50);
    path.overflow();
    assert_eq!(path.sender.cwnd_B, cut(before_B));
    path.overflow();
    assert_eq!(path.sender.cwnd_B, cut(cut(before_B)));
    // after that each recovery cuts the window
    path.round(0, 50);
    path.round(0, 50);
    xcp_loss_on_recovery(&mut path.loss, &mut path.sender, false);
    assert_eq!(path.sender.cwnd_B, cut(cut(cut(before_B))));
}

#[test]
fn longer_path_is_detected_after_two_rounds() {
    let mut path = Path::new(100);
    path.round(0, 900);
    assert_eq!(path.sender.rtt_base, path.base, "one sample is not enough");
    path.round(0, 900);
    assert_eq!(path.sender.rtt_base, 10 * path.base);
    assert!(xcp_loss_trusts(&path.loss), "nothing was lost");
    assert_eq!(xcp_sender_packets(&path.sender), 100);
    // a wait that routers answer is caused by their queue, not by a longer path
    let mut path = Path::new(100);
    for _ in 0..5 {
        path.feedback(-15_000);
        path.round(0, 50);
    }
    assert_eq!(path.sender.rtt_base, path.base);
}

#[test]
fn window_far_above_the_delivered_packets_shrinks_at_once() {
    let mut path = Path::new(10_000);
    for _ in 0..2 {
        path.sender.rtt = 2 * path.base;
        xcp_loss_on_rtt(&mut path.loss, 2 * path.base);
        xcp_loss_on_round(&mut path.loss, &mut path.sender, 200_000, 9_900, 100);
    }
    assert_eq!(path.sender.cwnd_B, cut(200 * u64::from(WIRE_B)));
}

#[test]
fn ecn_marks_cut_at_once_and_then_once_per_two_rounds() {
    let mut path = Path::new(100);
    let before_B = path.sender.cwnd_B;
    for _ in 0..2 {
        xcp_loss_on_mark(&mut path.loss, &mut path.sender);
        xcp_loss_on_mark(&mut path.loss, &mut path.sender);
        assert_eq!(path.sender.cwnd_B, cut(before_B));
        path.round(0, 0);
        xcp_loss_on_mark(&mut path.loss, &mut path.sender);
        assert_eq!(path.sender.cwnd_B, cut(before_B));
        path.round(0, 0);
        path.sender.cwnd_B = before_B;
    }
    // a path with ECN marks is not clean
    for round in 0..10 * WAIT {
        if round % (WAIT - 2) == 0 {
            xcp_loss_on_mark(&mut path.loss, &mut path.sender);
        }
        path.round(0, 0);
        assert!(xcp_loss_is_tcp(&path.loss), "{round}");
    }
}

#[test]
fn negative_feedback_explains_losses_at_an_xcp_queue() {
    let mut path = Path::new(100);
    for _ in 0..10 {
        // beta Q / d = 0.226 * 0.5 / 1.5 of the window
        let before_B = path.sender.cwnd_B;
        path.feedback(-(before_B as i64) * 75 / 1000);
        let fed_B = path.sender.cwnd_B;
        path.overflow();
        assert_eq!(path.sender.cwnd_B, fed_B);
    }
    assert!(xcp_loss_trusts(&path.loss));
    // a tenth of that feedback does not explain the losses
    for _ in 0..2 {
        let before_B = path.sender.cwnd_B;
        path.feedback(-(before_B as i64) * 75 / 10_000);
        path.overflow();
    }
    assert!(!xcp_loss_trusts(&path.loss));
}

/// One lost packet in 40, as in the experiment zh-loss, and one in 100 with a long wait that
/// no feedback explains.
#[test]
fn random_corruption_is_not_taken_for_congestion() {
    for (one_in, waited) in [(40, 10), (100, 50)] {
        for packets in [4, 10, 30, 100, 300, 1_000] {
            let mut path = Path::new(packets);
            let mut state = packets;
            for round in 0..2_000 {
                let is_lost = |_: &u64| next(&mut state) < u64::MAX / one_in;
                let lost = (0..packets).filter(is_lost).count();
                if lost > 0 {
                    xcp_loss_on_recovery(&mut path.loss, &mut path.sender, false);
                }
                path.round(lost as u32, waited);
                assert!(
                    xcp_loss_trusts(&path.loss),
                    "{packets} packets, 1 in {one_in}, round {round}"
                );
            }
            assert_eq!(xcp_sender_packets(&path.sender), packets);
        }
    }
}

/// Returns the next number of the SplitMix64 generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn policer_is_detected_without_queueing_delay() {
    for (packets, rounds) in [(10, 20), (100, 2), (1_000, 2)] {
        let mut path = Path::new(packets);
        for _ in 0..rounds {
            assert!(xcp_loss_trusts(&path.loss));
            path.round((packets / 10) as u32, 0);
        }
        assert!(!xcp_loss_trusts(&path.loss), "{packets} packets");
    }
}

#[test]
fn distrusted_window_grows_like_cubic_and_follows_negative_feedback() {
    let mut path = Path::distrusted(100);
    // W_max is 100, and the cut was two rounds of 0.1 s ago; a path with a queue is never
    // clean
    let mut grown = Vec::new();
    for _ in 0..60 {
        for _ in 0..3 {
            path.feedback(1_000_000);
        }
        grown.push(xcp_sender_packets(&path.sender));
        path.round(0, 50);
    }
    assert!((70..80).contains(&grown[0]), "{grown:?}");
    // K = 4.22 s is 28 rounds of 0.15 s; two of them are over
    assert!((95..100).contains(&grown[10]), "{grown:?}");
    assert!((100..102).contains(&grown[26]), "{grown:?}");
    assert!(grown[59] > 130, "{grown:?}");
    let before_B = path.sender.cwnd_B;
    path.feedback(-10_000);
    assert!(path.sender.cwnd_B.abs_diff(before_B - 10_000) <= 1);
}

#[test]
fn feedback_raises_the_window_at_most_to_the_requested_size() {
    let mut path = Path::new(10);
    let before_B = path.sender.cwnd_B;
    path.sender.limit_B = 100 * u64::from(WIRE_B);
    xcp_sender_feedback(&mut path.sender, 1 << 31);
    xcp_loss_on_feedback(&mut path.loss, &mut path.sender, before_B);
    assert_eq!(xcp_sender_packets(&path.sender), 100);
    // a lower limit does not shrink the window
    path.sender.limit_B = 50 * u64::from(WIRE_B);
    xcp_sender_feedback(&mut path.sender, 1 << 31);
    let before_B = 100 * u64::from(WIRE_B);
    xcp_loss_on_feedback(&mut path.loss, &mut path.sender, before_B);
    assert_eq!(xcp_sender_packets(&path.sender), 100);
}

#[test]
fn trust_returns_after_clean_rounds_and_later_after_each_failed_probation() {
    let mut path = Path::distrusted(100);
    let mut before = path.sender.cwnd_B;
    for wait in [WAIT, 2 * WAIT, 4 * WAIT] {
        assert_eq!(usize::from(path.loss.wait), wait);
        while xcp_loss_is_tcp(&path.loss) {
            path.round(0, 0);
        }
        assert!(!xcp_loss_trusts(&path.loss));
        // probation adds an eighth per round; when it fails, the old window returns
        assert_eq!(path.sender.cwnd_B, before);
        path.feedback(1 << 30);
        assert_eq!(path.sender.cwnd_B, before + before / 8);
        path.overflow();
        before = cut(before);
        assert_eq!(path.sender.cwnd_B, before);
    }
    let rounds = path.rounds_to_trust();
    let wait = usize::from(path.loss.wait);
    assert!((2 * wait..=2 * wait + 2).contains(&rounds), "{rounds}");
    // after a time of trust the wait starts with its first value again
    path.overflow();
    path.overflow();
    assert_eq!(usize::from(path.loss.wait), WAIT);
}

#[test]
fn wait_for_trust_has_a_maximum() {
    let mut path = Path::distrusted(1_000);
    for _ in 0..12 {
        while xcp_loss_is_tcp(&path.loss) {
            path.round(0, 0);
        }
        path.overflow();
    }
    assert_eq!(path.loss.wait, 1_024);
}

#[test]
fn path_with_a_hidden_queue_is_never_clean() {
    let mut path = Path::distrusted(100);
    for _ in 0..10 * WAIT {
        path.round(0, 50);
        assert!(xcp_loss_is_tcp(&path.loss));
    }
}

#[test]
fn longer_path_becomes_clean_eventually() {
    let mut path = Path::distrusted(100);
    let rounds = (0..2_000).find(|_| {
        path.round(0, 40);
        xcp_loss_trusts(&path.loss)
    });
    // 1.25 * 1.12 = 1.4; ln 1.12 * 4096 = 464 rounds
    assert!(matches!(rounds, Some(464..550)), "{rounds:?}");
}

#[test]
fn timeout_leaves_one_packet_and_keeps_trust_in_a_loss_free_path() {
    let mut path = Path::new(100);
    xcp_loss_on_timeout(&mut path.loss, &mut path.sender);
    assert_eq!(xcp_sender_packets(&path.sender), 1);
    assert!(xcp_loss_trusts(&path.loss));
    path.feedback(150_000 - 1_500);
    assert!(xcp_sender_packets(&path.sender) >= 99);

    // after a lossy round a timeout ends the trust
    path.round(1, 0);
    xcp_loss_on_timeout(&mut path.loss, &mut path.sender);
    assert!(!xcp_loss_trusts(&path.loss));
    // then the window doubles up to 0.7 of its old size, in 7 rounds for 100 packets
    for _ in 0..7 {
        path.feedback(1 << 30);
        path.round(0, 50);
    }
    assert!((69..=71).contains(&xcp_sender_packets(&path.sender)));
}

#[test]
fn loss_on_a_path_with_other_routers_and_no_queue_is_repaired_without_a_cut() {
    let mut path = Path::new(100);
    for waited in [0, 20] {
        xcp_loss_on_rtt(&mut path.loss, path.base + path.base * waited / 100);
        xcp_loss_on_recovery(&mut path.loss, &mut path.sender, true);
        assert_eq!(xcp_sender_packets(&path.sender), 100, "{waited} % wait");
        path.round(1, waited);
    }
}

#[test]
fn loss_on_a_path_with_other_routers_and_a_queue_cuts_once_per_recovery() {
    let mut path = Path::new(100);
    xcp_loss_on_rtt(&mut path.loss, path.base + path.base / 2);
    xcp_loss_on_recovery(&mut path.loss, &mut path.sender, true);
    assert_eq!(xcp_sender_packets(&path.sender), 70);
    path.round(1, 0);
    assert!(xcp_loss_trusts(&path.loss));
    path.feedback(30 * 1_500);
    assert!((99..=100).contains(&xcp_sender_packets(&path.sender)));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// For any sequence of events the window stays within its bounds, and feedback raises
    /// it at most to what was requested.
    #[test]
    fn window_stays_within_its_bounds_for_any_events(
        packets in 1..=1_000_000_000u64,
        limit_B in 0..=(1u64 << 46),
        events in prop::collection::vec((0..7u8, any::<u64>(), any::<u32>(), 0..63u32), 1..200),
    ) {
        let mut sender = new_sender(WIRE_B, packets, limit_B, 1 << 24);
        let mut loss = xcp_loss::default();
        for (event, long, short, smaller) in events {
            let before_B = sender.cwnd_B;
            match event {
                0 => xcp_loss_on_rtt(&mut loss, (long >> smaller) & ((1 << 34) - 1)),
                1 => {
                    sender.limit_B = xcp_loss_limit(&loss, limit_B);
                    xcp_sender_feedback(&mut sender, long as i64 >> smaller);
                    xcp_loss_on_feedback(&mut loss, &mut sender, before_B);
                    prop_assert!(sender.cwnd_B <= before_B.max(sender.limit_B));
                }
                2 => xcp_loss_on_recovery(&mut loss, &mut sender, long & 1 == 0),
                3 => xcp_loss_on_timeout(&mut loss, &mut sender),
                5 => xcp_loss_on_mark(&mut loss, &mut sender),
                4 => xcp_loss_on_round(&mut loss, &mut sender, long >> 20, short >> (smaller & 31), long as u32),
                _ => xcp_loss_on_round(&mut loss, &mut sender, long >> smaller, 0, short),
            }
            // feedback at most halves a window of one packet; a cut leaves at least one packet
            let least_B = if event == 1 { WIRE_B / 2 } else { WIRE_B };
            prop_assert!(sender.cwnd_B >= before_B.min(least_B.into()));
            prop_assert!(event == 1 || sender.cwnd_B <= before_B);
            prop_assert!(xcp_loss_trusts(&loss) || xcp_loss_limit(&loss, u64::MAX) >= sender.cwnd_B || event == 1);
        }
    }
}
