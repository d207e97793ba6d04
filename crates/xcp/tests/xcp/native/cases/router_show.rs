// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What `xcp router add` and `show` print about a device: why packets may bypass the
//! router, the shaping rate, and the number of dropped packets.

use crate::command::NetNamespace;
use crate::common::{pattern, test_lock, transfer, HostOn, Net};
use serde_json::Value;
use xcp_datapath::features::has_qdisc;
use xcp_datapath::router::{self, Options};
use xcp_testbed::{can_run, skipped, ForeignProgram};

/// Adds a router and checks that a warning with these words is printed, is in the JSON
/// output, and is shown later.
fn assert_warns(space: &NetNamespace, add: &str, words: &str, remedy: &str) {
    let added = space.xcp(add).ok();
    assert!(added.err.contains(words), "{add}: {added:?}");
    assert!(added.err.contains(remedy), "{add}: {added:?}");
    let device = add.split(' ').nth(2).unwrap();
    let again = space.xcp(&format!("{add} --json")).ok();
    assert_eq!(again.err, "", "{add}");
    let shown = space.xcp(&format!("router show {device} --json")).ok();
    for value in [again.json(), shown.json()] {
        let warnings = value["warnings"].as_array().unwrap().clone();
        let named = |w: &Value| w["reason"].as_str().unwrap().contains(words);
        assert!(warnings.iter().any(named), "{add}: {warnings:?}");
    }
    for args in ["router show".to_owned(), format!("router show {device}")] {
        let text = space.xcp(&args).ok().out;
        assert!(text.contains(words), "{args}: {text}");
    }
    space.xcp(&format!("router del {device}")).ok();
}

#[test]
fn a_router_on_a_bridge_causes_a_warning() {
    let _lock = test_lock();
    if !can_run("warning about a bridge") {
        return;
    }
    let space = NetNamespace::new("br");
    space.device("add br0 type bridge");
    let words = "is a bridge: frames that it forwards";
    let remedy = "ip link show master br0";
    assert_warns(&space, "router add br0 --capacity 10mbit", words, remedy);
    let port = space.xcp("router add v0 --capacity 10mbit").ok();
    assert_eq!(port.err, "", "a bridge without this device is no reason");
    space.xcp("router del v0").ok();
}

#[test]
fn a_router_on_a_device_without_a_queue_causes_a_warning() {
    let _lock = test_lock();
    if !can_run("warning about a device without a queue") {
        return;
    }
    let space = NetNamespace::new("nq");
    space.device("set v0 up");
    let add = "router add v0 --capacity 10mbit";
    let words = "has no queue (noqueue)";
    assert_warns(&space, &format!("{add} --no-qdisc"), words, "--shape");
    let shaped = space.xcp(&format!("{add} --shape")).ok();
    assert_eq!(shaped.err, "", "warning for a shaped device");
    assert_eq!(
        space.xcp("router show v0 --json").ok().json()["warnings"],
        serde_json::json!([])
    );
    space.xcp("router del v0").ok();
}

#[test]
fn an_xdp_program_in_the_network_namespace_causes_a_warning() {
    let _lock = test_lock();
    if !can_run("warning about an XDP program") {
        return;
    }
    let space = NetNamespace::new("xdp");
    let program = space.within(|| ForeignProgram::who_redirects("v1").unwrap());
    let words = "an XDP program redirects do not pass this router, and there is one on v1";
    let add = "router add v0 --capacity 10mbit";
    assert_warns(&space, add, words, "ip link set dev v1 xdp off");
    drop(program);
    assert_eq!(space.xcp(add).ok().err, "", "the program is detached");
    space.xcp("router del v0").ok();
}

#[test]
fn router_show_prints_one_line_per_router() {
    let _lock = test_lock();
    if !can_run("lines of routers") {
        return;
    }
    let space = NetNamespace::new("line");
    const ROUTERS: usize = 20;
    for i in 0..ROUTERS {
        space.device(&format!("add d{i} type veth peer name e{i}"));
        let add = format!("router add d{i} --capacity 10mbit --no-qdisc");
        space.xcp(&add).ok();
    }
    let text = space.xcp("router show").ok().out;
    assert_eq!(text.lines().count(), 1 + ROUTERS, "{text}");
    let first = text.lines().next().unwrap();
    for name in [
        "device",
        "capacity",
        "in use",
        "XCP's share",
        "queue",
        "drops",
    ] {
        assert!(first.contains(name), "{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for i in 0..ROUTERS {
        space.xcp(&format!("router del d{i}")).ok();
    }
}

/// A token bucket shapes, or the queue discipline xcp if this kernel supports it.
#[test]
fn the_shaping_rate_is_shown() {
    let _lock = test_lock();
    if !can_run("shown rate") {
        return;
    }
    let space = NetNamespace::new("rate");
    let shaped = |options: &str, rate_bps: u64| {
        space
            .xcp(&format!("router add v0 --capacity 10mbit {options}"))
            .ok();
        let json = space.xcp("router show v0 --json").ok().json();
        assert_eq!(json["shape_bps"], rate_bps, "{options}: {json}");
        let text = space.xcp("router show v0").ok().out;
        assert!(
            !text.contains("shaped to            -"),
            "{options}: {text}"
        );
    };
    shaped("--shape", 10_000_000);
    shaped("--shape 5mbit", 5_000_000);
    if has_qdisc() {
        shaped("", 10_000_000);
    } else {
        skipped(
            "rate of the queue discipline xcp",
            "this kernel does not support it",
        );
    }
    space.xcp("router del v0").ok();
}

#[test]
fn dropped_packets_are_counted() {
    let _lock = test_lock();
    if !can_run("counted drops") {
        return;
    }
    let net = Net::new("dr");
    let _host = HostOn::new();
    let drops = || net.within("r", || router::show("s").unwrap().drops);
    let options = |limit_packets| Options {
        capacity_bytes_per_s: 1_250_000,
        queueing: router::Queueing::Shape {
            rate_bytes_per_s: 1_250_000,
            limit_packets,
        },
        ..Options::default()
    };
    net.tool("r", "tc qdisc del dev s root");
    net.within("r", || router::add("s", options(2)).unwrap());
    // the system's default congestion control fills any queue
    let (mut client, mut server) = net.connect("reno", "reno");
    transfer(&mut client, &mut server, &pattern(500_000));
    assert!(drops() > 0);
}
