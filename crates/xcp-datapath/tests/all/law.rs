// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router program over real control intervals: it grants what the control law
//! prescribes, and its counters add up.
//!
//! The tests do not depend on the length of an interval: each interval is checked against
//! the packets that were really sent in it.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::thread::sleep;
use std::time::Duration;

use crate::support::{edit, pin, Router};
use crate::wire::cases;
use crate::wire::option::Forward;
use xcp_abi::{xcp_router_law, xcp_router_link, XCP_INITIAL_INTERVAL_NS};
use xcp_datapath::router::{LawTerms, Options};

const TICKS_PER_S: f64 = (1 << 28) as f64;
/// alpha, and gamma while flows start or end and otherwise: of the published and the default law.
const PUBLISHED: (f64, [f64; 2]) = (0.4, [0.1, 0.1]);
const ANTICIPATING: (f64, [f64; 2]) = (0.6, [0.4, 0.03]);
const CAPACITY_BPS: u64 = 1_250_000;
/// The largest part of the pool that can be kept for later packets.
const PASSED_ON: f64 = 1.0 / 16.0;
/// The accuracy of core/ compared with a floating-point model.
const TOLERANCE: f64 = 1e-5;

/// Rounds of traffic and the pause after each; in total about five initial intervals (200 ms).
const ROUNDS: usize = 12;
const PACKETS: usize = 20;
const PAUSE: Duration = Duration::from_millis(90);

/// A packet with its request and its grant.
struct Sent {
    size_B: u64,
    asked: Forward,
    delta_Bps: i64,
}

/// The packets of one control interval, in order.
struct Interval {
    link: xcp_router_link,
    sent: Vec<Sent>,
}

impl Interval {
    fn law(&self) -> &xcp_router_law {
        &self.link.law[self.link.epoch as usize & 1]
    }

    /// Converts from the law's unit to B/s.
    fn Bps(&self, pool: u64) -> f64 {
        pool as f64 / f64::from(self.law().shift).exp2()
    }

    fn sum(&self, part: impl Fn(&Sent) -> f64) -> f64 {
        self.sent.iter().map(part).sum()
    }
}

/// Sends packets of two greedy flows and of one with small requests.
fn run(router: &Router) -> Vec<Interval> {
    let greedy = Forward {
        delta_Bps: i32::MAX,
        ..cases::default_request()
    };
    let flows = [
        (greedy, 1448),
        (
            Forward {
                rtt_ticks: greedy.rtt_ticks / 2,
                x_ticks: greedy.x_ticks * 5,
                ..greedy
            },
            441,
        ),
        (
            Forward {
                delta_Bps: 50,
                ..greedy
            },
            1448,
        ),
    ]
    .map(|(asked, payload)| (asked, cases::data(asked, payload)));

    let mut intervals: Vec<Interval> = vec![];
    for _ in 0..ROUNDS {
        for packet in 0..PACKETS {
            let (asked, frame) = &flows[packet % flows.len()];
            let out = router.send(frame);
            let link = router.link();
            if intervals.last().is_none_or(|i| i.link.epoch != link.epoch) {
                intervals.push(Interval { link, sent: vec![] });
            }
            let sent = Sent {
                size_B: frame.len() as u64,
                asked: *asked,
                delta_Bps: edit::check(frame, &out).expect("a forward header").into(),
            };
            intervals.last_mut().unwrap().sent.push(sent);
        }
        sleep(PAUSE);
    }
    intervals
}

fn close(measured: f64, expected: f64, what: &str) {
    let off = (measured - expected).abs();
    assert!(
        off <= TOLERANCE * expected.abs() + 2.0,
        "{what}: {measured}, expected {expected}"
    );
}

/// Recomputes step by step what an interval derived from the packets of the previous one.
fn check_law(last: &Interval, now: &Interval, capacity_Bps: f64, published: bool) {
    let (alpha, gammas) = if published { PUBLISHED } else { ANTICIPATING };
    let (law, state) = (now.law(), &now.link.state);
    let sum_x: u64 = last.sent.iter().map(|s| u64::from(s.asked.x_ticks)).sum();
    let traffic_B: u64 = last.sent.iter().map(|s| s.size_B).sum();
    assert_eq!(law.pos.total, sum_x, "sum of X");

    let rtt_x = last.sum(|s| f64::from(s.asked.rtt_ticks) * f64::from(s.asked.x_ticks));
    let d = rtt_x / sum_x as f64;
    close(
        state.d.m as f64 * f64::from(state.d.e).exp2(),
        d,
        "average RTT, ticks",
    );
    close(
        state.interval_ns as f64,
        d / TICKS_PER_S * 1e9,
        "interval, ns",
    );

    let y = state.y_Bps as f64;
    let elapsed_ns = state.interval_start_ns - last.link.state.interval_start_ns;
    close(y, traffic_B as f64 / elapsed_ns as f64 * 1e9, "input rate");
    // the loopback device has no queue: Q = 0
    assert_eq!(state.queue_B, 0);
    let most = |s: &Sent| s.size_B as f64 * TICKS_PER_S / f64::from(s.asked.rtt_ticks);
    let granted = last.sum(|s| (s.delta_Bps as f64).clamp(-most(s).floor(), most(s).floor()));
    close(state.granted_Bps as f64, granted, "granted");
    let ahead = match published {
        true => 0.0,
        false => granted + (last.link.state.granted_Bps >> 1) as f64,
    };
    let f = alpha * (capacity_Bps - (y + ahead).max(0.0));
    // the router expects at most as many bytes as the capacity
    let expected_B = match !published && f < 0.0 && y > capacity_Bps {
        true => traffic_B as f64 * capacity_Bps / y,
        false => traffic_B as f64,
    };
    close(law.neg.total as f64, expected_B, "traffic of a cut");
    close(state.f_Bps as f64, f, "aggregate feedback");
    let elapsed = elapsed_ns as f64 / 1e9 * TICKS_PER_S;
    let flows = f64::from(state.flows.now) / 256.0;
    assert!(
        (flows - sum_x as f64 / elapsed).abs() < 0.01,
        "{flows} flows"
    );
    let gamma = gammas[usize::from(state.flows.changed == 0)];
    let shuffle = (gamma * y - f.abs()).max(0.0);
    close(now.Bps(law.pos_pool), f.max(0.0) + shuffle, "pos");
    close(now.Bps(law.neg_pool), (-f).max(0.0) + shuffle, "neg");
}

/// Recomputes the grant of each packet; `spare` is what was granted and not written yet.
fn check_shares(now: &Interval, published: bool, spare: &mut f64) {
    let (mut pos, mut neg) = (now.Bps(now.law().pos_pool), now.Bps(now.law().neg_pool));
    let (p_unit, n_unit) = (
        pos / now.law().pos.total as f64,
        neg / now.law().neg.total as f64,
    );
    // unclaimed grants of the interval before are counted again
    *spare = spare.fract();
    let most = pos * PASSED_ON;
    // conservation: at most the pools plus what is carried over
    let total = now.sum(|s| s.delta_Bps as f64);
    assert!(total <= pos + *spare + 1.0, "{total} granted of {pos}");
    assert!(total >= -neg - 1.0, "decreases of {total} granted of {neg}");

    let passes_on = !published && now.link.state.f_Bps >= 0;
    for s in &now.sent {
        let mut p = (p_unit * f64::from(s.asked.x_ticks)).min(pos);
        let mut n = (n_unit * s.size_B as f64).min(neg);
        let (asked, got, share) = (f64::from(s.asked.delta_Bps), s.delta_Bps as f64, p - n);
        if asked > share + *spare {
            close(got, share + *spare, "delta");
            *spare += share - got;
        } else {
            close(got, asked, "the delta of a small request");
            if asked > share {
                *spare -= asked - share;
            } else if passes_on {
                let rest = (share - asked).min((most - *spare).max(0.0));
                *spare += rest;
                p = asked + n + rest;
            } else {
                // a smaller request may use up more of the pool of decreases
                n = (n + share - asked).min(neg);
                p = asked + n;
            }
        }
        (pos, neg) = ((pos - p).max(0.0), (neg - n).max(0.0));
    }
}

fn check(capacity_Bps: u64, published: bool) -> Option<Vec<Interval>> {
    let router = Router::with(Options {
        capacity_bytes_per_s: capacity_Bps,
        without: match published {
            true => LawTerms::all(),
            false => LawTerms::default(),
        },
        ..Default::default()
    })?;
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let intervals = run(&router);
    assert!(intervals.len() >= 3, "only {} intervals", intervals.len());
    assert!(intervals[0].sent.iter().all(|s| s.delta_Bps == 0));
    let mut spare = 0.0;
    for pair in intervals.windows(2) {
        check_law(&pair[0], &pair[1], capacity_Bps as f64, published);
        check_shares(&pair[1], published, &mut spare);
    }

    let counted = router.counters();
    let granted_Bps: i64 = intervals
        .iter()
        .flat_map(|i| &i.sent)
        .map(|s| s.delta_Bps)
        .sum();
    assert_eq!(counted.granted_Bps, granted_Bps, "granted in headers");
    assert_eq!(counted.xcp_packets, (ROUNDS * PACKETS) as u64);
    assert_eq!(router.link().state.intervals, intervals.len() as u64 - 1);
    Some(intervals)
}

#[test]
fn idle_link_grants_increases() {
    for published in [false, true] {
        let Some(intervals) = check(12_500_000, published) else {
            return;
        };
        let deltas = intervals.iter().flat_map(|i| &i.sent).map(|s| s.delta_Bps);
        let most = deltas.max();
        assert!(most > Some(1000), "at most {most:?} B/s");
    }
}

#[test]
fn overloaded_link_grants_decreases() {
    for published in [false, true] {
        let Some(intervals) = check(1_000, published) else {
            return;
        };
        let deltas = intervals.iter().flat_map(|i| &i.sent).map(|s| s.delta_Bps);
        let least = deltas.min();
        assert!(least < Some(-100), "at least {least:?} B/s");
    }
}

#[test]
fn fully_loaded_link_shuffles() {
    for published in [false, true] {
        // about the rate that run() sends
        check(280_000, published);
    }
}

/// The input traffic of a very short interval is no rate: two packets may arrive together.
#[test]
fn changes_of_the_capacity_do_not_end_intervals_that_have_just_begun() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    let frame = cases::data(cases::default_request(), 1448);
    router.send(&frame);
    let first = router.link().state;
    for change in 1..=50 {
        router.set_capacity(CAPACITY_BPS + change);
        // the link is sampled every 100 us
        sleep(Duration::from_micros(200));
        router.send(&frame);
    }
    let now = router.link().state;
    let shortest_ns = u64::from(XCP_INITIAL_INTERVAL_NS).min(now.interval_ns) / 4;
    let most = (now.interval_start_ns - first.interval_start_ns) / shortest_ns;
    let ended = now.intervals - first.intervals;
    assert!(ended <= most, "{ended} intervals, at most {most}");
}
