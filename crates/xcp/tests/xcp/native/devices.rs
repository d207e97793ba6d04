// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp host on --dev`: what it changes on devices, and that `xcp host off` restores
//! them in all cases.

use std::process::Command;

use crate::command::{xcp, xcp_within, NetNamespace, Ran, SystemState, XCP};
use crate::common::{self, pattern, test_lock, transfer, Net, LINK_BYTES_PER_S, SERVER};
use serde_json::json;
use xcp_datapath::router;
use xcp_testbed::{can_run, FaultInjector, FaultPlan};

const HEADER: &str = "host on --wire header --dev v0 --peers 10.0.0.0/8";

/// Runs a test, which must leave nothing behind.
fn leaves_nothing(test: &str, body: impl Fn()) {
    let _lock = test_lock();
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let off = Off;
    body();
    drop(off);
    before.assert_nothing_left();
}

/// Attaches as many programs to a device's egress as the kernel allows.
fn fill_egress(dev: &str) -> Vec<FaultInjector> {
    std::iter::from_fn(|| FaultInjector::start(dev, FaultPlan::default()).ok()).collect()
}

/// Turns XCP off when dropped, also if a test fails.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        let _ = xcp("host off");
    }
}

#[test]
fn host_on_changes_only_devices_that_differ() {
    leaves_nothing("devices", || {
        let space = NetNamespace::new("dev");
        let elsewhere = NetNamespace::new("else");
        let untouched = space.devices();
        let segs = space.gso_max_segs("v0");
        assert!(segs > 1);
        let change = |args: &str| {
            let ran = space.xcp(&format!("{args} --json")).ok();
            ran.json()["change"].clone()
        };
        let shown = |what: &str| space.xcp("host show --json").ok().json()[what].clone();
        let segments = || (space.gso_max_segs("v0"), space.gso_max_segs("v1"));

        assert_eq!(change(HEADER), "added");
        assert_eq!(segments(), (1, segs));
        assert_eq!(shown("devices"), json!(["v0"]));
        assert_eq!(
            shown("wires"),
            json!([
                { "wire": null, "peers": null },
                { "wire": "header", "peers": "10.0.0.0/8" },
            ])
        );
        assert_eq!(change(HEADER), "unchanged");
        // these belong to one namespace; others have none
        let other = elsewhere.xcp("host show --json").ok().json();
        assert_eq!(
            (&other["devices"], &other["wires"]),
            (&json!([]), &json!([]))
        );

        assert_eq!(change(&format!("{HEADER} --dev v1")), "changed");
        assert_eq!(segments(), (1, 1));
        assert_eq!(shown("devices"), json!(["v0", "v1"]));
        let one = "host on --wire header --dev v1 --peers 10.0.0.0/8";
        assert_eq!(change(one), "changed");
        assert_eq!(segments(), (segs, 1));
        assert_eq!(shown("devices"), json!(["v1"]));
        assert_eq!(change(&format!("{one} --ip-proto 200")), "changed");
        assert_eq!(segments(), (segs, 1));

        // to make room on ACKs, a program is attached but the device is not changed
        assert_eq!(change("host on --dev v1"), "changed");
        assert_eq!(segments(), (segs, segs));
        assert_eq!(shown("devices"), json!(["v1"]));
        assert_eq!(shown("wires"), json!([]));

        assert_eq!(change("host on"), "changed");
        assert_eq!(shown("devices"), json!([]));
        assert_eq!(space.devices(), untouched);

        // turned off from another namespace
        assert_eq!(change(&format!("{HEADER} --dev v1")), "changed");
        elsewhere.xcp("host off").ok();
        assert_eq!(space.devices(), untouched);
    });
}

#[test]
fn a_namespace_without_a_name_is_found_through_its_processes() {
    leaves_nothing("devices of a process", || {
        let mut script = Command::new("unshare");
        script.args(["--net", "sh", "-c"]).arg(
            "ip link add v0 type veth peer name v1 && \
             $XCP host on --wire header --dev v0 --peers 10.0.0.0/8 >/dev/null && \
             ip -d -o link show v0 && $OFF && ip -d -o link show v0",
        );
        let off = format!(
            "nsenter --net=/proc/{}/ns/net {XCP} host off",
            std::process::id()
        );
        script.env("XCP", XCP).env("OFF", off);
        let ran = Ran::of(&mut script).ok();
        let (on, after) = ran.out.split_once("XCP is off").unwrap();
        assert!(on.contains("gso_max_segs 1 "), "{on}");
        assert!(after.contains("gso_max_segs 65535 "), "{after}");
    });
}

#[test]
fn a_deleted_device_leaves_nothing_behind() {
    leaves_nothing("device gone", || {
        let space = NetNamespace::new("gone");
        space.xcp(HEADER).ok();
        space.device("del v0");
        let shown = space.xcp("host show --json").ok().json();
        assert_eq!(shown["devices"], json!([]));
        // a new device of the same name is not configured
        space.device("add v0 type veth peer name v1");
        let untouched = space.devices();
        assert_eq!(
            space.xcp(&format!("{HEADER} --json")).ok().json()["change"],
            "changed"
        );
        assert_eq!(space.gso_max_segs("v0"), 1);
        xcp("host off").ok();
        assert_eq!(space.devices(), untouched);
    });
}

#[test]
fn a_failed_command_changes_nothing() {
    leaves_nothing("devices refused", || {
        let space = NetNamespace::new("bad");
        let untouched = space.devices();
        let no_device = "xcp: none: no such network device here\n  \
                         help: list the devices with `ip link`\n";
        let needs = "xcp: wire format header: needs the devices that carry it and the peers that \
                     understand it: others do not know the protocol and reject it\n  \
                     help: name them: xcp host on --wire header --dev eth0 --peers 10.0.0.0/8\n";
        let bad_value = |thing: &str, reason: &str, remedy: &str| {
            format!("xcp: {thing}: {reason}\n  help: {remedy}\n")
        };
        let prefix = "give an address or a prefix, such as 10.0.0.0/8 or 2001:db8::/32";
        let lines = [
            (
                "--wire header --dev v0 --dev none --peers 10.0.0.0/8",
                1,
                no_device.to_owned(),
            ),
            ("--default --dev none", 1, no_device.to_owned()),
            ("--wire header --peers 10.0.0.0/8", 1, needs.to_owned()),
            ("--wire header --dev v0", 1, needs.to_owned()),
            (
                "--dev v0 --peers 10.0.0",
                2,
                bad_value("--peers 10.0.0", "not an address", prefix),
            ),
            (
                "--dev v0 --peers 10.0.0.0/33",
                2,
                bad_value(
                    "--peers 10.0.0.0/33",
                    "not a prefix length of 0 to 32",
                    prefix,
                ),
            ),
            (
                "--dev v0 --peers 10.0.0.1/8",
                2,
                bad_value(
                    "--peers 10.0.0.1/8",
                    "bits after the first 8 are not zero",
                    prefix,
                ),
            ),
            (
                "--dev v0 --ip-proto 6",
                2,
                bad_value(
                    "--ip-proto 6",
                    "too small",
                    "give an IP protocol from 148 to 254",
                ),
            ),
            (
                "--dev v0 --wire tcp",
                2,
                bad_value(
                    "--wire tcp",
                    "no such wire format",
                    "give one of option, option-2005, header, header-2004",
                ),
            ),
        ];
        let off = SystemState::capture_before("devices refused").unwrap();
        for (args, code, told) in &lines {
            space.xcp(&format!("host on {args}")).failed(*code, told);
            off.assert_nothing_left();
        }
        // the same while XCP is on
        space.xcp("host on --dev v0").ok();
        let (seen, shown) = (space.devices(), space.xcp("host show").ok().out);
        for (args, code, told) in &lines {
            space.xcp(&format!("host on {args}")).failed(*code, told);
        }
        assert_eq!(space.devices(), seen);
        assert_eq!(space.xcp("host show").ok().out, shown);
        space.xcp("host on").ok();
        let full = space.within(|| fill_egress("v1"));
        let ran = space.xcp(&format!("{HEADER} --dev v1"));
        ran.failed(
            1,
            "xcp: attaching the program: Numerical result out of range (os error 34)\n  \
             help: see `xcp doctor`\n",
        );
        assert_eq!(space.devices(), untouched, "v0 must be restored: v1 failed");
        drop(full);
        xcp("host off").ok();
        assert_eq!(space.devices(), untouched);
    });
}

/// The host's program inserts the header before the router's program reads it.
#[test]
fn a_router_on_the_hosts_device_sees_headers_that_the_host_inserts() {
    leaves_nothing("devices and router", || {
        for (first, second) in [("host", "router"), ("router", "host")] {
            let net = Net::new("h");
            net.add_routers(LINK_BYTES_PER_S);
            let xcp =
                |node: &str, args: &str| Ran::of(&mut xcp_within(&net.space(node), args)).ok();
            let tc = |args: &str| {
                common::output(
                    "nsenter",
                    &format!("--net=/run/netns/{} tc {args}", net.space("c")),
                )
            };
            let untouched = tc("qdisc show");
            let on = |part: &str| match part {
                "router" => xcp("c", "router add r --capacity 100mbit"),
                _ => xcp("c", "host on --wire header --dev r --peers 10.77.2.0/24"),
            };
            let off = |part: &str| match part {
                "router" => xcp("c", "router del r"),
                _ => xcp("s", "host off"),
            };
            on(first);
            on(second);
            xcp("s", "host on --wire header --dev r --peers 10.77.1.0/24");
            let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
            transfer(&mut client, &mut other, &pattern(2_000_000));
            let routers = net.within("c", || router::list().unwrap());
            assert!(routers[0].counters.xcp_packets > 1000, "{routers:?}");
            assert_eq!(common::control(&client), "xcp");
            drop((client, other));

            off(first);
            assert_eq!(tc("qdisc show"), untouched);
            off(second);
            assert_eq!(tc("qdisc show"), untouched);
        }
    });
}
