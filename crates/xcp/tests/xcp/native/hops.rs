// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a sender says its packets' TTL or hop limit began with, against what
//! they have as they leave: else routers are seen that are not there, or those
//! that are there stay hidden.

use std::fs;

use crate::common::{pattern, test_lock, transfer, HostOn, Net, LINK_BPS, SERVER, SERVER6};
use xcp_testbed::{can_run, FaultInjector, FaultPlan};

/// The server's IPv4 address, as a socket of IPv6 has it.
const MAPPED: &str = "::ffff:10.77.2.2";

fn set(key: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
}

#[test]
fn the_first_ttl_is_known_however_it_is_set() {
    let _turn = test_lock();
    if !can_run("hops") {
        return;
    }
    let net = Net::new("h");
    net.add_routers(LINK_BPS);
    let _host = HostOn::new();
    let seen = net.within("c", || {
        FaultInjector::start("r", FaultPlan::default()).unwrap()
    });
    let route = |to: &str, how: &str| net.tool("c", &format!("ip route replace {to} {how}"));
    let (v4, v6) = ("via 10.77.1.2 dev r", "via fd77:1::2 dev r");
    let mut checked = 0;
    let mut check = |how: &str, servers: &[&str]| {
        for server in servers {
            let (mut client, mut other) = net.connect_to(server, "xcp", "xcp");
            transfer(&mut client, &mut other, &pattern(100_000));
            let account = seen.account().unwrap();
            assert!(account.forward > checked, "{how}, {server}: {account:?}");
            assert_eq!(account.other_hops, 0, "{how}, {server}");
            checked = account.forward;
        }
    };
    check("by default", &[SERVER, SERVER6, MAPPED]);
    net.within("c", || {
        set("ipv4/ip_default_ttl", "100");
        set("ipv6/conf/r/hop_limit", "50");
    });
    check("by the system and the device", &[SERVER, SERVER6, MAPPED]);
    route("10.77.2.0/24", &format!("{v4} hoplimit 33"));
    route("fd77:2::/64", &format!("{v6} hoplimit 34"));
    check("by the route", &[SERVER, SERVER6, MAPPED]);
}
