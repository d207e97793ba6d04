// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A newer or older version replaces the running one under traffic. Here it is the same
//! version with another version number.

use std::thread;
use std::time::Duration;

use crate::command::{xcp_within, Ran};
use crate::common::{control, output, pattern, test_lock, transfer, HostOn, Net, LINK_BYTES_PER_S};
use serde_json::json;
use xcp_datapath::host::{self, PeerPolicies};
use xcp_datapath::router::{self, Change};
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::Wire;
use xcp_testbed::can_run;

const BYTES: usize = 2_000_000;
const TIMES: usize = 5;

/// Sends data while `work` runs several times; returns the sender's congestion control
/// afterwards.
fn meanwhile(net: &Net, work: impl Fn()) -> String {
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    thread::scope(|scope| {
        let bytes = pattern(10 * BYTES);
        let sends = scope.spawn(move || {
            transfer(&mut a, &mut b, &bytes);
            (a, b)
        });
        for _ in 0..TIMES {
            thread::sleep(Duration::from_millis(100));
            work();
        }
        let (mut a, mut b) = sends.join().unwrap();
        // on a busy machine `work` may run last when all data has been sent
        transfer(&mut a, &mut b, &pattern(BYTES));
        control(&a)
    })
}

#[test]
fn a_router_program_is_replaced_under_traffic() {
    let _lock = test_lock();
    if !can_run("upgrade of a router") {
        return;
    }
    let net = Net::new("v");
    let options = router::Options {
        capacity_bytes_per_s: LINK_BYTES_PER_S,
        ..router::Options::default()
    };
    net.add_routers_with(options);
    let _host = HostOn::new();
    let used = meanwhile(&net, || {
        net.within("r", || {
            xcp_testbed::mark_as_other_build("s").unwrap();
            assert_eq!(router::add("s", options).unwrap(), Change::Changed);
            assert_eq!(router::add("s", options).unwrap(), Change::Unchanged);
        });
    });
    assert_eq!(used, "xcp");
    assert_eq!(host::counters().unwrap().fallbacks.total(), 0);
    // its counters restart from 0, and no packet was dropped
    let after = net.within("r", || router::show("s").unwrap());
    assert!(after.counters.xcp_packets > 100, "{after:?}");
    let queue = net.within("r", || output("tc", "-s -j qdisc show dev s root"));
    assert!(queue.contains("\"drops\":0,"), "{queue}");
}

#[test]
fn host_programs_are_replaced_under_traffic() {
    let _lock = test_lock();
    if !can_run("upgrade of a host") {
        return;
    }
    let net = Net::new("w");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for wire in Wire::ALL {
        net.set_wire_format(wire);
        let peers = [
            "10.77.2.0/24".parse().unwrap(),
            "fd77:2::/64".parse().unwrap(),
        ];
        let options = host::Options {
            peer_policies: PeerPolicies::new(wire, &["r".to_owned()], &peers, IP_PROTO).unwrap(),
            ..host::Options::default()
        };
        let before = host::counters().unwrap();
        let used = meanwhile(&net, || {
            net.within("c", || {
                xcp_testbed::mark_host_as_other_build().unwrap();
                assert_eq!(host::on(&options).unwrap().change, Change::Changed);
                assert_eq!(host::on(&options).unwrap().change, Change::Unchanged);
            });
        });
        assert_eq!(used, "xcp", "{wire}");
        let after = host::counters().unwrap();
        assert_eq!(after.fallbacks.total(), before.fallbacks.total(), "{wire}");
        assert_eq!(after.malformed, 0, "{wire}");
        // new connections use the new programs
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        assert_eq!(control(&a), "xcp", "{wire}");
    }
}

/// A record of the same size may have another meaning.
#[test]
fn records_of_another_layout_are_not_read() {
    let _lock = test_lock();
    if !can_run("records of another layout") {
        return;
    }
    let net = Net::new("y");
    let options = router::Options {
        capacity_bytes_per_s: LINK_BYTES_PER_S,
        ..router::Options::default()
    };
    let reason = "written by another version of xcp";
    net.within("r", || {
        router::add("s", options).unwrap();
        xcp_testbed::mark_as_other_layout("s").unwrap();
        assert_eq!(router::show("s").unwrap_err().reason, reason);
        assert_eq!(router::list().unwrap_err().reason, reason);
    });
    let xcp_at_router = |args| Ran::of(&mut xcp_within(&net.space("r"), args));
    let status = xcp_at_router("status");
    assert_eq!(status.code, Some(1));
    assert!(status.err.contains(reason), "{}", status.err);
    let routers = "\nrouters  cannot be read, see the error\n";
    assert!(status.out.contains(routers), "{}", status.out);
    let status = xcp_at_router("status --json").json();
    assert_eq!(status["unreadable"], json!(["routers"]));
    // its output without this router would remove the router
    let shown = xcp_at_router("config show");
    assert_eq!((shown.code, shown.out.as_str()), (Some(1), ""));
    assert!(shown.err.contains(reason), "{}", shown.err);
    net.within("r", || {
        // `add` replaces the records
        assert_eq!(router::add("s", options).unwrap(), Change::Changed);
        router::show("s").unwrap();
    });

    let _host = HostOn::new();
    xcp_testbed::mark_host_as_other_layout().unwrap();
    let refused = host::on(&host::Options::default()).unwrap_err();
    assert_eq!(refused.reason, reason);
    assert!(host::is_on(), "XCP must stay on");
    host::off().unwrap();
    let on = host::on(&host::Options::default()).unwrap();
    assert_eq!(on.change, Change::Added);
}
