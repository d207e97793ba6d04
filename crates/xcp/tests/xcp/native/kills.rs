// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Commands that are killed, at every moment at which they have changed
//! something: the next one completes it, or takes it down.

use std::process::Command;

use super::cases::token_bucket::queue_disciplines;
use crate::command::killed::killed_after;
use crate::command::{xcp, Space, Traces, XCP};
use crate::common::test_lock;
use xcp_testbed::{can_run, skipped};

/// Kills a command at each of its moments, has `after` look, and says how many
/// there were.
fn at_every_moment(make: impl Fn() -> Command, mut after: impl FnMut(usize)) -> usize {
    let mut moments = 0;
    while killed_after(&mut make(), moments + 1) {
        moments += 1;
        after(moments);
    }
    println!("killed at {moments} moments");
    moments
}

/// What was there before, or None where the test cannot run.
fn begin(test: &str) -> Option<Traces> {
    if !can_run(test) {
        return None;
    }
    if !killed_after(Command::new("ip").arg("link"), 1) {
        skipped(test, "processes may not be traced here");
        return None;
    }
    Traces::before(test)
}

#[test]
fn a_router_that_is_half_there_is_completed_or_taken_down() {
    let _turn = test_lock();
    let Some(before) = begin("router, killed") else {
        return;
    };
    let space = Space::new("krt");
    let untouched = space.devices();
    let add = "router add v0 --capacity 10mbit --shape";
    let moments = at_every_moment(
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
    // and in the middle of taking it away
    let moments = at_every_moment(
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
    before.gone();
}

/// Whatever the next command is, it does what it does to a router that is whole.
#[test]
fn a_router_that_is_half_changed_is_changed_or_taken_down() {
    const PLAIN: &str = "router add v0 --capacity 10mbit";
    const SHAPED: &str = "router add v0 --capacity 10mbit --shape";
    const SLOWER: &str = "router add v0 --capacity 10mbit --shape 5mbit --limit 30";
    const DEL: &str = "router del v0";
    let _turn = test_lock();
    let Some(before) = begin("change of a router, killed") else {
        return;
    };
    let space = Space::new("kch");
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
            let moments = at_every_moment(change, |moment| {
                let case = format!("{from}; {to}, killed at {moment}; {next}");
                assert_eq!(result(), wanted, "{case}");
            });
            assert!(moments > 5, "{moments}");
        }
    }
    let _ = space.xcp(DEL);
    before.gone();
}

#[test]
fn a_router_that_is_half_renewed_is_renewed() {
    const ADD: &str = "router add v0 --capacity 10mbit";
    let _turn = test_lock();
    let Some(before) = begin("upgrade of a router, killed") else {
        return;
    };
    let space = Space::new("kre");
    let upgrade = || {
        space.xcp(ADD).ok();
        space.within(|| xcp_testbed::call_another_version("v0").unwrap());
        space.command(ADD)
    };
    let moments = at_every_moment(upgrade, |moment| {
        space.xcp(ADD).ok();
        let again = space.xcp(&format!("{ADD} --json")).ok().json();
        assert_eq!(again["change"], "unchanged", "moment {moment}");
    });
    assert!(moments > 10, "{moments}");
    space.xcp("router del v0").ok();
    before.gone();
}

#[test]
fn a_host_that_is_half_on_is_completed_or_taken_down() {
    const ALL: &str = "host on --default --wire header --dev v0 --dev v1 --peers 10.77.2.0/24";
    const DEFAULT: &str = "host on --default";
    const HEADER: &str = "host on --wire header --dev v0 --peers 10.77.2.0/24";
    let _turn = test_lock();
    let Some(before) = begin("host, killed") else {
        return;
    };
    let space = Space::new("kho");
    let untouched = space.devices();
    // the even moments are completed or the odd ones, and the others taken down
    for (from, to, completed) in [
        (None, ALL, 0),
        (None, ALL, 1),
        (Some(DEFAULT), HEADER, 0),
        (Some(HEADER), DEFAULT, 0),
    ] {
        let result = || {
            space.xcp(to).ok();
            (space.xcp("host show --json").ok().json(), space.devices())
        };
        let wanted = result();
        xcp("host off").ok();
        let on = || {
            // what was completed before is not loaded again
            match from {
                Some(from) => drop(space.xcp(from).ok()),
                None => drop(xcp("host off")),
            }
            space.command(to)
        };
        let moments = at_every_moment(on, |moment| {
            let case = format!("{from:?}; {to}, killed at {moment}");
            if moment % 2 == completed {
                assert_eq!(result(), wanted, "{case}");
            } else {
                // also from elsewhere
                let _ = xcp("host off");
                assert_eq!(space.devices(), untouched, "{case}");
            }
        });
        assert!(moments > 10, "{moments}");
        xcp("host off").ok();
        assert_eq!(space.devices(), untouched);
    }
    before.gone();
}

#[test]
fn a_run_that_is_killed_leaves_nothing_to_the_next() {
    let _turn = test_lock();
    let Some(before) = begin("run, killed") else {
        return;
    };
    let run = || {
        let mut command = Command::new(XCP);
        command.args(["run", "--", "true"]);
        command
    };
    let moments = at_every_moment(run, |_| {});
    assert!(moments > 10, "{moments}");
    xcp("run -- true").ok();
    before.gone();
}
