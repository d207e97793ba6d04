// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A router that shapes with a token bucket, because the kernel does not support the queue
//! discipline `xcp`.

use crate::command::{NetNamespace, SystemState};
use crate::common::test_lock;
use serde_json::Value;
use xcp_datapath::features::has_qdisc;
use xcp_testbed::{can_run, skipped, TestLock};

/// The queue disciplines of v0 from tc, without handles.
pub fn queue_disciplines(space: &NetNamespace) -> Value {
    let mut all: Value = serde_json::from_str(&space.tc("-j qdisc show dev v0")).unwrap();
    for qdisc in all.as_array_mut().unwrap() {
        let qdisc = qdisc.as_object_mut().unwrap();
        qdisc.retain(|key, _| key == "kind" || key == "options");
    }
    all
}

/// The lock, the state before and a namespace for a test that needs a kernel without the
/// queue discipline `xcp`.
fn without_qdisc(test: &str, name: &str) -> Option<(TestLock, SystemState, NetNamespace)> {
    let lock = test_lock();
    if !can_run(test) {
        return None;
    }
    if has_qdisc() {
        skipped(test, "the queue discipline xcp shapes on this kernel");
        return None;
    }
    let before = SystemState::capture_before(test)?;
    Some((lock, before, NetNamespace::new(name)))
}

#[test]
fn a_token_bucket_is_added_changed_and_removed() {
    let Some((_lock, before, space)) = without_qdisc("shaping", "tbf") else {
        return;
    };
    let none = queue_disciplines(&space);
    let xcp = |args: &str| space.xcp(args);
    let with = |rate_bytes_per_s: u64, packets: u64, overhead: u64| {
        let told = queue_disciplines(&space);
        assert_eq!(told[0]["kind"], "tbf", "{told}");
        assert_eq!(told[0]["options"]["rate"], rate_bytes_per_s, "{told}");
        let bytes = told[0]["options"]["overhead"].as_u64().unwrap_or(0);
        assert_eq!(bytes, overhead, "{told}");
        assert_eq!(told[1]["kind"], "pfifo", "{told}");
        assert_eq!(told[1]["options"]["limit"], packets, "{told}");
    };

    xcp("router add v0 --capacity 100mbit --shape").ok();
    with(12_500_000, 1666, 0);
    let again = xcp("router add v0 --capacity 100mbit --shape --json").ok();
    assert_eq!(again.json()["change"], "unchanged");
    let framed = "--shape 1mbit --limit 30 --overhead 38";
    let changed = xcp(&format!("router add v0 --capacity 100mbit {framed} --json"));
    assert_eq!(changed.ok().json()["change"], "changed");
    with(125_000, 30, 38);
    let told = xcp("router show v0 --json").ok().json();
    assert_eq!(told["qdisc"], "tbf");
    assert_eq!(told["shape_bps"], 1_000_000);
    xcp("router add v0 --capacity 100mbit").ok();
    assert_eq!(queue_disciplines(&space), none);
    // a rate of more than 2^32 - 1 bytes per second
    xcp("router add v0 --capacity 40gbit --shape").ok();
    with(5_000_000_000, 666_666, 0);
    xcp("router add v0 --capacity 1mbit --shape --ptm").failed(
        1,
        "xcp: v0: a token bucket (tbf) does not support PTM\n  help: shape the link by other \
         means (cake, the modem), and omit --shape\n",
    );
    xcp("router del v0").ok();
    assert_eq!(queue_disciplines(&space), none);
    before.assert_nothing_left();
}

#[test]
fn a_root_queue_discipline_that_xcp_did_not_set_is_kept() {
    let Some((_lock, before, space)) = without_qdisc("foreign root", "root") else {
        return;
    };
    space.tc("qdisc add dev v0 root pfifo limit 9");
    let chosen = queue_disciplines(&space);
    space.xcp("router add v0 --capacity 1mbit --shape").failed(
        1,
        "xcp: v0: has the root queue discipline pfifo, which xcp did not set\n  \
         help: remove it (tc qdisc del dev v0 root), or keep it and add the router \
         without --shape\n",
    );
    assert_eq!(queue_disciplines(&space), chosen);
    before.assert_nothing_left();
    // also if it replaced that of xcp
    space.tc("qdisc del dev v0 root");
    space.xcp("router add v0 --capacity 1mbit --shape").ok();
    space.tc("qdisc replace dev v0 root pfifo limit 9");
    space.xcp("router del v0").ok();
    assert_eq!(queue_disciplines(&space), chosen);
    before.assert_nothing_left();
}
