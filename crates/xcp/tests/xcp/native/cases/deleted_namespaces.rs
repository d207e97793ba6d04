// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The kernel keeps the pins of a deleted network namespace. The next command removes
//! them, whichever it is.

use std::fs;

use crate::command::{xcp, NetNamespace, SystemState};
use crate::common::{test_lock, wait_until};
use xcp_testbed::can_run;

/// The number of pin folders.
fn pinned(part: &str) -> usize {
    let folder = format!("/sys/fs/bpf/xcp/{part}");
    fs::read_dir(folder).map_or(0, |entries| entries.count())
}

#[test]
fn the_next_command_removes_the_pins_of_a_deleted_namespace() {
    let _lock = test_lock();
    let test = "deleted namespace";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    xcp("host on").ok();
    for command in [
        "router show",
        "router trace lo",
        "host show",
        "doctor",
        "run -- ip -V",
    ] {
        let space = NetNamespace::new("gone");
        space.xcp("router add v0 --capacity 10mbit").ok();
        space.xcp("host on --dev v1").ok();
        let (routers, devices) = (pinned("router"), pinned("host/devices"));
        drop(space);
        // the kernel removes a namespace asynchronously
        wait_until(&format!("{command}: pins are gone"), || {
            let _ = xcp(command);
            pinned("router") < routers && pinned("host/devices") < devices
        });
    }
    xcp("host off").ok();
    before.assert_nothing_left();
}
