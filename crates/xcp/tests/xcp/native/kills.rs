// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Commands that are killed after each of their lasting changes: the next command
//! completes the work, or undoes it.

use std::process::Command;

use super::cases::token_bucket::queue_disciplines;
use crate::command::killed::killed_after;
use crate::command::{xcp, NetNamespace, SystemState, XCP};
use crate::common::test_lock;
use xcp_testbed::{can_run, skipped};

/// Runs a command repeatedly and kills it after its 1st, 2nd, ... lasting change. Calls
/// `after` each time; returns the number of kills.
fn kill_after_each_change(make: impl Fn() -> Command, mut after: impl FnMut(usize)) -> usize {
    let mut moments = 0;
    while killed_after(&mut make(), moments + 1) {
        moments += 1;
        after(moments);
    }
    println!("killed at {moments} moments");
    moments
}

/// The state before the test, or None if the test cannot run.
fn begin(test: &str) -> Option<SystemState> {
    if !can_run(test) {
        return None;
    }
    if !killed_after(Command::new("ip").arg("link"), 1) {
        skipped(test, "processes may not be traced here");
        return None;
    }
    SystemState::capture_before(test)
}

#[test]
fn a_partly_added_router_is_completed_or_removed() {
    let _lock = test_lock();
    let Some(before) = begin("router, killed") else {
        return;
    };
    let space = NetNamespace::new("krt");
    let untouched = space.devices();
    let add = "router add v0 --capacity 10mbit --shape";
    let moments = kill_after_each_change(
        || space.command(add),
        |moment| {
            if moment % 2 == 0 {
                space.xcp(add).ok();
                let told = space.xcp("router show v0 --json").ok().json();
                assert_eq!(told["capacity_bps"], 10_000_000, "moment {moment}");
            }
            let _ = space.xcp("router del v0");
            assert_eq!(space.devices(), untouched, "moment {moment}");
        },
    );
    assert!(moments > 8, "{moments}");
    space.xcp("router del v0").ok();
    // kill the removal
    let moments = kill_after_each_change(
        || {
            space.xcp(add);
            space.command("router del v0")
        },
        |moment| {
            let _ = space.xcp("router del v0");
            assert_eq!(space.devices(), untouched, "moment {moment}");
        },
    );
    assert!(moments > 5, "{moments}");
    before.assert_nothing_left();
}

/// Every next command has the same result as with a complete router.
#[test]
fn a_partly_changed_router_is_changed_or_removed() {
    const PLAIN: &str = "router add v0 --capacity 10mbit";
    const SHAPED: &str = "router add v0 --capacity 10mbit --shape";
    const SLOWER: &str = "router add v0 --capacity 10mbit --shape 5mbit --limit 30";
    const DEL: &str = "router del v0";
    let _lock = test_lock();
    let Some(before) = begin("change of a router, killed") else {
        return;
    };
    let space = NetNamespace::new("kch");
    for (from, to) in [(SHAPED, SLOWER), (PLAIN, SHAPED), (SHAPED, PLAIN)] {
        for next in [to, PLAIN, DEL] {
            let result = || {
                space.xcp(next).ok();
                queue_disciplines(&space)
            };
            space.xcp(from).ok();
            let wanted = result();
            let change = || {
                space.xcp(from).ok();
                space.command(to)
            };
            let moments = kill_after_each_change(change, |moment| {
                let case = format!("{from}; {to}, killed at {moment}; {next}");
                assert_eq!(result(), wanted, "{case}");
            });
            assert!(moments > 5, "{moments}");
        }
    }
    let _ = space.xcp(DEL);
    before.assert_nothing_left();
}

#[test]
fn a_partly_upgraded_router_is_upgraded() {
    const ADD: &str = "router add v0 --capacity 10mbit";
    let _lock = test_lock();
    let Some(before) = begin("upgrade of a router, killed") else {
        return;
    };
    let space = NetNamespace::new("kre");
    let upgrade = || {
        space.xcp(ADD).ok();
        space.within(|| xcp_testbed::mark_as_other_build("v0").unwrap());
        space.command(ADD)
    };
    let moments = kill_after_each_change(upgrade, |moment| {
        space.xcp(ADD).ok();
        let again = space.xcp(&format!("{ADD} --json")).ok().json();
        assert_eq!(again["change"], "unchanged", "moment {moment}");
    });
    assert!(moments > 10, "{moments}");
    space.xcp("router del v0").ok();
    before.assert_nothing_left();
}

#[test]
fn a_partly_enabled_host_is_completed_or_turned_off() {
    const ALL: &str = "host on --default --wire header --dev v0 --dev v1 --peers 10.77.2.0/24";
    const DEFAULT: &str = "host on --default";
    const HEADER: &str = "host on --wire header --dev v0 --peers 10.77.2.0/24";
    let _lock = test_lock();
    let Some(before) = begin("host, killed") else {
        return;
    };
    let space = NetNamespace::new("kho");
    let untouched = space.devices();
    // `completed`: the remainder (0 even, 1 odd) of the moments after which the next
    // command completes the work; after the others, XCP is turned off
    for (from, to, completed) in [
        (None, ALL, 0),
        (None, ALL, 1),
        (Some(DEFAULT), HEADER, 0),
        (Some(HEADER), DEFAULT, 0),
    ] {
        let result = || {
            space.xcp(to).ok();
            let mut shown = space.xcp("host show --json").ok().json();
            // other programs of this machine open connections, too
            shown["counters"].take();
            (shown, space.devices())
        };
        let wanted = result();
        xcp("host off").ok();
        let on = || {
            // programs that are loaded already are not loaded again
            match from {
                Some(from) => drop(space.xcp(from).ok()),
                None => drop(xcp("host off")),
            }
            space.command(to)
        };
        let moments = kill_after_each_change(on, |moment| {
            let case = format!("{from:?}; {to}, killed at {moment}");
            if moment % 2 == completed {
                assert_eq!(result(), wanted, "{case}");
            } else {
                // this also works from another namespace
                let _ = xcp("host off");
                assert_eq!(space.devices(), untouched, "{case}");
            }
        });
        assert!(moments > 10, "{moments}");
        xcp("host off").ok();
        assert_eq!(space.devices(), untouched);
    }
    before.assert_nothing_left();
}

#[test]
fn the_next_run_cleans_up_after_killed_ones() {
    let _lock = test_lock();
    let Some(before) = begin("run, killed") else {
        return;
    };
    let run = || {
        let mut command = Command::new(XCP);
        command.args(["run", "--", "true"]);
        command
    };
    let moments = kill_after_each_change(run, |_| {});
    assert!(moments > 10, "{moments}");
    xcp("run -- true").ok();
    before.assert_nothing_left();
}
