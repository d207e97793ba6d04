// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router` on a device of a namespace: a router stays when the command ends, `add`
//! changes only what differs, and `del` leaves nothing behind.

use crate::command::{xcp, NetNamespace, SystemState};
use crate::common::test_lock;
use serde_json::json;
use xcp_testbed::{can_run, shared_test_lock};

#[test]
fn a_router_is_added_changed_shown_and_removed() {
    let _lock = test_lock();
    let test = "router";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let space = NetNamespace::new("life");
    let qdiscs = space.tc("qdisc show dev v0");
    let xcp = |args: &str| space.xcp(args);

    let added = xcp("router add v0 --capacity 10mbit --overhead 18 --json").ok();
    assert_eq!(
        added.json(),
        json!({
            "device": "v0",
            "change": "added",
            "capacity_bps": 10_000_000,
            "measure": true,
            "xcp_share_percent": null,
            "overhead_bytes": 18,
            "mpu_bytes": 0,
            "cells": "none",
            "ip_proto": 253,
            "warnings": [],
        })
    );
    assert_eq!(space.tc("qdisc show dev v0"), qdiscs);
    let again = xcp("router add v0 --capacity 10mbit --overhead 18").ok();
    assert_eq!(
        again.out,
        "v0: was already an XCP router, nothing changed, 10.0 Mb/s\n"
    );
    let changed = xcp("router add v0 --capacity 2.5gbit").ok();
    assert_eq!(changed.out, "v0: changed, 2.5 Gb/s\n");

    let one = xcp("router show v0 --json").ok().json();
    assert_eq!(one["capacity_bps"], 2_500_000_000_u64);
    assert_eq!(one["overhead_bytes"], 0);
    assert_eq!(
        xcp("router show --json").ok().json()["routers"],
        json!([one])
    );
    assert!(xcp("router show v0")
        .ok()
        .out
        .starts_with("v0\n  capacity "));
    xcp("router show v1").failed(
        1,
        "xcp: v1: no XCP router on this device\n  \
         help: add one: xcp router add v1 --capacity 10mbit\n",
    );

    assert_eq!(
        xcp("router del v0").ok().out,
        "v0: no longer an XCP router\n"
    );
    assert_eq!(space.tc("qdisc show dev v0"), qdiscs);
    assert_eq!(xcp("router del v0").code, Some(1));
    assert_eq!(
        xcp("router show --json").ok().json(),
        json!({ "routers": [], "clouds": [] })
    );
    before.assert_nothing_left();
}

#[test]
fn all_options_are_shown() {
    let _lock = test_lock();
    let test = "router options";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let space = NetNamespace::new("opt");
    let set = "--capacity auto --overhead -14 --mpu 64 --atm --xcp-share 33";
    let added = space.xcp(&format!("router add v0 {set} --json"));
    assert_eq!(
        added.ok().json(),
        json!({
            "device": "v0",
            "change": "added",
            "capacity_bps": null,
            "measure": true,
            "xcp_share_percent": 33,
            "overhead_bytes": -14,
            "mpu_bytes": 64,
            "cells": "atm",
            "ip_proto": 253,
            "warnings": [],
        })
    );
    let again = space.xcp(&format!("router add v0 {set}")).ok().out;
    assert_eq!(
        again,
        "v0: was already an XCP router, nothing changed, auto\n"
    );
    let told = space.xcp("router show v0 --json").ok().json();
    for (name, value) in [
        ("capacity_bps", json!(null)),
        ("capacity_in_use_bps", json!(null)),
        ("measure", json!(true)),
        ("xcp_share_percent", json!(33)),
        ("overhead_bytes", json!(-14)),
        ("mpu_bytes", json!(64)),
        ("cells", json!("atm")),
        ("without", json!([])),
    ] {
        assert_eq!(told[name], value, "{name}");
    }
    let believed = space.xcp("router add v0 --capacity 1mbit --no-measure --ptm");
    assert_eq!(believed.ok().out, "v0: changed, 1.0 Mb/s\n");
    let text = space.xcp("router show v0").ok().out;
    for line in [
        "\n  capacity             1.0 Mb/s\n",
        "\n  link carries         not measured\n",
        "\n  XCP's share          in proportion to the flows\n",
        "\n  overhead             0 B per packet, PTM\n",
        "\n  law                  with all extensions\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let published = space.xcp("router add v0 --capacity 1mbit --no-anticipate");
    assert_eq!(published.ok().out, "v0: changed, 1.0 Mb/s\n");
    let text = space.xcp("router show v0").ok().out;
    assert!(
        text.contains("\n  law                  as published\n"),
        "{text}"
    );
    space.xcp("router del v0").ok();
    before.assert_nothing_left();
}

#[test]
fn the_next_command_cleans_up_after_a_deleted_device() {
    let _lock = test_lock();
    let test = "device gone";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let space = NetNamespace::new("gone");
    space.xcp("router add v0 --capacity 10mbit").ok();
    space.device("del v0");
    assert_eq!(
        space.xcp("router show --json").ok().json(),
        json!({ "routers": [], "clouds": [] })
    );
    space.device("add v2 type veth peer name v3");
    space.xcp("router add v2 --capacity 10mbit").ok();
    space.xcp("router del v2").ok();
    before.assert_nothing_left();
}

#[test]
fn unknown_devices_are_errors() {
    // these commands load no programs
    let _lock = shared_test_lock().unwrap();
    if !can_run("unknown device") {
        return;
    }
    for action in [
        "add xcp-none --capacity 1mbit",
        "del xcp-none",
        "show xcp-none",
    ] {
        xcp(&format!("router {action}")).failed(
            1,
            "xcp: xcp-none: no such network device here\n  \
             help: list the devices with `ip link`\n",
        );
    }
}
