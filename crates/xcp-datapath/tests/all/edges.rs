// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router program at the edge of a cloud: it writes its own address into
//! last_xcp_router, in the formats that have this field.

use std::net::IpAddr;

use crate::support::{edit, Router};
use crate::wire::decode::Wire;
use crate::wire::{cases, decode};
use xcp_datapath::cloud;

const CAPACITY_BPS: u64 = 1_250_000;

fn id(address: &str) -> u32 {
    cloud::id(address.parse::<IpAddr>().unwrap())
}

/// Addresses whose router IDs are 0x0a4f02fe, 1, 0xffffffff and 0x2001_0db9.
fn addresses() -> [IpAddr; 4] {
    ["10.79.2.254", "0.0.0.1", "255.255.255.255", "2001:db8::1"].map(|a| a.parse().unwrap())
}

#[test]
fn edge_router_writes_its_address() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    let mut written = [0; 3];
    for case in cases::all() {
        let frame = case.bytes();
        for edge in addresses() {
            router.reset();
            router.set_edge(Some(edge));
            println!("{}, {edge}", case.name);
            let out = router.send(&frame);
            let delta = edit::check_edge(&frame, &out, Some(edge));
            assert_eq!(delta.is_some(), case.expect.is_forward());
            if delta.is_some() {
                let seen = decode::decode(&out);
                let option = seen.forward.and_then(|f| f.last_xcp_router);
                let header = seen.header.and_then(|h| h.last_xcp_router);
                match (case.expect.wire, header) {
                    (Some(Wire::Option), _) => assert_eq!(option, Some(cloud::id(edge))),
                    (_, Some(IpAddr::V4(v4))) => assert_eq!(v4.to_bits(), cloud::id(edge)),
                    (_, Some(IpAddr::V6(v6))) => assert_eq!(v6.to_canonical(), edge),
                    (_, None) => {}
                }
                written[match header {
                    Some(IpAddr::V4(_)) => 1,
                    Some(IpAddr::V6(_)) => 2,
                    None => 0,
                }] += 1;
            }
            // grants and counters do not change
            assert_eq!(router.counters().xcp_packets, u64::from(delta.is_some()));
        }
        router.set_edge(None);
        router.reset();
        edit::check(&frame, &router.send(&frame));
    }
    assert!(written.iter().all(|n| *n >= 8), "{written:?}");
}

#[test]
fn last_edge_router_on_the_path_is_recorded() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // the option at byte 32, an option that needs the slow path, and a header
    for name in ["forward", "forward-odd", "header-last-router"] {
        let mut frame = cases::named(name).bytes();
        for edge in addresses().map(Some).into_iter().chain([None]) {
            router.set_edge(edge);
            let out = router.send(&frame);
            edit::check_edge(&frame, &out, edge);
            frame = out;
        }
        let seen = decode::decode(&frame);
        let appended = seen.header.and_then(|h| h.last_xcp_router).map(cloud::id);
        let last = appended.or(seen.forward.unwrap().last_xcp_router);
        // the last router is no edge and keeps the address of the one before
        assert_eq!(last, Some(cloud::id(addresses()[3])), "{name}");
        assert_eq!(seen.checksum_valid, Some(true));
    }
}

#[test]
fn router_id_is_the_ipv4_address_or_the_xor_of_the_ipv6_words() {
    assert_eq!(id("10.79.2.254"), 0x0a4f_02fe);
    assert_eq!(id("::ffff:10.79.2.254"), 0x0a4f_02fe);
    assert_eq!(id("255.255.255.255"), u32::MAX);
    assert_eq!(id("::1"), 1);
    assert_eq!(id("2001:db8::1"), 0x2001_0db8 ^ 1);
    assert_eq!(
        id("2001:db8:1:2:3:4:5:6"),
        0x2001_0db8 ^ 0x0001_0002 ^ 0x0003_0004 ^ 0x0005_0006
    );
    // every 32-bit word counts
    for word in ["1::", "0:0:1::", "0:0:0:0:1::"] {
        assert_eq!(id(word), 0x0001_0000, "{word}");
    }
}

/// The ID 0 means that the packet has passed no router.
#[test]
fn no_address_has_the_router_id_0() {
    for address in ["2001:db8::2001:db8", "fd79:1::fd79:1", "::", "0.0.0.0"] {
        assert_ne!(id(address), 0, "{address}");
    }
}
