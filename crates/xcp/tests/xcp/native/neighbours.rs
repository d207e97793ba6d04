// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Other programs on the machine, and administrators: XCP does not disturb them, and it
//! detects programs that hide packets from it.

use crate::command::NetNamespace;
use crate::common::{pattern, test_lock, transfer, HostOn, Net, LINK_BYTES_PER_S};
use xcp_datapath::{host, router};
use xcp_testbed::{can_run, eventually, ForeignProgram};

const BYTES: usize = 2_000_000;

/// A program that requests socket callbacks gets them, whether the connections use XCP
/// or not.
#[test]
fn other_programs_keep_their_socket_callbacks() {
    let _lock = test_lock();
    if !can_run("callbacks of other programs") {
        return;
    }
    let net = Net::new("k");
    net.add_routers(LINK_BYTES_PER_S);
    for first in ["neighbour", "XCP"] {
        let early = (first == "neighbour").then(|| ForeignProgram::of_sockets().unwrap());
        let _host = HostOn::new();
        let neighbour = early.unwrap_or_else(|| ForeignProgram::of_sockets().unwrap());
        for (client, server) in [("reno", "reno"), ("xcp", "reno"), ("xcp", "xcp")] {
            let told = || neighbour.account().unwrap().rtts;
            let before = told();
            let (mut a, mut b) = net.connect(client, server);
            transfer(&mut a, &mut b, &pattern(BYTES));
            let rtts = told() - before;
            assert!(rtts > 2, "{first} first, {client} to {server}: {rtts}");
        }
        assert_eq!(host::counters().unwrap().sockets, 2);
    }
}

/// The router runs before the other programs of its device, or reports those that run
/// before it.
#[test]
fn a_program_that_ends_the_chain_runs_after_the_router_or_is_reported() {
    let _lock = test_lock();
    if !can_run("programs before the router") {
        return;
    }
    let net = Net::new("e");
    let _host = HostOn::new();
    let ends = |first| {
        net.within("r", || {
            ForeignProgram::ending_tcx_chain("s", first).unwrap()
        })
    };
    let seen = || {
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        net.within("r", || router::show("s").unwrap())
    };
    let early = ends(false);
    net.add_routers(LINK_BYTES_PER_S);
    let status = seen();
    assert!(status.counters.xcp_packets > 1000, "{status:?}");
    assert_eq!(status.programs_before, Vec::<String>::new());
    drop(early);

    let before = status.counters.xcp_packets;
    let _late = ends(true);
    let status = seen();
    assert_eq!(status.programs_before, ["xcp_ends"]);
    assert_eq!(
        status.counters.xcp_packets, before,
        "packets reached the router"
    );
}

#[test]
fn a_device_keeps_its_router_when_its_name_and_mtu_change() {
    let _lock = test_lock();
    if !can_run("changed devices") {
        return;
    }
    let space = NetNamespace::new("chg");
    space.device("add m0 numtxqueues 4 type veth peer name m1 numrxqueues 4");
    space.device("set m0 up");
    space.device("set m1 up");
    let xcp = |args: &str| space.xcp(args).ok();
    xcp("router add m0 --capacity 10mbit");
    space.device("set m0 name n0");
    space.device("set n0 mtu 9000");
    assert!(xcp("router show").out.contains("\nn0 "));
    xcp("router add n0 --capacity 20mbit");
    assert_eq!(
        xcp("router show n0 --json").json()["capacity_bps"],
        20_000_000
    );
    xcp("router del n0");
}

/// Without a queue, a measured capacity would grow without limit.
#[test]
fn a_device_without_a_queue_needs_a_configured_capacity() {
    let _lock = test_lock();
    if !can_run("capacity of a device without a queue") {
        return;
    }
    let space = NetNamespace::new("cap");
    space.device("set v0 up");
    space.xcp("router add v0 --capacity auto").failed(
        1,
        "xcp: v0: never queues packets (noqueue), so its capacity cannot be measured\n  \
         help: set the capacity: --capacity 10mbit\n",
    );
    space.xcp("router show v0 --json").failed(
        1,
        "{\"error\":{\"thing\":\"v0\",\"reason\":\"no XCP router on this device\",\
         \"remedy\":\"add one: xcp router add v0 --capacity 10mbit\"}}\n",
    );
    space.tc("qdisc add dev v0 root tbf rate 10mbit burst 10k limit 1m");
    space.xcp("router add v0 --capacity auto").ok();
    let told = space.xcp("router show v0 --json").ok().json();
    // the speed that a veth device reports
    assert_eq!(told["speed_bps"], 10_000_000_000_u64);
    space.xcp("router del v0").ok();
}

/// GSO packets from virtual machines and from other programs may have no segment count.
#[test]
fn gso_packets_without_a_segment_count_conserve_deltas() {
    let _lock = test_lock();
    if !can_run("GSO packets without a segment count") {
        return;
    }
    // on a busy machine few packets are merged, and one may be lost, and its header with it
    let complete = (0..3).any(|_| headers_of_unknown_segments_are_conserved());
    assert!(
        complete,
        "in three runs, headers were lost or GSO packets were few"
    );
}

/// False if a header was lost on the path, or there were few GSO packets.
fn headers_of_unknown_segments_are_conserved() -> bool {
    let net = Net::new("g");
    net.add_routers(LINK_BYTES_PER_S);
    let forgets = [
        net.within("r", || ForeignProgram::clearing_gso_segs("c").unwrap()),
        net.within("s", || ForeignProgram::clearing_gso_segs("r").unwrap()),
    ];
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(16 * BYTES));
    for (place, neighbour) in ["router", "server"].iter().zip(&forgets) {
        let forgotten = neighbour.account().unwrap().forgotten;
        if forgotten <= 10 {
            println!("{place}: {forgotten} GSO packets");
            return false;
        }
    }
    let all_came = eventually(|| {
        let hosts = host::counters().unwrap();
        hosts.forward_sent == hosts.forward_received
    });
    if !all_came {
        return false;
    }
    let hosts = host::counters().unwrap();
    let routers = net.within("r", || router::list().unwrap());
    let granted: i64 = routers.iter().map(|r| r.counters.granted_bytes_per_s).sum();
    let seen: u64 = routers.iter().map(|r| r.counters.xcp_packets).sum();
    assert_eq!(seen, hosts.forward_sent, "{hosts:?}");
    assert_eq!(granted, hosts.received_bytes_per_s, "{hosts:?}");
    true
}
