// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router program at the edge of a cloud: it writes the address that it is
//! known by into last_xcp_router, in the format that has it.

use std::net::IpAddr;

use crate::support::{edit, Router};
use crate::wire::decode::Wire;
use crate::wire::{cases, decode};
use xcp_datapath::cloud;

const CAPACITY_BPS: u64 = 1_250_000;
const EDGES: [u32; 4] = [0x0a4f_02fe, 1, 0xffff_ffff, 0x0001_0000];

fn id(address: &str) -> u32 {
    cloud::id(address.parse::<IpAddr>().unwrap())
}

#[test]
fn an_edge_writes_its_address() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    for case in cases::all() {
        let frame = case.bytes();
        for edge in EDGES {
            router.reset();
            router.set_edge(edge);
            println!("{}, {edge:#x}", case.name);
            let out = router.send(&frame);
            let delta = edit::check_edge(&frame, &out, edge);
            assert_eq!(delta.is_some(), case.expect.is_forward());
            if case.expect.wire == Some(Wire::Option) && delta.is_some() {
                let forward = decode::decode(&out).forward.unwrap();
                assert_eq!(forward.last_xcp_router, Some(edge));
            }
            // it grants and counts as ever
            assert_eq!(router.counters().xcp_packets, u64::from(delta.is_some()));
        }
        router.set_edge(0);
        router.reset();
        edit::check(&frame, &router.send(&frame));
    }
}

#[test]
fn the_last_edge_is_the_one_that_is_told() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // at byte 32, and where it is found by the slow way
    for name in ["forward", "forward-odd"] {
        let mut frame = cases::named(name).bytes();
        for edge in EDGES.into_iter().chain([0]) {
            router.set_edge(edge);
            let out = router.send(&frame);
            edit::check_edge(&frame, &out, edge);
            frame = out;
        }
        let seen = decode::decode(&frame);
        // 0: it is no edge, and leaves the one before
        assert_eq!(seen.forward.unwrap().last_xcp_router, Some(EDGES[3]));
        assert_eq!(seen.checksum_valid, Some(true));
    }
}

#[test]
fn a_router_is_known_by_four_bytes() {
    assert_eq!(id("10.79.2.254"), 0x0a4f_02fe);
    assert_eq!(id("::ffff:10.79.2.254"), 0x0a4f_02fe);
    assert_eq!(id("255.255.255.255"), u32::MAX);
    assert_eq!(id("::1"), 1);
    assert_eq!(id("2001:db8::1"), 0x2001_0db8 ^ 1);
    assert_eq!(
        id("2001:db8:1:2:3:4:5:6"),
        0x2001_0db8 ^ 0x0001_0002 ^ 0x0003_0004 ^ 0x0005_0006
    );
    // every word counts
    for word in ["1::", "0:0:1::", "0:0:0:0:1::"] {
        assert_eq!(id(word), 0x0001_0000, "{word}");
    }
}

/// 0 is that no router was passed.
#[test]
fn no_router_is_known_as_none() {
    for address in ["2001:db8::2001:db8", "fd79:1::fd79:1", "::", "0.0.0.0"] {
        assert_ne!(id(address), 0, "{address}");
    }
}
