// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The trace contains the router's decisions, each interval once, and nothing
//! from before its reader started.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::thread::sleep;
use std::time::Duration;

use crate::support::{pin, Router};
use crate::wire::cases;
use xcp_datapath::trace::{Interval, Ring};

const CAPACITY_BPS: u64 = 1_250_000;
/// Longer than the golden packet's RTT and the first interval of 200 ms.
const INTERVAL: Duration = Duration::from_millis(210);

/// Sends packets during an interval, and one after its end.
fn interval(router: &Router) {
    let frame = cases::named("forward").bytes();
    for _ in 0..20 {
        router.send(&frame);
    }
    sleep(INTERVAL);
    router.send(&frame);
}

fn all(trace: &Ring) -> Vec<Interval> {
    std::iter::from_fn(|| trace.next(Duration::ZERO).unwrap()).collect()
}

#[test]
fn every_interval_is_traced_once() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    assert!(pin::stay_on_this_cpu());
    let trace = router.bench().trace().unwrap();
    for _ in 1..=3 {
        let before = router.link().epoch;
        interval(&router);
        let told = all(&trace);
        let link = router.link();
        // more than one if this thread was not scheduled for that long
        assert!(link.epoch > before);
        assert_eq!(told.len(), (link.epoch - before) as usize, "{told:?}");
        let told = told[told.len() - 1];
        let law = &link.law[link.epoch as usize & 1];
        assert_eq!(told.capacity_bps, link.state.capacity_Bps * 8);
        assert_eq!(told.input_rate_bps, link.state.y_Bps * 8);
        assert_eq!(told.feedback_bps, link.state.f_Bps * 8);
        assert_eq!(told.increase_bps, (law.pos_pool >> law.shift) * 8);
        assert_eq!(told.decrease_bps, (law.neg_pool >> law.shift) * 8);
        assert_eq!(told.persistent_queue_bytes, link.state.queue_B);
        assert_eq!(told.queue_bytes, link.seen.backlog_B);
        let link_bps = link.state.capacity.link_Bps * 8;
        assert_eq!(told.link_bps.unwrap_or(0), link_bps);
        let end_ns = Duration::from_secs_f64(told.time_s).as_nanos() as i128;
        assert!((end_ns - i128::from(link.state.interval_start_ns)).abs() < 1000);
        assert!(told.interval_s >= INTERVAL.as_secs_f64(), "{told:?}");
        let rtt_s = told.average_rtt_s;
        assert!((rtt_s * 1e9 - link.state.interval_ns as f64).abs() < 10.0);
    }
}

#[test]
fn intervals_before_the_reader_started_are_not_traced() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    assert!(pin::stay_on_this_cpu());
    interval(&router);
    let trace = router.bench().trace().unwrap();
    assert_eq!(all(&trace), []);
    let before = router.link().epoch;
    interval(&router);
    let ended = router.link().epoch - before;
    assert!(ended > 0);
    assert_eq!(all(&trace).len(), ended as usize);
}

#[test]
fn csv_and_json_have_the_same_fields() {
    let interval = xcp_testbed::interval();
    assert_eq!(
        interval.csv(),
        "100.25,0.1,0.1,10000000,,9500000,0,4500,1500,-120000,830000,950000,0.5,2"
    );
    let json = serde_json::to_value(interval).expect("plain values");
    let head = Interval::csv_head();
    let mut names: Vec<&str> = head.split(',').collect();
    names.sort_unstable();
    let fields = json.as_object().expect("an object");
    assert!(fields.keys().eq(names), "{fields:?}");
}
