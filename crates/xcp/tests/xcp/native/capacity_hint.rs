// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router set` changes the capacity of a running router; the capacity hint of
//! `xcp router feed` ends with the command.

use std::io::Write;
use std::os::unix::net::UnixListener;

use crate::command::{interrupt, NetNamespace};
use crate::common::{test_lock, wait_until};
use serde_json::{json, Value};
use xcp_testbed::can_run;

fn shown(space: &NetNamespace) -> Value {
    space.xcp("router show v0 --json").ok().json()
}

/// Waits until the router has this capacity hint (null: none).
fn wait_hint(space: &NetNamespace, hint_bps: &Value) {
    wait_until(&format!("the hint {hint_bps}"), || {
        shown(space)["hint_bps"] == *hint_bps
    });
}

#[test]
fn router_set_changes_only_the_capacity() {
    let _lock = test_lock();
    if !can_run("router set") {
        return;
    }
    let space = NetNamespace::new("set");
    let xcp = |args: &str| space.xcp(args);
    xcp("router set v0 --capacity 5mbit").failed(
        1,
        "xcp: v0: no XCP router on this device\n  \
         help: add one: xcp router add v0 --capacity 10mbit\n",
    );
    xcp("router add v0 --capacity 10mbit --overhead 18 --xcp-share 30 --no-qdisc").ok();
    let before = shown(&space);
    let set = xcp("router set v0 --capacity 5mbit --json").ok().json();
    assert_eq!(
        set,
        json!({ "device": "v0", "change": "changed", "capacity_bps": 5_000_000 })
    );
    let mut after = shown(&space);
    assert_eq!(after["capacity_bps"], 5_000_000);
    after["capacity_bps"] = before["capacity_bps"].clone();
    assert_eq!(after, before);
    assert_eq!(
        xcp("router set v0 --capacity 5mbit").ok().out,
        "v0: hands out 5.0 Mb/s already\n"
    );
    space.device("set v0 up"); // noqueue
    let auto = xcp("router set v0 --capacity auto");
    assert_eq!(auto.code, Some(1), "{}", auto.err);
    assert_eq!(shown(&space)["capacity_bps"], 5_000_000);
    xcp("router del v0").ok();
}

#[test]
fn a_capacity_hint_ends_with_its_feed() {
    let _lock = test_lock();
    if !can_run("router feed") {
        return;
    }
    let space = NetNamespace::new("fed");
    space.xcp("router add v0 --capacity 10mbit").ok();
    let none = Value::Null;
    // the feed reads a pipe; some lines are not rates
    let mut feed = space.start("router feed v0 --expires 60 --json");
    let mut lines = feed.stdin.take().unwrap();
    lines
        .write_all(b"# modem\n3000000\nnonsense\n\n2mbit\n")
        .unwrap();
    wait_hint(&space, &json!(2_000_000));
    lines.write_all(b"0\n").unwrap();
    wait_hint(&space, &json!(8_000));
    drop(lines);
    let ended = feed.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(told, json!({ "device": "v0", "values": 3, "bad_lines": 1 }));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("\"nonsense\""));
    assert_eq!(shown(&space)["hint_bps"], none);
    // a hint expires, and Ctrl-C ends it
    let mut feed = space.start("router feed v0 --expires 0.3");
    let mut lines = feed.stdin.take().unwrap();
    lines.write_all(b"4mbit\n").unwrap();
    wait_hint(&space, &none);
    let mut long = space.start("router feed v0 --expires 60");
    let mut more_lines = long.stdin.take().unwrap();
    more_lines.write_all(b"4mbit\n").unwrap();
    wait_hint(&space, &json!(4_000_000));
    for child in [feed, long] {
        interrupt(&child);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    }
    drop((lines, more_lines));
    assert_eq!(shown(&space)["hint_bps"], none);
    // the feed goes on with a router that replaces this one, as after an upgrade
    let mut feed = space.start("router feed v0 --expires 60");
    let mut lines = feed.stdin.take().unwrap();
    lines.write_all(b"4mbit\n").unwrap();
    wait_hint(&space, &json!(4_000_000));
    space.xcp("router del v0").ok();
    space.xcp("router add v0 --capacity 10mbit").ok();
    lines.write_all(b"3mbit\n").unwrap();
    wait_hint(&space, &json!(3_000_000));
    drop(lines);
    assert_eq!(feed.wait_with_output().unwrap().status.code(), Some(0));
    // the feed reads a Unix socket
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("modem");
    let listener = UnixListener::bind(&path).unwrap();
    let feed = space.start(&format!("router feed v0 {} --expires 60", path.display()));
    let (mut modem, _) = listener.accept().unwrap();
    modem.write_all(b"1gbit\n").unwrap();
    wait_hint(&space, &json!(1_000_000_000));
    drop(modem);
    assert_eq!(feed.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(shown(&space)["hint_bps"], none);
    // a router that does not measure the capacity accepts no hint
    space
        .xcp("router add v0 --capacity 10mbit --no-measure")
        .ok();
    let refused = space.xcp("router feed v0");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("does not measure"), "{}", refused.err);
    space.xcp("router del v0").ok();
}
