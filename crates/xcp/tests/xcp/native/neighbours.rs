// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Other programs on the machine, and people: they and XCP leave each other
//! what is theirs, and what they take away is noticed.

use crate::command::Space;
use crate::common::{pattern, test_lock, transfer, HostOn, Net, LINK_BPS};
use xcp_datapath::{host, router};
use xcp_testbed::{can_run, eventually, ForeignProgram};

const BYTES: usize = 2_000_000;

/// A program that asks for callbacks of sockets gets them, whether the
/// connections speak XCP or not.
#[test]
fn callbacks_that_others_ask_for_stay() {
    let _turn = test_lock();
    if !can_run("callbacks of others") {
        return;
    }
    let net = Net::new("k");
    net.add_routers(LINK_BPS);
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

/// Of a device's programs the router is the first, or says who is before it.
#[test]
fn a_program_that_ends_the_chain_hides_no_packets_or_is_told() {
    let _turn = test_lock();
    if !can_run("programs before the router") {
        return;
    }
    let net = Net::new("e");
    let _host = HostOn::new();
    let ends = |first| {
        net.within("r", || {
            ForeignProgram::who_ends_the_chain("s", first).unwrap()
        })
    };
    let seen = || {
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        net.within("r", || router::show("s").unwrap())
    };
    let early = ends(false);
    net.add_routers(LINK_BPS);
    let status = seen();
    assert!(status.counters.xcp_packets > 1000, "{status:?}");
    assert_eq!(status.programs_before, Vec::<String>::new());
    drop(early);

    let before = status.counters.xcp_packets;
    let _late = ends(true);
    let status = seen();
    assert_eq!(status.programs_before, ["xcp_ends"]);
    assert_eq!(status.counters.xcp_packets, before, "they do not get here");
}

/// A device with another name, another MTU, other queues, is the same device.
#[test]
fn a_device_that_changes_keeps_its_router() {
    let _turn = test_lock();
    if !can_run("changed devices") {
        return;
    }
    let space = Space::new("chg");
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

/// Nothing is measured where nothing can be: the capacity would grow without
/// end.
#[test]
fn a_device_that_never_holds_packets_back_wants_a_capacity() {
    let _turn = test_lock();
    if !can_run("capacity of a device without a queue") {
        return;
    }
    let space = Space::new("cap");
    space.device("set v0 up");
    space.xcp("router add v0 --capacity auto").failed(
        1,
        "xcp: v0: never holds packets back (noqueue), so its capacity cannot be measured\n  \
         help: give it: --capacity 10mbit\n",
    );
    space.xcp("router show v0 --json").failed(
        1,
        "{\"error\":{\"thing\":\"v0\",\"reason\":\"no XCP router on this device\",\
         \"remedy\":\"add one: xcp router add v0 --capacity 10mbit\"}}\n",
    );
    space.tc("qdisc add dev v0 root tbf rate 10mbit burst 10k limit 1m");
    space.xcp("router add v0 --capacity auto").ok();
    let told = space.xcp("router show v0 --json").ok().json();
    // what a veth says of itself
    assert_eq!(told["speed_bps"], 10_000_000_000_u64);
    space.xcp("router del v0").ok();
}

/// Receive offload of a guest's packets, and what programs do, leave
/// super-packets whose segments nobody has counted.
#[test]
fn super_packets_of_unknown_segments_are_conserved() {
    let _turn = test_lock();
    if !can_run("super-packets of unknown segments") {
        return;
    }
    // beside other load a packet may be lost, and its header with it
    let all_came = (0..3).any(|_| headers_of_unknown_segments_are_conserved());
    assert!(all_came, "headers were lost three times");
}

/// False if a header was lost on the way.
fn headers_of_unknown_segments_are_conserved() -> bool {
    let net = Net::new("g");
    net.add_routers(LINK_BPS);
    let forgets = [
        net.within("r", || ForeignProgram::who_forgets("c").unwrap()),
        net.within("s", || ForeignProgram::who_forgets("r").unwrap()),
    ];
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(16 * BYTES));
    for (place, neighbour) in ["router", "server"].iter().zip(&forgets) {
        let forgotten = neighbour.account().unwrap().forgotten;
        assert!(forgotten > 10, "{place}: {forgotten}");
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
