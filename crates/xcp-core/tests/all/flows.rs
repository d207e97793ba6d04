// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of core/xcp_flows.h: the number of flows, and the share of traffic that is shuffled.

#![allow(non_snake_case)] // units in names

use xcp_core::*;

const RTT: u64 = 26_843_546; // 0.1 s
const INTERVAL_NS: u64 = 100_000_000;
const MUCH: f64 = 0.4;
const LITTLE: f64 = 0.03;

struct Link {
    router: Router,
    now_ns: u64,
}

impl Link {
    fn new(without: u32) -> Self {
        let params = xcp_router_params {
            capacity_Bps: 1_250_000,
            min_interval_ns: 1_000_000,
            without,
            ..xcp_router_params::default()
        };
        Link {
            router: Router::new(params, 0),
            now_ns: 0,
        }
    }

    /// Runs an interval in which this many flows send 2 packets each; returns gamma after it.
    fn gamma(&mut self, flows: f64) -> f64 {
        let packets = (2.0 * flows).ceil();
        for _ in 0..packets as u32 {
            self.router.arrival(1500);
            let x = (flows * RTT as f64 / packets) as u64;
            self.router.arrival_xcp(1, 1500, x, RTT);
        }
        self.now_ns += INTERVAL_NS;
        assert!(self.router.interval_end(self.now_ns));
        assert!((self.router.flows() - flows).abs() <= 0.01 * flows);
        (self.router.gamma() * 1e6).round() / 1e6
    }

    /// Runs 60 intervals; returns how many of them at the start shuffle much, and checks that
    /// all others shuffle little.
    fn much(&mut self, flows: f64) -> usize {
        let gammas: Vec<f64> = (0..60).map(|_| self.gamma(flows)).collect();
        let much = gammas.iter().take_while(|g| **g == MUCH).count();
        assert!(gammas[much..].iter().all(|g| *g == LITTLE), "{gammas:?}");
        much
    }
}

/// Much traffic is shuffled while N differs from its mean, which moves by an eighth of the
/// difference per interval, and for 9 intervals after that.
#[test]
fn much_traffic_is_shuffled_after_flows_start_or_end() {
    let mut link = Link::new(0);
    // 3 (7/8)^13 > 1/2 > 3 (7/8)^14
    assert_eq!(link.much(3.0), 14 + 9);
    // (7/8)^5 is close to 1/2, so rounding decides
    assert!((14..=15).contains(&link.much(4.0)));
    assert!((14..=15).contains(&link.much(3.0)));
    assert_eq!(link.much(3.0), 0);
}

/// A few new flows among many are no reason to disturb the windows of all.
#[test]
fn little_traffic_is_shuffled_if_few_of_many_flows_start_or_end() {
    let mut link = Link::new(0);
    assert!(link.much(100.0) > 20);
    assert_eq!(link.much(105.0), 0);
    assert_eq!(link.much(99.0), 0);
    assert!(link.much(120.0) > 10);
}

#[test]
fn published_law_always_shuffles_a_tenth() {
    let mut link = Link::new(PUBLISHED);
    for flows in [1.0, 1.0, 5.0, 100.0, 100.0] {
        assert_eq!(link.gamma(flows), 0.1);
    }
}
