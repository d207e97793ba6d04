// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A router moves with its device to another network namespace, where `xcp router`
//! finds it.

use std::net::UdpSocket;

use crate::command::{NetNamespace, SystemState};
use crate::common::test_lock;
use serde_json::{json, Value};
use xcp_testbed::can_run;

/// Runs a test with two namespaces and a router on w0 of the first; it must leave
/// nothing behind.
fn moves(test: &str, add: &str, body: impl Fn(&NetNamespace, &NetNamespace)) {
    let _lock = test_lock();
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let (home, away) = (NetNamespace::new("home"), NetNamespace::new("away"));
    home.device("set v0 name w0");
    home.xcp(add).ok();
    body(&home, &away);
    before.assert_nothing_left();
}

fn routers(space: &NetNamespace) -> Value {
    space.xcp("router show --json").ok().json()["routers"].clone()
}

fn shown(space: &NetNamespace) -> Value {
    space.xcp("router show w0 --json").ok().json()
}

fn change(space: &NetNamespace, args: &str) -> Value {
    let ran = space.xcp(&format!("router add {args} --json")).ok();
    ran.json()["change"].clone()
}

fn index_of(space: &NetNamespace, device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: the argument is a C string.
    space.within(|| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

/// Checks that the router on w0 counts packets. A moved device is down and has no
/// addresses, so this sets it up first.
fn assert_counts(space: &NetNamespace) {
    space.device("set w0 up");
    space.address("replace 10.78.0.1/24 dev w0");
    space.neighbour("replace 10.78.0.2 lladdr 02:00:00:00:00:02 dev w0");
    let count = || shown(space)["other_packets"].as_u64().unwrap();
    let before = count();
    space.within(|| {
        let socket = UdpSocket::bind("10.78.0.1:0").unwrap();
        for _ in 0..10 {
            socket.send_to(b"x", ("10.78.0.2", 9)).unwrap();
        }
    });
    assert!(count() >= before + 10);
}

#[test]
fn a_router_moves_with_its_device_to_another_namespace_and_back() {
    moves(
        "router moved",
        "router add w0 --capacity 10mbit",
        |home, away| {
            home.device("set v1 up");
            assert_counts(home);
            let packets = shown(home)["other_packets"].as_u64();
            let number = index_of(home, "w0");

            home.move_to("w0", away);
            assert_ne!(index_of(away, "w0"), number, "the index must be taken");
            assert_eq!(routers(home), json!([]));
            assert_eq!(routers(away), json!([shown(away)]));
            assert_eq!(shown(away)["capacity_bps"], 10_000_000);
            assert!(shown(away)["other_packets"].as_u64() >= packets);
            assert_counts(away);
            away.xcp("router show v0").failed(
                1,
                "xcp: v0: no XCP router on this device\n  \
             help: add one: xcp router add v0 --capacity 10mbit\n",
            );
            assert_eq!(change(away, "w0 --capacity 20mbit"), "changed");
            assert_eq!(change(away, "w0 --capacity 20mbit"), "unchanged");
            assert_counts(away);

            away.move_to("w0", home);
            assert_eq!(routers(away), json!([]));
            assert_eq!(shown(home)["capacity_bps"], 20_000_000);
            assert_counts(home);
            home.xcp("router del w0").ok();
            assert_eq!(routers(home), json!([]));
        },
    );
}

#[test]
fn a_moved_router_is_removed_from_the_namespace_of_its_device() {
    moves(
        "router moved, removed",
        "router add w0 --capacity 10mbit",
        |home, away| {
            home.move_to("w0", away);
            assert_eq!(home.xcp("router del w0").code, Some(1));
            away.xcp("router del w0").ok();
            assert_eq!(routers(away), json!([]));
        },
    );
}

/// The kernel removes queue disciplines from a device that moves.
#[test]
fn a_moved_device_is_not_shown_as_shaped() {
    let add = "router add w0 --capacity 10mbit --shape";
    moves("router moved, shaped", add, |home, away| {
        let shaped = |space: &NetNamespace| {
            let shown = shown(space);
            shown["shape_bps"] == 10_000_000
                || (shown["qdisc"] == "xcp" && shown["qdisc_replaced"] == false)
        };
        assert!(shaped(home), "{}", shown(home));
        home.move_to("w0", away);
        assert!(!shaped(away), "{}", shown(away));
        assert_eq!(change(away, "w0 --capacity 10mbit --shape"), "changed");
        assert!(shaped(away), "{}", shown(away));
        away.xcp("router del w0").ok();
    });
}

#[test]
fn a_new_device_with_the_same_index_does_not_get_the_moved_router() {
    moves(
        "router moved, index taken",
        "router add w0 --capacity 10mbit",
        |home, away| {
            let number = index_of(home, "w0");
            home.move_to("w0", away);
            home.device(&format!("add w0 index {number} type veth peer name w1"));
            assert_eq!(index_of(home, "w0"), number);
            assert_eq!(home.xcp("router show w0").code, Some(1));
            assert_eq!(home.xcp("router del w0").code, Some(1));
            assert_eq!(change(home, "w0 --capacity 20mbit"), "added");
            assert_eq!(shown(home)["capacity_bps"], 20_000_000);
            home.xcp("router del w0").ok();
        },
    );
}
