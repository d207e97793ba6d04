// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Nobody is left uncontrolled: a peer without XCP, a middlebox that strips
//! the option, a path without XCP routers.

use crate::common::{
    control, default_control, pattern, send_until_default, set_control, test_lock, transfer,
    wait_for_control, HostOn, Net, LINK_BPS,
};
use xcp_datapath::host;
use xcp_testbed::can_run;
use xcp_testbed::{FaultInjector, FaultPlan};

const BYTES: usize = 2_000_000;

#[test]
fn a_peer_without_xcp_gets_the_default() {
    let _turn = test_lock();
    if !can_run("peer without XCP") {
        return;
    }
    let net = Net::new("p");
    net.add_routers(LINK_BPS);
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
fn a_stripped_handshake_gets_the_default_at_both_ends() {
    let _turn = test_lock();
    if !can_run("stripped handshake") {
        return;
    }
    let net = Net::new("m");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    // the SYN leaves the router towards the server, the SYN-ACK to the client
    for (dev, strip) in [("s", 1), ("c", 2)] {
        let plan = FaultPlan {
            strip,
            ..Default::default()
        };
        let accident = net.within("r", || FaultInjector::start(dev, plan).unwrap());
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        transfer(&mut b, &mut a, &pattern(BYTES));
        assert_eq!(accident.account().unwrap().stripped, 1);
        assert_eq!(control(&a), default_control());
        assert_eq!(control(&b), default_control());
    }
    let counters = host::counters().unwrap();
    assert_eq!((counters.sockets, counters.fallbacks.total()), (0, 4));
    assert_eq!(counters.forward_sent, 0, "no option where none was agreed");
}

#[test]
fn an_option_that_is_stripped_later_leaves_the_default() {
    let _turn = test_lock();
    if !can_run("option stripped later") {
        return;
    }
    let net = Net::new("l");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    let accident = net.within("r", || {
        FaultInjector::start("c", FaultPlan::default()).unwrap()
    });
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "xcp");
    // no feedback comes back from here on
    let plan = FaultPlan {
        strip: 4,
        ..Default::default()
    };
    accident.plan(plan).unwrap();
    send_until_default(&mut a, &mut b, BYTES);
    let stripped = accident.account().unwrap().stripped;
    assert!(stripped > 100, "after {stripped} ACKs");
}

#[test]
fn a_path_without_routers_gets_the_default_and_a_router_brings_xcp_back() {
    let _turn = test_lock();
    if !can_run("path without routers") {
        return;
    }
    let net = Net::new("r");
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
    // one header per RTT looks for a router, and asks for nothing
    let before = host::counters().unwrap().forward_sent;
    transfer(&mut a, &mut b, &pattern(4 * BYTES));
    let told = host::counters().unwrap().forward_sent - before;
    let packets = (4 * BYTES / 1500) as u64;
    assert!((1..packets / 2).contains(&told), "{told} of {packets}");
    net.add_routers(LINK_BPS);
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, "xcp");
    net.del_routers();
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
}

#[test]
fn a_program_that_selects_another_control_after_the_fallback_keeps_it() {
    let _turn = test_lock();
    if !can_run("selection after the fallback") {
        return;
    }
    let net = Net::new("x");
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
    set_control(&a, "reno");
    net.add_routers(LINK_BPS);
    transfer(&mut a, &mut b, &pattern(BYTES));
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "reno");
}

#[test]
fn the_system_goes_on_when_xcp_is_switched_off_under_a_flow() {
    let _turn = test_lock();
    if !can_run("switched off under a flow") {
        return;
    }
    let net = Net::new("o");
    net.add_routers(LINK_BPS);
    let host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, "xcp");
    drop(host);
    net.del_routers();
    transfer(&mut a, &mut b, &pattern(BYTES));
    transfer(&mut b, &mut a, &pattern(BYTES));
}
