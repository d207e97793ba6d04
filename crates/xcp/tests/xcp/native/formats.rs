// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every wire format over IPv4 and IPv6, on this kernel: what arrives is what
//! was sent, both ends speak XCP, and no connection breaks when they switch.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::common::{
    self, pattern, test_lock, transfer, wait_for_acks, wait_for_control, wait_until, HostOn, Net,
    LINK_BPS, SERVER, SERVER6,
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
fn both_ends_speak_every_format() {
    let _turn = test_lock();
    if !can_run("formats") {
        return;
    }
    let net = Net::new("f");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    let bytes = pattern(BYTES);
    for wire in Wire::ALL {
        net.speak(wire);
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
            assert_eq!(is.header_left_out, was.header_left_out);
            assert!(is.forward_received - was.forward_received > PACKETS);
            assert!(routed(&net) - seen > PACKETS);
        }
    }
}

/// One end speaks a header, the other has none, or does not use it.
#[test]
fn an_end_that_does_not_answer_gets_plain_tcp() {
    let _turn = test_lock();
    if !can_run("formats unanswered") {
        return;
    }
    let net = Net::new("u");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.speak(wire);
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
    // the server's host takes no headers: the third SYN goes without
    net.speak(Wire::Header);
    net.within("s", || host::speak(&PeerPolicies::default()))
        .unwrap();
    let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
    transfer(&mut client, &mut other, &pattern(100_000));
    assert_eq!(common::control(&client), common::default_control());
}

/// A server answers once more what it was asked, and in the same format.
#[test]
fn a_lost_syn_ack_costs_no_format() {
    let _turn = test_lock();
    if !can_run("formats with a lost SYN-ACK") {
        return;
    }
    let net = Net::new("y");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.speak(wire);
        for server in [SERVER, SERVER6] {
            let plan = FaultPlan {
                drop_syn_acks: 1,
                ..Default::default()
            };
            let accident = net.within("r", || FaultInjector::start("c", plan).unwrap());
            let (mut client, mut other) = net.connect_to(server, "xcp", "xcp");
            transfer(&mut client, &mut other, &pattern(100_000));
            transfer(&mut other, &mut client, &pattern(100_000));
            assert_eq!(accident.account().unwrap().dropped, 1, "{wire}");
            for end in [&client, &other] {
                assert_eq!(common::control(end), "xcp", "{wire}");
            }
        }
    }
}

/// Without a router on the path nobody is left uncontrolled, and the first
/// router brings XCP back.
#[test]
fn a_path_without_routers_is_noticed_in_every_format() {
    let _turn = test_lock();
    if !can_run("formats without routers") {
        return;
    }
    let net = Net::new("w");
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.speak(wire);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        println!("{wire}");
        let mut send_until = |control: &str| {
            wait_until(&format!("the congestion control {control}"), || {
                transfer(&mut client, &mut other, &pattern(100_000));
                common::control(&client) == control
            });
        };
        send_until(&common::default_control());
        net.add_routers(LINK_BPS);
        send_until("xcp");
        net.del_routers();
    }
}

/// Wire format, devices, routers and capacity change under a flow.
#[test]
fn switching_breaks_no_connection() {
    let _turn = test_lock();
    if !can_run("formats switched") {
        return;
    }
    let net = Net::new("x");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    let done = AtomicBool::new(false);
    let rounds = Wire::ALL.map(|_| AtomicUsize::new(0));
    let rounds = &rounds;
    thread::scope(|scope| {
        let ends = Done(&done);
        let mut flows = Vec::new();
        // a switch is over when every flow has sent something after it
        let settle = || {
            let before = rounds.each_ref().map(|r| r.load(Ordering::Relaxed));
            let settled = eventually(|| {
                let mut now = rounds.iter().zip(before);
                now.all(|(r, before)| r.load(Ordering::Relaxed) >= before + 2)
            });
            assert!(settled, "{before:?}, then {rounds:?}:\n{}", net.sockets());
        };
        for wire in Wire::ALL {
            net.speak(wire);
            let (client, other) = net.connect_to(SERVER, "xcp", "xcp");
            let done = &done;
            let rounds = &rounds[flows.len()];
            flows.push(scope.spawn(move || keep_sending(client, other, done, rounds)));
        }
        for round in 0..3 {
            for wire in Wire::ALL {
                net.speak(wire);
                net.add_routers(LINK_BPS / (1 + round));
                settle();
            }
            net.del_routers();
            settle();
            net.silence();
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

/// One end takes no headers any more; the other finds out.
#[test]
fn an_end_that_stops_breaks_no_connection() {
    let _turn = test_lock();
    if !can_run("formats stopped") {
        return;
    }
    let net = Net::new("e");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    net.speak(Wire::Header);
    let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
    transfer(&mut client, &mut other, &pattern(1_000_000));
    wait_for_control(&client, "xcp");
    net.within("s", || host::speak(&PeerPolicies::default()))
        .unwrap();
    transfer(&mut client, &mut other, &pattern(1_000_000));
    transfer(&mut other, &mut client, &pattern(1_000_000));
    wait_for_control(&client, &common::default_control());
}

/// The thesis used 200. Routers that know another number see no header.
#[test]
fn another_ip_protocol_is_for_hosts_and_routers_alike() {
    let _turn = test_lock();
    if !can_run("formats by protocol 200") {
        return;
    }
    let net = Net::new("p");
    let _host = HostOn::new();
    for wire in [Wire::Header, Wire::Header2004] {
        net.speak_by(wire, 200);
        net.add_routers_for(LINK_BPS, 200);
        let seen = routed(&net);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        transfer(&mut client, &mut other, &pattern(BYTES));
        assert_eq!(common::control(&client), "xcp");
        assert!(routed(&net) - seen > PACKETS);

        net.add_routers_for(LINK_BPS, IP_PROTO);
        let seen = routed(&net);
        let (mut client, mut other) = net.connect_to(SERVER, "xcp", "xcp");
        common::send_until_default(&mut client, &mut other, 100_000);
        assert_eq!(routed(&net), seen);
    }
}

/// Ends the flows, also where the test fails.
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
