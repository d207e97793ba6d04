// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The link speed of a device changes.

use super::ethtool::set_speed;
use crate::command::{NetNamespace, SystemState};
use crate::common::test_lock;
use serde_json::json;
use xcp_testbed::{can_run, skipped};

#[test]
fn a_new_device_speed_is_shown_and_used_when_the_router_is_added_again() {
    let _lock = test_lock();
    let test = "speed of a device";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let space = NetNamespace::new("speed");
    // a driver that accepts any speed
    space.tuntap("add t0 mode tap");
    let set = |mbit| space.within(|| set_speed("t0", mbit));
    if let Err(e) = set(100) {
        return skipped(test, &format!("cannot set the speed of tap devices: {e}"));
    }
    let add = |args: &str| {
        let ran = space.xcp(&format!("router add t0 {args} --json")).ok();
        ran.json()["change"].clone()
    };
    let speeds = || {
        let shown = space.xcp("router show t0 --json").ok().json();
        (shown["speed_bps"].clone(), shown["new_speed_bps"].clone())
    };
    let text = || space.xcp("router show t0").ok().out;

    assert_eq!(add("--capacity auto"), "added");
    assert_eq!(speeds(), (json!(100_000_000), json!(null)));
    assert!(
        text().contains("\n  capacity             auto\n"),
        "{}",
        text()
    );

    set(1000).unwrap();
    assert_eq!(speeds(), (json!(100_000_000), json!(1_000_000_000)));
    let told = "auto; the device's speed is now 1.0 Gb/s: add the router again\n";
    assert!(text().contains(told), "{}", text());
    assert_eq!(add("--capacity auto"), "changed");
    assert_eq!(speeds(), (json!(1_000_000_000), json!(null)));
    assert_eq!(add("--capacity auto"), "unchanged");

    // a configured capacity takes precedence over the speed
    add("--capacity 10mbit");
    set(10).unwrap();
    assert_eq!(speeds(), (json!(null), json!(null)));
    space.xcp("router del t0").ok();
    before.assert_nothing_left();
}
