// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every wire format over IPv4 and IPv6, on this kernel: data arrives unchanged, both
//! peers use XCP, and no connection breaks when the format changes.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::common::{
    self, pattern, test_lock, transfer, wait_for_acks, wait_for_control, wait_until, HostOn, Net,
    LINK_BYTES_PER_S, SERVER, SERVER6,
};
use xcp_datapath::host::PeerPolicies;
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{host, router, Wire};
use xcp_testbed::{can_run, eventually, FaultInjector, FaultPlan};

const BYTES: usize = 8_000_000;
const PACKETS: u64 = (BYTES / 1500) as u64;

fn routed(net: &Net) -> u64 {
    let all = net.within("r", || router::list().unwrap());
    all.iter().map(|r| r.counters.xcp_packets).sum()
}

#[test]
fn both_peers_use_every_wire_format() {
    let _lock = test_lock();
    if !can_run("formats") {
        return;
    }
    let net = Net::new("f");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let bytes = pattern(BYTES);
    for wire in Wire::ALL {
        net.set_wire_format(wire);
        for server in [SERVER, SERVER6] {
            let (was, seen) = (host::counters().unwrap(), routed(&net));
            let (mut client, mut other) = net.connect_to(server, "xcp", "xcp");
            transfer(&mut client, &mut other, &bytes);
            wait_for_acks([&client, &other]);
            transfer(&mut other, &mut client, b"x");
            wait_for_acks([&client, &other]);
            let is = host::counters().unwrap();
            println!("{wire} to {server}: {is:?}");
            assert_eq!(common::control(&client), "xcp");
            assert_eq!(common::control(&other), "xcp");
            assert_eq!(is.sockets - was.sockets, 2);
            assert_eq!(is.fallbacks.total(), was.fallbacks.total());
            assert_eq!(is.header_omitted, was.header_omitted);
            assert!(is.forward_received - was.forward_received > PACKETS);
            assert!(routed(&net) - seen > PACKETS);
        }
    }
}

/// SACK blocks take the room that TCP reserves for headers.
#[test]
fn no_packet_with_a_header_is_longer_than_the_mtu() {
    let _lock = test_lock();
    if !can_run("formats with SACK blocks") {
        return;
    }
    let net = Net::new("t");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let plan = FaultPlan {
        drop_every: 40,
        ..Default::default()
    };
    let _faults =
        ["c", "s"].map(|dev| net.within("r", || FaultInjector::start(dev, plan).unwrap()));
    for wire in [Wire::Header, Wire::Header2004] {
        net.set_wire_format(wire);
        let (mut client, mut server) = net.connect_to(SERVER, "xcp", "xcp");
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| transfer(&mut from, &mut to, &pattern(BYTES)));
            transfer(&mut client, &mut server, &pattern(BYTES));
        });
    }
    for node in ["c", "r", "s"] {
        // a virtual link drops packets that are too long
        let links: Value = serde_json::from_str(&net.output(node, "ip -s -j link")).unwrap();
        for link in links.as_array().unwrap() {
            assert_eq!(link["stats64"]["rx"]["dropped"], 0, "{node}: {link}");
        }
    }
}

/// The client offers XCP; the server does not use XCP, or accepts no headers.
#[test]
fn a_peer_that_does_not_answer_gets_plain_tcp() {
    let _lock = test_lock();
    if !can_run("formats unanswered") {
        return;
    }
    let net = Net::new("u");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.set_wire_format(wire);
        for server in [SERVER, SERVER6] {
            let was = host::counters().unwrap();
            let (mut client, mut other) = net.connect_to(server, "xcp", &common::default_control());
            transfer(&mut client, &mut other, &pattern(100_000));
            assert_eq!(common::control(&client), common::default_control());
            let is = host::counters().unwrap();
            assert_eq!(is.sockets, was.sockets, "{wire}");
            assert_eq!(is.fallbacks.total() - was.fallbacks.total(), 1, "{wire}");
        }
    }
    // the server's host accepts no headers: the third SYN is sent without one
    net.set_wire_format(Wire::Header);
    net.within("s", || host::set_peer_policies(&PeerPolicies::default()))
        .unwrap();
    let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
    transfer(&mut client, &mut other, &pattern(100_000));
    assert_eq!(common::control(&client), common::default_control());
}

/// A server repeats its answer in the format of the request.
#[test]
fn a_lost_syn_ack_does_not_change_the_wire_format() {
    let _lock = test_lock();
    if !can_run("formats with a lost SYN-ACK") {
        return;
    }
    let net = Net::new("y");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.set_wire_format(wire);
        for server in [SERVER, SERVER6] {
            let plan = FaultPlan {
                drop_syn_acks: 1,
                ..Default::default()
            };
            let faults = net.within("r", || FaultInjector::start("c", plan).unwrap());
            let (mut client, mut other) = net.connect_to(server, "xcp", "xcp");
            transfer(&mut client, &mut other, &pattern(100_000));
            transfer(&mut other, &mut client, &pattern(100_000));
            assert_eq!(faults.account().unwrap().dropped, 1, "{wire}");
            for end in [&client, &other] {
                assert_eq!(common::control(end), "xcp", "{wire}");
            }
        }
    }
}

/// Without a router on the path, the sender falls back; with a router, it returns to
/// XCP.
#[test]
fn a_path_without_routers_is_detected_in_every_wire_format() {
    let _lock = test_lock();
    if !can_run("formats without routers") {
        return;
    }
    let net = Net::new("w");
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.set_wire_format(wire);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        println!("{wire}");
        let mut send_until = |control: &str| {
            wait_until(&format!("the congestion control {control}"), || {
                transfer(&mut client, &mut other, &pattern(100_000));
                common::control(&client) == control
            });
        };
        send_until(&common::default_control());
        net.add_routers(LINK_BYTES_PER_S);
        send_until("xcp");
        net.del_routers();
    }
}

/// Wire format, devices, routers and capacity change while flows are active.
#[test]
fn changing_formats_and_routers_breaks_no_connection() {
    let _lock = test_lock();
    if !can_run("formats switched") {
        return;
    }
    let net = Net::new("x");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let done = AtomicBool::new(false);
    let rounds = Wire::ALL.map(|_| AtomicUsize::new(0));
    let rounds = &rounds;
    thread::scope(|scope| {
        let ends = Done(&done);
        let mut flows = Vec::new();
        // a change is complete when every flow has sent something after it
        let settle = || {
            let before = rounds.each_ref().map(|r| r.load(Ordering::Relaxed));
            let settled = eventually(|| {
                let mut now = rounds.iter().zip(before);
                now.all(|(r, before)| r.load(Ordering::Relaxed) >= before + 2)
            });
            assert!(settled, "{before:?}, then {rounds:?}:\n{}", net.sockets());
        };
        for wire in Wire::ALL {
            net.set_wire_format(wire);
            let (client, other) = net.connect_to(SERVER, "xcp", "xcp");
            let done = &done;
            let rounds = &rounds[flows.len()];
            flows.push(scope.spawn(move || keep_sending(client, other, done, rounds)));
        }
        for round in 0..3 {
            for wire in Wire::ALL {
                net.set_wire_format(wire);
                net.add_routers(LINK_BYTES_PER_S / (1 + round));
                settle();
            }
            net.del_routers();
            settle();
            net.reset_peer_policies();
            settle();
        }
        host::off().unwrap();
        settle();
        drop(ends);
        for flow in flows {
            flow.join().unwrap();
        }
    });
}

/// The server accepts no more headers; the client detects it.
#[test]
fn a_peer_that_stops_accepting_headers_breaks_no_connection() {
    let _lock = test_lock();
    if !can_run("formats stopped") {
        return;
    }
    let net = Net::new("e");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    net.set_wire_format(Wire::Header);
    let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
    transfer(&mut client, &mut other, &pattern(1_000_000));
    wait_for_control(&client, "xcp");
    net.within("s", || host::set_peer_policies(&PeerPolicies::default()))
        .unwrap();
    transfer(&mut client, &mut other, &pattern(1_000_000));
    transfer(&mut other, &mut client, &pattern(1_000_000));
    wait_for_control(&client, &common::default_control());
}

/// The thesis used 200. Routers configured for another number see no headers.
#[test]
fn hosts_and_routers_must_use_the_same_ip_protocol_number() {
    let _lock = test_lock();
    if !can_run("formats by protocol 200") {
        return;
    }
    let net = Net::new("p");
    let _host = HostOn::new();
    for wire in [Wire::Header, Wire::Header2004] {
        net.set_wire_format_and_protocol(wire, 200);
        net.add_routers_with_protocol(LINK_BYTES_PER_S, 200);
        let seen = routed(&net);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        transfer(&mut client, &mut other, &pattern(BYTES));
        assert_eq!(common::control(&client), "xcp");
        assert!(routed(&net) - seen > PACKETS);

        net.add_routers_with_protocol(LINK_BYTES_PER_S, IP_PROTO);
        let seen = routed(&net);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        common::send_until_default(&mut client, &mut other, 100_000);
        assert_eq!(routed(&net), seen);
    }
}

/// Ends the flows when dropped, also if the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keep_sending(
    mut client: TcpStream,
    mut other: TcpStream,
    done: &AtomicBool,
    rounds: &AtomicUsize,
) {
    let bytes = pattern(200_000);
    while !done.load(Ordering::Relaxed) {
        transfer(&mut client, &mut other, &bytes);
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}
