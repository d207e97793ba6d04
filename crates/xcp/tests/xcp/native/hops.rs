// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The initial TTL or hop limit that a sender writes into the option must be that of the
//! packet: otherwise routers without XCP are counted that do not exist, or real ones are
//! missed.

use std::fs;

use crate::common::{pattern, test_lock, transfer, HostOn, Net, LINK_BYTES_PER_S, SERVER, SERVER6};
use xcp_testbed::{can_run, FaultInjector, FaultPlan};

/// The server's IPv4 address, mapped to IPv6.
const MAPPED: &str = "::ffff:10.77.2.2";

fn set(key: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
}

#[test]
fn the_initial_ttl_is_correct_for_every_way_to_set_it() {
    let _lock = test_lock();
    if !can_run("hops") {
        return;
    }
    let net = Net::new("h");
    net.add_routers(LINK_BYTES_PER_S);
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
