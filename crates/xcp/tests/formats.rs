// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every wire format over IPv4 and IPv6, on this kernel: what arrives is what
//! was sent, both ends speak XCP, and feedback is neither made nor lost.

mod common;

use common::{pattern, settle, transfer, turn, HostOn, Net, LINK_BPS, SERVER, SERVER6};
use xcp_datapath::testing::can_run;
use xcp_datapath::{host, router, Wire};

const BYTES: usize = 20_000_000;

#[test]
fn bytes_and_feedback_arrive_over_every_format() {
    let _turn = turn();
    if !can_run("formats") {
        return;
    }
    for wire in Wire::ALL {
        for server in [SERVER, SERVER6] {
            transfer_over(wire, server);
        }
    }
}

fn transfer_over(wire: Wire, server: &str) {
    let net = Net::new("f");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    net.speak(wire);
    let (mut client, mut other) = net.connect_to(server, "xcp", "xcp");
    transfer(&mut client, &mut other, &pattern(BYTES));
    settle();
    transfer(&mut other, &mut client, b"x");
    settle();
    let hosts = host::counters().unwrap();
    let routers = net.within("r", || router::list().unwrap());
    println!("{wire} to {server}: {hosts:#?}");
    assert_eq!(common::control(&client), "xcp");
    assert_eq!(common::control(&other), "xcp");
    assert_eq!((hosts.sockets, hosts.fallbacks), (2, 0));
    assert!(hosts.forward_received as usize > BYTES / 1500);
    let seen: u64 = routers.iter().map(|r| r.xcp_packets).sum();
    assert!(seen as usize > BYTES / 1500, "{routers:?}");
}
