// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Measuring a link's capacity (core/xcp_capacity.h) and sharing it with other traffic
//! (core/xcp_sharing.h): examples computed by hand, random values, and closed-loop simulations.

#![allow(non_snake_case)]

use std::sync::LazyLock;

use crate::closed_loop::{run, Loop, Outcome, PACKET_B};
use proptest::prelude::*;
use xcp_core::*;

const MBPS: f64 = 125_000.0;
const INTERVAL_NS: u64 = 100_000_000;
const RTT: u64 = 26_843_545; // 0.1 s in ticks

/// A router that has ended some control intervals of 0.1 s.
struct Link {
    router: Router,
    now_ns: u64,
    sent_B: u64,
    other_B: u64,
}

impl Link {
    fn new(configured_Bps: u64) -> Self {
        let params = xcp_router_params {
            capacity_Bps: configured_Bps,
            min_interval_ns: 1_000_000,
            ..xcp_router_params::default()
        };
        let mut link = Link {
            router: Router::new(params, 1),
            now_ns: 1,
            sent_B: 7_000,
            other_B: 0,
        };
        link.interval(0, 0, 0, 0);
        link
    }

    fn seen(&mut self, sent_B: u64, min_backlog_B: u64) -> xcp_link_samples {
        self.now_ns += INTERVAL_NS;
        self.sent_B += sent_B;
        let rested = min_backlog_B == 0;
        xcp_link_samples {
            now_ns: self.now_ns,
            sent_B: self.sent_B,
            backlog_B: min_backlog_B,
            min_backlog_B,
            free_ns: if rested { self.now_ns } else { 0 },
            free_sent_B: if rested { self.sent_B } else { 0 },
        }
    }

    /// Runs an interval in which one flow sends `arrived_B` and `sent_B` are dequeued.
    /// Returns C after it.
    fn interval(&mut self, arrived_B: u64, sent_B: u64, min_backlog_B: u64, queue_B: u64) -> u64 {
        self.arrive(arrived_B, 1);
        let seen = self.seen(sent_B, min_backlog_B);
        self.router.set_queue(queue_B);
        self.router.interval_end_seen(self.now_ns, &seen);
        self.router.capacity_Bps()
    }

    fn arrive(&mut self, bytes: u64, flows: u64) {
        let packets = bytes / u64::from(PACKET_B);
        for _ in 0..packets {
            self.router.arrival(PACKET_B.into());
            self.router
                .arrival_xcp(1, PACKET_B.into(), flows * 26_843_545 / packets, RTT);
        }
    }

    /// Runs an interval together with other traffic on a busy link of 2.5 MB/s. Returns C
    /// after it.
    fn shared(&mut self, flows: u64, other: xcp_sharing_interval) -> u64 {
        self.arrive(60_000, flows);
        self.other_B += other.other_B;
        let seen = self.seen(250_000, 1);
        let other = xcp_sharing_interval {
            other_B: self.other_B,
            ..other
        };
        self.router.interval_end_shared(self.now_ns, &seen, &other);
        self.router.capacity_Bps()
    }
}

/// Compares two values, up to one or two rounding errors.
#[track_caller]
fn assert_near(got: impl Into<f64>, want: f64) {
    let got = got.into();
    assert!(
        (got - want).abs() <= 1.0 + want.abs() * 1e-5,
        "{got}, not {want}"
    );
}

#[test]
fn capacity_of_a_busy_link_is_what_was_dequeued() {
    let mut link = Link::new(1_250_000);
    assert_near(link.interval(125_000, 25_000, 3_000, 0) as f64, 253_906.0); // 250,000 + 1/64
    assert_near(link.router.link_Bps() as f64, 250_000.0);
    // never more than configured
    assert_near(
        link.interval(125_000, 250_000, 3_000, 0) as f64,
        1_250_000.0,
    );
    // few bytes only give an upper bound: their rate with two packets more
    link.interval(6_000, 6_000, 3_000, 0);
    assert_near(link.router.link_Bps() as f64, 90_000.0);
}

#[test]
fn link_that_was_never_busy_has_its_configured_capacity() {
    let mut link = Link::new(1_250_000);
    for arrived_B in [0, 30_000, 120_000, 125_000] {
        assert_near(
            link.interval(arrived_B, arrived_B, 0, 0) as f64,
            1_250_000.0,
        );
    }
    assert_near(Link::new(0).interval(6_000, 6_000, 0, 0) as f64, 76_171.0); // 75,000 + 1/64
}

/// A train may find little free capacity because XCP itself fills the cloud. C exceeds the
/// input by at most one step, even if another router limits the traffic.
#[test]
fn cloud_capacity_is_found_in_steps_of_the_free_rate() {
    let carries_B = 187_500;
    let cloud = xcp_cloud {
        free_Bps: 130_000,
        ..xcp_cloud::default()
    };
    let mut link = Link::new(0);
    let mut came_B = 125_000;
    link.interval(came_B, came_B, 1_500, 0);
    for _ in 0..12 {
        link.arrive(came_B, 1);
        let seen = link.seen(came_B, 0);
        link.router.interval_end_cloud(link.now_ns, &seen, &cloud);
        let (out_Bps, most_Bps) = (link.router.capacity_Bps(), 10 * came_B + 230_000);
        assert!(out_Bps <= most_Bps, "{out_Bps} after {came_B} B");
        came_B = (out_Bps / 10).min(carries_B);
    }
    assert_eq!(came_B, carries_B);
}

#[test]
fn link_capacity_is_found_in_steps() {
    let mut link = Link::new(0);
    for _ in 0..2 {
        link.interval(45_000, 25_000, 1_500, 0);
    }
    // less than L was dequeued: L stays
    link.interval(21_000, 21_000, 0, 0);
    assert_near(link.router.link_Bps() as f64, 250_000.0);
    // all of L was dequeued without a queue: L grows by an eighth at once
    link.interval(24_000, 24_700, 0, 0);
    assert_near(link.router.link_Bps() as f64, 281_250.0);
    // hardly more than before: a gap between two packets
    link.interval(25_500, 25_000, 0, 0);
    assert_near(link.router.link_Bps() as f64, 281_250.0);
    // the link carried 3/4 of the step: L becomes twice the dequeue rate
    link.interval(28_500, 28_000, 0, 0);
    assert_near(link.router.link_Bps() as f64, 560_000.0);
    link.interval(39_000, 39_000, 0, 0);
    assert_near(link.router.link_Bps() as f64, 560_000.0);
    // the dequeue rate has grown by half: L becomes twice that rate
    link.interval(45_000, 43_000, 0, 0);
    assert_near(link.router.link_Bps() as f64, 860_000.0);
    // the link is full
    link.interval(90_000, 60_000, 1_500, 0);
    assert_near(link.router.link_Bps() as f64, 600_000.0);
}

#[test]
fn capacity_returns_quickly_to_its_recent_value() {
    let mut link = Link::new(0);
    link.interval(60_000, 60_000, 1_500, 0);
    link.interval(60_000, 25_000, 1_500, 0);
    let found = |link: &mut Link, sent_B| {
        link.interval(sent_B, sent_B, 0, 0);
        link.router.link_Bps() as f64
    };
    assert_near(found(&mut link, 25_000), 281_250.0);
    // the step was carried: L becomes the remembered rate, which decays by 1/512 per
    // interval, and the next step
    assert_near(found(&mut link, 28_000), 671_053.0);
    assert_near(found(&mut link, 59_500), 671_053.0);
    // from here on the steps are as for a new link
    assert_near(found(&mut link, 67_000), 1_340_000.0);
    // after some minutes the rate is forgotten
    for _ in 0..2000 {
        link.interval(25_000, 25_000, 1_500, 0);
    }
    for (sent_B, want_Bps) in [
        (25_000, 281_250.0),
        (28_000, 560_000.0),
        (43_000, 860_000.0),
    ] {
        assert_near(found(&mut link, sent_B), want_Bps);
    }
}

/// L is what the link can carry, not what it carries: less demand does not lower it.
#[test]
fn pause_does_not_lower_the_capacity_of_a_free_link() {
    let mut link = Link::new(0);
    for _ in 0..2 {
        link.interval(25_000, 25_000, 1_500, 0);
    }
    for sent_B in [25_000, 28_000, 50_000] {
        link.interval(sent_B, sent_B, 0, 0);
    }
    let free_Bps = link.router.link_Bps();
    assert_near(free_Bps as f64, 1_000_000.0);
    for sent_B in [40_000, 15_000, 0, 15_000] {
        link.interval(sent_B, sent_B, 0, 0);
        assert_eq!(link.router.link_Bps(), free_Bps, "{sent_B}");
    }
}

#[test]
fn large_fall_in_capacity_ends_the_interval() {
    let mut link = Link::new(1_250_000);
    link.interval(125_000, 125_000, 1_500, 0);
    let seen = |after_ns, left_B, free_ns, free_left_B| xcp_link_samples {
        now_ns: link.now_ns + after_ns,
        sent_B: link.sent_B + left_B,
        backlog_B: 1_500,
        min_backlog_B: 0,
        free_ns: link.now_ns + free_ns,
        free_sent_B: link.sent_B + free_left_B,
    };
    let fell = |seen| link.router.link_changed(&seen);
    // 15 kB in 50 ms, from 10 ms after the start of the interval
    assert!(fell(seen(60_000_000, 27_500, 10_000_000, 12_500)));
    // 60 kB
    assert!(!fell(seen(60_000_000, 72_500, 10_000_000, 12_500)));
    // nothing in 30 ms: fewer than two packets can be in transmission
    assert!(fell(seen(40_000_000, 12_500, 10_000_000, 12_500)));
    // too short a time, or the queue was empty just now
    assert!(!fell(seen(30_000_000, 12_500, 10_000_000, 12_500)));
    assert!(!fell(seen(60_000_000, 27_500, 60_000_000, 27_500)));
    assert!(!fell(xcp_link_samples {
        backlog_B: 0,
        ..seen(60_000_000, 27_500, 10_000_000, 12_500)
    }));
}

#[test]
fn large_rise_in_capacity_ends_the_interval_and_is_used() {
    let mut link = Link::new(0);
    // two packets in a second: the link has stopped
    for _ in 0..20 {
        link.interval(1_500, 300, 1_500, 0);
    }
    let stopped_Bps = link.router.link_Bps();
    assert!(stopped_Bps < 10_000, "{stopped_Bps}");
    let seen = |after_ns, left_B| xcp_link_samples {
        now_ns: link.now_ns + after_ns,
        sent_B: link.sent_B + left_B,
        backlog_B: 0,
        min_backlog_B: 0,
        free_ns: link.now_ns + after_ns,
        free_sent_B: link.sent_B + left_B,
    };
    // two packets may have been in transmission
    assert!(!link.router.link_changed(&seen(50_000_000, 2_000)));
    assert!(link.router.link_changed(&seen(50_000_000, 12_000)));
    link.interval(12_000, 12_000, 0, 0);
    let found_Bps = link.router.link_Bps();
    assert!(
        found_Bps > 2 * stopped_Bps,
        "{found_Bps} after {stopped_Bps}"
    );
}

#[test]
fn measured_and_fixed_capacity_give_the_same_feedback_on_a_free_link() {
    let mut measured = Link::new(1_250_000);
    let mut plain = measured.router.clone();
    measured.interval(99_000, 99_000, 0, 0);
    for _ in 0..66 {
        plain.arrival(PACKET_B.into());
        plain.arrival_xcp(1, PACKET_B.into(), 26_843_545 / 66, RTT);
    }
    plain.interval_end(measured.now_ns);
    assert_eq!(measured.router.f_Bps(), plain.f_Bps());
    assert_eq!(measured.router.pos_Bps(), plain.pos_Bps());
    assert_eq!(measured.router.neg_Bps(), plain.neg_Bps());
}

#[test]
fn xcp_gets_its_share_and_all_unused_capacity() {
    let mut link = Link::new(2_500_000);
    let other = |other_B, min_backlog_B, flows: u32, share| xcp_sharing_interval {
        other_B,
        other_min_backlog_B: min_backlog_B,
        other_flows: flows << XCP_FLOW_BITS,
        share,
    };
    // 2 XCP flows and 2 other flows that always have a queue
    for _ in 0..60 {
        link.shared(2, other(190_000, 3_000, 2, 0));
    }
    assert!(
        (link.router.share() - 0.5).abs() < 0.01,
        "{}",
        link.router.share()
    );
    let half = link.shared(2, other(190_000, 3_000, 2, 0)) as f64;
    assert!((half / 1_250_000.0 - 1.0).abs() < 0.02, "{half}");
    // the others pause at times and use 40 %: XCP gets the rest
    let left = link.shared(2, other(100_000, 0, 2, 0)) as f64;
    assert!((left / 1_500_000.0 - 1.0).abs() < 0.01, "{left}");
    // a flood of other traffic does not reduce XCP's share
    let least = link.shared(2, other(500_000, 0, 2, 0)) as f64;
    assert!((least / 1_250_000.0 - 1.0).abs() < 0.02, "{least}");
    // a configured share applies, but never less than 5 %
    let set = link.shared(2, other(500_000, 3_000, 2, 65_536 / 4)) as f64;
    assert!((set / 625_000.0 - 1.0).abs() < 0.01, "{set}");
    let crowd = link.shared(2, other(500_000, 3_000, 60_000, 0)) as f64;
    assert!((crowd / 125_000.0 - 1.0).abs() < 0.02, "{crowd}");
    // without a separate queue for other traffic nothing is shared
    assert_near(link.interval(60_000, 250_000, 1, 0) as f64, 2_500_000.0);
    assert_eq!((link.router.share(), link.router.other_Bps()), (0.0, 0));
}

/// Returns the next number of the SplitMix64 generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn flows_are_counted_by_their_bytes() {
    // flows of full packets and equally frequent flows of ACKs, each packet on a random
    // processor
    let cases = [(1, 0), (2, 0), (9, 0), (3, 3), (3, 30), (40, 0)];
    let cases = cases.into_iter().flat_map(|c| [(c, 1), (c, 8)]);
    for ((flows, acks), processors) in cases {
        let sum = (flows * 1500 + acks * 60) as f64;
        let want = sum * sum / (flows * 1500 * 1500 + acks * 60 * 60) as f64;
        let mut sampler = xcp_sampler::default();
        let mut state = 1;
        let mut left_B = vec![0; processors];
        for now_ns in (0..200_000).map(|n| n * 1_000_000) {
            let flow = random(&mut state) % (flows + acks);
            let bytes = if flow < flows { 1500 } else { 60 };
            let at = &mut left_B[(random(&mut state) % processors as u64) as usize];
            if xcp_sampler_due(at, bytes, 20_000) {
                xcp_sampler_add(
                    &mut sampler,
                    (flow as u32 + 1).wrapping_mul(0x9e37_79b1),
                    now_ns,
                );
            }
        }
        let counted = f64::from(xcp_sampler_flows(&sampler, 200_000_000_000)) / 256.0;
        assert!(
            (counted / want - 1.0).abs() < 0.15,
            "{flows} data flows and {acks} ACK flows on {processors} processors: {counted}"
        );
    }
}

/// Old samples neither count nor affect new ones.
#[test]
fn old_flows_are_not_counted() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut sampler = xcp_sampler::default();
    assert_eq!(xcp_sampler_flows(&sampler, 0), 0);
    for hash in 1..1000 {
        xcp_sampler_add(&mut sampler, hash % 40 * 2, SECOND_NS);
    }
    assert!(xcp_sampler_flows(&sampler, 2 * SECOND_NS) > 30 * 256);
    assert_eq!(xcp_sampler_flows(&sampler, 6 * SECOND_NS), 0);
    for _ in 0..32 {
        xcp_sampler_add(&mut sampler, 2, 7 * SECOND_NS);
    }
    assert_eq!(xcp_sampler_flows(&sampler, 8 * SECOND_NS), 256);
}

/// Hints that are late or wrong by a constant factor do no harm.
#[test]
fn modem_hint_scales_the_capacity_but_not_beyond_the_hint() {
    const CARRIES_BPS: u64 = 1_000_000;
    let carries = |before_Bps: u64, hint_Bps: u64| {
        let mut link = Link::new(0);
        // busy: 100 kB in 0.1 s
        link.interval(100_000, 100_000, 3_000, 3_000);
        assert_near(link.router.link_Bps() as f64, CARRIES_BPS as f64);
        link.router.capacity_hint(before_Bps, hint_Bps);
        link.router.link_Bps()
    };
    for (before_Bps, hint_Bps, want_Bps, why) in [
        (
            CARRIES_BPS,
            2 * CARRIES_BPS,
            2 * CARRIES_BPS,
            "correct hint: the rate has risen",
        ),
        (
            CARRIES_BPS,
            CARRIES_BPS / 4,
            CARRIES_BPS / 4,
            "correct hint: the rate has fallen",
        ),
        (
            3 * CARRIES_BPS,
            CARRIES_BPS,
            CARRIES_BPS,
            "late hint: L had already fallen",
        ),
        (
            CARRIES_BPS / 2,
            CARRIES_BPS,
            CARRIES_BPS,
            "late hint: L had already risen",
        ),
        (
            CARRIES_BPS / 2,
            CARRIES_BPS * 5 / 4,
            CARRIES_BPS * 5 / 4,
            "L stops at the hint",
        ),
        (
            2 * CARRIES_BPS,
            4 * CARRIES_BPS,
            2 * CARRIES_BPS,
            "hints are always twice too high",
        ),
        (
            2 * CARRIES_BPS,
            CARRIES_BPS / 2,
            CARRIES_BPS / 2,
            "hints are always twice too high",
        ),
        (
            CARRIES_BPS / 2,
            CARRIES_BPS / 4,
            CARRIES_BPS / 2,
            "hints are always half of the rate",
        ),
        (0, 5 * CARRIES_BPS, CARRIES_BPS, "first hint"),
        (5 * CARRIES_BPS, 0, CARRIES_BPS, "hints have ended"),
        (1, u64::MAX, u64::MAX, "the largest hint"),
    ] {
        let most = u64::MAX >> 20;
        let got = carries(before_Bps, hint_Bps);
        let near = got.abs_diff(want_Bps.min(most)) <= want_Bps.min(most) / 1000;
        assert!(
            near || (want_Bps > most && got > CARRIES_BPS),
            "{why}: {got}"
        );
    }
}

/// The rates of experiments/varying-trace.toml.
static RADIO: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| {
    let file = include_str!("../../../../experiments/varying-trace.toml");
    let (_, rates) = file.split_once("rates = [").unwrap();
    let (rates, _) = rates.split_once("\n]").unwrap();
    let numbers: Vec<f64> = rates
        .split(['[', ']', ',', ' ', '\n'])
        .filter_map(|number| number.parse().ok())
        .collect();
    numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
});

fn radio_Bps(at_s: f64) -> f64 {
    let next = RADIO.partition_point(|(from_s, _)| *from_s <= at_s % 60.0);
    RADIO[next - 1].1 * MBPS
}

fn steps_Bps(at_s: f64) -> f64 {
    let high = ((at_s / 5.0) as u64).is_multiple_of(2);
    (if high { 10.0 } else { 2.0 }) * MBPS
}

#[test]
fn capacity_follows_a_link_with_steps() {
    for (flows, configured) in [(1, 0.0), (2, 0.0), (4, 0.0), (2, 10.0)] {
        let got = run(&Loop {
            flows,
            rtt_s: 0.1,
            duration_s: 60.0,
            configured_Bps: configured * MBPS,
            measure: true,
            link_Bps: steps_Bps,
            ..Loop::default()
        });
        assert!(got.utilisation >= 0.88, "{flows}: {}", got.utilisation);
        assert!(got.delay_s(0.95) <= 0.13, "{flows}: {}", got.delay_s(0.95));
        assert!(got.jain > 0.999, "{flows}: {}", got.jain);
    }
}

#[test]
fn capacity_follows_a_radio_link() {
    for flows in [1, 2, 4] {
        let got = run(&Loop {
            flows,
            rtt_s: 0.1,
            duration_s: 125.0,
            configured_Bps: 0.0,
            measure: true,
            link_Bps: radio_Bps,
            ..Loop::default()
        });
        assert!(got.utilisation >= 0.95, "{flows}: {}", got.utilisation);
        assert!(got.delay_s(0.95) <= 0.115, "{flows}: {}", got.delay_s(0.95));
        assert!(got.jain > 0.999, "{flows}: {}", got.jain);
    }
}

/// The rates of experiments/stops.toml.
fn stops_Bps(at_s: f64) -> f64 {
    let steps = [
        (45.0, 3.0),
        (32.4, 0.03),
        (32.0, 0.8),
        (24.4, 0.05),
        (24.0, 0.6),
        (15.0, 0.05),
    ];
    let step = steps.iter().find(|(from_s, _)| at_s >= *from_s);
    step.map_or(2.0, |(_, Mbps)| *Mbps) * MBPS
}

/// Packets that waited while the link had stopped do not affect the estimate after it resumes.
#[test]
fn capacity_follows_a_link_that_stops_and_resumes() {
    for rtt_s in [0.1, 0.04] {
        let got = run(&Loop {
            rtt_s,
            duration_s: 75.0,
            link_Bps: stops_Bps,
            ..Loop::default()
        });
        assert!(got.utilisation >= 0.93, "{rtt_s}: {got:?}");
        assert!(got.delay_s(0.95) <= 0.03, "{rtt_s}: {}", got.delay_s(0.95));
    }
}

/// After an outage the flows soon fill the link again, although few packets are left to
/// measure it with.
#[test]
fn flows_fill_a_link_that_has_returned() {
    fn outage_Bps(from_s: f64, at_s: f64, Mbps: f64) -> f64 {
        let out = (from_s..45.0).contains(&at_s);
        (if out { 0.03 } else { Mbps }) * MBPS
    }
    fn rtts(flows: usize, rtt_s: f64, link_Bps: fn(f64) -> f64) -> f64 {
        let got = run(&Loop {
            flows,
            rtt_s,
            duration_s: 70.0,
            link_Bps,
            ..Loop::default()
        });
        let full = |i: usize| {
            let at = |rtts: usize| 45.0 + rtts as f64 * rtt_s;
            (i..i + 3).all(|i| got.rate_Bps(at(i), at(i + 1)) >= 0.9 * link_Bps(45.0))
        };
        (0..200).find(|i| full(*i)).unwrap_or(200) as f64
    }
    let from_10_to_10: fn(f64) -> f64 = |at_s| outage_Bps(40.0, at_s, 10.0);
    let from_3_to_3: fn(f64) -> f64 = |at_s| outage_Bps(15.0, at_s, 3.0);
    for (name, flows, link_Bps, most) in [
        ("10 Mb/s", 1, from_10_to_10, 6.3),
        ("10 Mb/s", 4, from_10_to_10, 6.8),
        ("3 Mb/s", 1, from_3_to_3, 9.0),
        ("3 Mb/s, 2 before", 1, stops_Bps, 10.0),
    ] {
        // when the link returns, some flows have sent more of their RTT than others
        let sum: f64 = (0..16)
            .map(|i| rtts(flows, 0.092 + 0.001 * f64::from(i), link_Bps))
            .sum();
        assert!(sum / 16.0 <= most, "{name}, {flows}: {} RTTs", sum / 16.0);
    }
}

/// A check of the RTTs sees some packets, which may all be of flows with short RTTs.
#[test]
fn flows_with_short_rtts_do_not_end_the_intervals_of_others() {
    let got = run(&Loop {
        flows: 8,
        rtt_s: 0.02,
        rtt_step_s: 0.09,
        duration_s: 120.0,
        warm_s: 20.0,
        link_Bps: |_| 4.0 * MBPS,
        ..Loop::default()
    });
    assert!(got.utilisation > 0.99, "{got:?}");
    assert!(got.delay_s(0.99) < 0.03, "{got:?}");
}

/// Simulates a link of 10 Mb/s; the configured capacity may be wrong.
fn steady(configured_Mbps: f64, measure: bool) -> Outcome {
    run(&Loop {
        flows: 4,
        rtt_s: 0.5,
        duration_s: 100.0,
        configured_Bps: configured_Mbps * MBPS,
        measure,
        link_Bps: |_| 10.0 * MBPS,
        ..Loop::default()
    })
}

#[test]
fn too_high_capacity_builds_a_queue_unless_measured() {
    let (plain, measured) = (steady(11.0, false), steady(11.0, true));
    // in balance alpha e = beta x, where x = q / (0.5 s + q) and e is a tenth of the link
    let x = 0.15;
    let want_s = 0.5 * x / (1.0 - x);
    assert!(
        (plain.delay_s(0.5) - want_s).abs() < 0.005,
        "{}",
        plain.delay_s(0.5)
    );
    // the same for an error of 1/64 of 10 Mb/s
    assert!(measured.delay_s(0.5) < 0.018, "{}", measured.delay_s(0.5));
    assert!(measured.utilisation > 0.99, "{}", measured.utilisation);
}

#[test]
fn measuring_keeps_a_correct_capacity() {
    let (plain, measured) = (steady(10.0, false), steady(10.0, true));
    assert_eq!(plain.utilisation, measured.utilisation);
    assert_eq!(plain.delay_s(0.99), measured.delay_s(0.99));
    assert!(plain.utilisation > 0.99);
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        (0..64u32).prop_map(|b| 1 << b),
        any::<u64>(),
        0..1_000_000u64,
    ]
}

proptest! {
    #[test]
    fn capacity_stays_within_its_bounds_for_any_input(
        configured_Bps in 0..125_000_000_000u64,
        intervals in prop::collection::vec(
            (extreme(), extreme(), extreme(), extreme(), extreme(), any::<u32>(), 0..65_536u32),
            1..40,
        ),
    ) {
        let params = xcp_router_params { capacity_Bps: configured_Bps, min_interval_ns: 1_000_000, ..xcp_router_params::default() };
        let mut router = Router::new(params, 0);
        let mut now_ns = 0u64;
        for (elapsed_ns, sent_B, backlog_B, min_backlog_B, other_B, flows, share) in intervals {
            now_ns = now_ns.saturating_add(elapsed_ns >> 8);
            router.arrival(1500);
            router.arrival_xcp(1, 1500, 1 << 20, 1 << 25);
            let seen = xcp_link_samples {
                now_ns,
                sent_B,
                backlog_B,
                min_backlog_B,
                free_ns: now_ns ^ other_B,
                free_sent_B: other_B,
            };
            let other = xcp_sharing_interval { other_B, other_min_backlog_B: other_B ^ sent_B, other_flows: flows, share };
            router.interval_end_shared(now_ns, &seen, &other);
            let c_Bps = router.capacity_Bps();
            prop_assert!(configured_Bps == 0 || c_Bps <= configured_Bps);
            prop_assert!(c_Bps <= 1 << 43);
            prop_assert!(router.pos_Bps() < (1u64 << 44) as f64);
            prop_assert!(router.neg_Bps() < (1u64 << 44) as f64);
            router.set_queue(backlog_B);
        }
    }
}
