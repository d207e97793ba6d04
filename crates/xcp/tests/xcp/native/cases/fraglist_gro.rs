// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A router behind a device with fraglist GRO (rx-gro-list of ethtool, OpenWrt's
//! default): packets of one flow arrive as a chain. Each packet has its own headers, but a
//! program can write only those of the first.

use std::net::TcpStream;

use crate::command::Ran;
use crate::common::{self, pattern, test_lock, transfer, wait_for_acks, HostOn, Net};
use crate::common::{LINK_BYTES_PER_S, SERVER, SERVER6};
use xcp_datapath::{host, router, Wire};
use xcp_testbed::{can_run, FaultInjector, FaultPlan};

const BYTES: usize = 2_000_000;
/// Number of transfers until one has no segment that TCP discards before its option is
/// counted, such as a spurious retransmission.
const RUNS: usize = 20;

/// A network in which packets reach and leave the router one by one, as on a wire.
fn net(name: &str) -> Net {
    let net = Net::new(name);
    net.tool("c", "ethtool -K r tso off gso off");
    net.tool("r", "ethtool -K c gro on");
    net.tool("r", "ethtool -K s tx-gso-list off");
    net
}

fn fraglist_gro(net: &Net, state: &str) {
    net.tool("r", &format!("ethtool -K c rx-gro-list {state}"));
}

/// Forward headers, and the sum of their deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Headers {
    packets: u64,
    delta: i64,
}

impl Headers {
    /// Those that the server has received.
    fn received(wire: Wire) -> Self {
        let counters = host::counters().unwrap();
        Self {
            packets: counters.forward_received,
            delta: match wire {
                Wire::Option2005 => counters.option_2005.received,
                _ => counters.received_bytes_per_s,
            },
        }
    }

    /// The headers behind the router, as the fault injector reads them.
    fn edited(seen: &FaultInjector) -> Self {
        let account = seen.account().unwrap();
        Self {
            packets: account.forward_packets,
            delta: account.delta,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            delta: self.delta - before.delta,
        }
    }
}

/// Transfers data and compares the headers behind the router with those received.
fn assert_all_edited(net: &Net, ends: &mut (TcpStream, TcpStream), wire: Wire, what: &str) {
    let seen = net.within("r", || {
        FaultInjector::start("s", FaultPlan::default()).unwrap()
    });
    let (client, server) = ends;
    let mut compared = None;
    for _ in 0..RUNS {
        let before = (Headers::received(wire), Headers::edited(&seen));
        transfer(client, server, &pattern(BYTES));
        wait_for_acks([client, server]);
        let received = Headers::received(wire).since(before.0);
        let edited = Headers::edited(&seen).since(before.1);
        if received.packets == edited.packets {
            compared = Some((received, edited));
            break;
        }
    }
    let (received, edited) = compared.unwrap_or_else(|| panic!("{what}: segments were lost"));
    assert_eq!(received, edited, "{what}");
    assert_eq!(common::control(client), "xcp", "{what}");
}

fn show(net: &Net) -> router::Status {
    net.within("r", || router::show("s").unwrap())
}

#[test]
fn every_packet_of_a_fraglist_chain_is_edited() {
    let _lock = test_lock();
    if !can_run("fraglist GRO") {
        return;
    }
    for (wire, server) in Wire::ALL
        .into_iter()
        .flat_map(|wire| [SERVER, SERVER6].map(|server| (wire, server)))
    {
        let what = format!("{wire} to {server}");
        let net = net("fg");
        fraglist_gro(&net, "on");
        net.add_routers(LINK_BYTES_PER_S);
        let _host = HostOn::new();
        net.set_wire_format(wire);
        let mut ends = net.connect_to(server, "xcp", "xcp");
        assert_all_edited(&net, &mut ends, wire, &what);
        let status = show(&net);
        assert_eq!(status.counters.chained_unedited, 0, "{what}: {status:?}");
        // GRO merges only TCP packets
        assert_eq!(
            status.counters.chained > 0,
            !wire.is_header(),
            "{what}: {status:?}"
        );
        assert_eq!(dropped(&net), 0, "{what}");
    }
}

/// Packets that the router's queue has dropped.
fn dropped(net: &Net) -> u64 {
    let space = format!("--net=/run/netns/{}", net.space("r"));
    let told = common::output(
        "nsenter",
        &format!("{space} tc -s -j qdisc show dev s root"),
    );
    let told = Ran {
        code: Some(0),
        out: told,
        err: String::new(),
    };
    told.json()[0]["drops"].as_u64().unwrap()
}

#[test]
fn fraglist_gro_can_be_switched_during_a_connection() {
    let _lock = test_lock();
    if !can_run("switched fraglist GRO") {
        return;
    }
    let net = net("fs");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let mut ends = net.connect("xcp", "xcp");
    let mut chained = Vec::new();
    for state in ["off", "on", "off"] {
        fraglist_gro(&net, state);
        assert_all_edited(&net, &mut ends, Wire::Option, state);
        // paced packets may arrive one by one; the first window arrives as a burst
        let mut new = net.connect("xcp", "xcp");
        assert_all_edited(&net, &mut new, Wire::Option, state);
        chained.push(show(&net).counters.chained);
    }
    assert_eq!(chained[0], 0);
    assert!(chained[1] > 0);
    assert_eq!(chained[2], chained[1]);
}
