// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Connections always have a congestion control that works: with a peer without XCP, a
//! middlebox that strips the option, or a path without XCP routers they fall back.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crate::common::{
    control, default_control, pattern, send_until_default, set_control, test_lock, transfer,
    wait_for_control, wait_until, HostOn, Net, SocketSetup, LINK_BYTES_PER_S, SERVER,
};
use xcp_datapath::{host, Wire};
use xcp_testbed::can_run;
use xcp_testbed::{FaultInjector, FaultPlan};

const BYTES: usize = 2_000_000;

#[test]
fn connections_to_a_peer_without_xcp_use_the_default_control() {
    let _lock = test_lock();
    if !can_run("peer without XCP") {
        return;
    }
    let net = Net::new("p");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for (client, server) in [("xcp", "reno"), ("reno", "xcp")] {
        let (mut a, mut b) = net.connect(client, server);
        transfer(&mut a, &mut b, &pattern(BYTES));
        for (end, chose) in [(&a, client), (&b, server)] {
            let expected = match chose {
                "xcp" => default_control(),
                other => other.to_owned(),
            };
            assert_eq!(control(end), expected, "{client} to {server}");
        }
    }
    assert_eq!(host::counters().unwrap().fallbacks.total(), 2);
    assert_eq!(host::counters().unwrap().sockets, 0);
}

#[test]
fn both_peers_fall_back_if_the_handshake_is_stripped() {
    let _lock = test_lock();
    if !can_run("stripped handshake") {
        return;
    }
    let net = Net::new("m");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    // the SYN leaves the router towards the server, the SYN-ACK to the client
    for (dev, strip) in [("s", 1), ("c", 2)] {
        let plan = FaultPlan {
            strip,
            ..Default::default()
        };
        let faults = net.within("r", || FaultInjector::start(dev, plan).unwrap());
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        transfer(&mut b, &mut a, &pattern(BYTES));
        assert_eq!(faults.account().unwrap().stripped, 1);
        assert_eq!(control(&a), default_control());
        assert_eq!(control(&b), default_control());
    }
    let counters = host::counters().unwrap();
    assert_eq!((counters.sockets, counters.fallbacks.total()), (0, 4));
    assert_eq!(
        counters.forward_sent, 0,
        "options were sent without agreement"
    );
}

#[test]
fn a_sender_falls_back_if_the_option_is_stripped_later() {
    let _lock = test_lock();
    if !can_run("option stripped later") {
        return;
    }
    let net = Net::new("l");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let faults = net.within("r", || {
        FaultInjector::start("c", FaultPlan::default()).unwrap()
    });
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "xcp");
    // no feedback arrives from now on
    let plan = FaultPlan {
        strip: 4,
        ..Default::default()
    };
    faults.plan(plan).unwrap();
    send_until_default(&mut a, &mut b, BYTES);
    let stripped = faults.account().unwrap().stripped;
    assert!(stripped > 100, "after {stripped} ACKs");
}

#[test]
fn a_sender_falls_back_without_routers_and_returns_to_xcp_with_them() {
    let _lock = test_lock();
    if !can_run("path without routers") {
        return;
    }
    let net = Net::new("r");
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
    // one header per RTT probes for a router, with a requested delta of 0
    let before = host::counters().unwrap().forward_sent;
    transfer(&mut a, &mut b, &pattern(4 * BYTES));
    let told = host::counters().unwrap().forward_sent - before;
    let packets = (4 * BYTES / 1500) as u64;
    assert!((1..packets / 2).contains(&told), "{told} of {packets}");
    net.add_routers(LINK_BYTES_PER_S);
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, "xcp");
    net.del_routers();
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
}

#[test]
fn a_control_selected_after_the_fallback_is_kept() {
    let _lock = test_lock();
    if !can_run("selection after the fallback") {
        return;
    }
    let net = Net::new("x");
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
    set_control(&a, "reno");
    net.add_routers(LINK_BYTES_PER_S);
    transfer(&mut a, &mut b, &pattern(BYTES));
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "reno");
    sends_few_headers(&mut a, &mut b);
}

/// Checks that a connection only looks for routers: one header in each RTT.
fn sends_few_headers(a: &mut TcpStream, b: &mut TcpStream) {
    let before = host::counters().unwrap().forward_sent;
    transfer(a, b, &pattern(4 * BYTES));
    let sent = host::counters().unwrap().forward_sent - before;
    let packets = (4 * BYTES / 1500) as u64;
    assert!(sent < packets / 2, "{sent} of {packets}");
}

#[test]
fn a_connection_with_another_selected_control_only_probes_for_routers() {
    let _lock = test_lock();
    if !can_run("selection during the connection") {
        return;
    }
    let net = Net::new("n");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for wire in [Wire::Option, Wire::Header, Wire::Header2004] {
        net.set_wire_format(wire);
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        assert_eq!(control(&a), "xcp");
        set_control(&a, "reno");
        sends_few_headers(&mut a, &mut b);
        set_control(&a, "xcp");
        let before = host::counters().unwrap().forward_sent;
        transfer(&mut a, &mut b, &pattern(BYTES));
        let sent = host::counters().unwrap().forward_sent - before;
        assert!(sent >= (BYTES / 1500) as u64, "{wire}: {sent}");
        assert_eq!(control(&a), "xcp");
    }
}

/// No sock_ops program runs for this socket, because it is outside the control group. It selects
/// xcp in SYN_SENT.
#[test]
fn a_socket_outside_of_the_control_group_falls_back() {
    let _lock = test_lock();
    if !can_run("socket outside of the control group") {
        return;
    }
    let net = Net::new("g");
    let _host = HostOn::in_another_group();
    let plan = FaultPlan {
        drop_syn_acks: 1, // the next one comes after a second
        ..Default::default()
    };
    let faults = Arc::new(net.within("r", || FaultInjector::start("c", plan).unwrap()));
    let select = |socket: &OwnedFd| {
        let (socket, faults) = (socket.try_clone().unwrap(), faults.clone());
        thread::spawn(move || {
            wait_until("the lost SYN-ACK", || {
                faults.account().unwrap().dropped == 1
            });
            set_control(&socket, "xcp");
        });
    };
    let client = SocketSetup::prepared(&select);
    let (mut a, mut b) = net.connect_with(SERVER, &client, &SocketSetup::PLAIN);
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), default_control());
}

#[test]
fn switching_xcp_off_breaks_no_connection() {
    let _lock = test_lock();
    if !can_run("switched off under a flow") {
        return;
    }
    let net = Net::new("o");
    net.add_routers(LINK_BYTES_PER_S);
    let host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, "xcp");
    drop(host);
    net.del_routers();
    transfer(&mut a, &mut b, &pattern(BYTES));
    transfer(&mut b, &mut a, &pattern(BYTES));
}
