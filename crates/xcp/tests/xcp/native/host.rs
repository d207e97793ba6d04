// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp host`: XCP stays on when the command ends, `on` changes only what differs, and
//! `off` leaves nothing behind.

use crate::command::{xcp, SystemState};
use crate::common::test_lock;
use serde_json::json;
use xcp_testbed::can_run;

#[test]
fn host_on_changes_only_what_differs_and_off_leaves_nothing() {
    let _lock = test_lock();
    let test = "host on and off";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let not_on = "xcp: XCP: is not on\n  help: turn it on: xcp host on\n";
    xcp("host show").failed(1, not_on);
    xcp("host off").failed(1, not_on);

    let group = xcp_datapath::cgroup_mount_point().unwrap();
    let change = |args: &str| xcp(args).ok().json()["change"].clone();
    assert_eq!(change("host on --json"), "added");
    assert_eq!(change("host on --json"), "unchanged");
    let status = xcp("host show --json").ok().json();
    assert_eq!(status["default"], false);
    assert_eq!(status["cgroup"], group.display().to_string());

    assert_eq!(change("host on --default --json"), "changed");
    assert_eq!(xcp("host show --json").ok().json()["default"], true);
    assert!(xcp("host show")
        .ok()
        .out
        .starts_with("XCP is on\n  control group "));

    let without = "host on --default --without losses --json";
    assert_eq!(change(without), "changed");
    assert_eq!(change(without), "unchanged");
    let status = xcp("host show --json").ok().json();
    assert_eq!(status["without"], json!(["losses"]));
    assert_eq!(change("host on --default --json"), "changed");
    let status = xcp("host show --json").ok().json();
    assert_eq!(status["without"], json!([]));

    assert_eq!(xcp("host off").ok().out, "XCP is off\n");
    xcp("host show").failed(1, not_on);
    before.assert_nothing_left();
}

#[test]
fn a_folder_that_is_not_a_control_group_is_refused() {
    let _lock = test_lock();
    let test = "no control group";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let ran = xcp("host on --cgroup /tmp");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.starts_with("xcp: /tmp: not a control group"),
        "{ran:?}"
    );
    before.assert_nothing_left();
}
