// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router program on golden packets, whole and cut at every byte.

mod support;
mod wire;

use support::{edit, Router};
use wire::{cases, decode};

const CAPACITY_BPS: u64 = 1_250_000;
/// An Ethernet header: the least that BPF_PROG_TEST_RUN takes.
const SHORTEST: usize = 14;

/// The goldens that are whole TCP/IP packets without padding.
const CUT: [&str; 14] = [
    "forward",
    "both",
    "return",
    "syn",
    "none-timestamps",
    "forward-ipv6",
    "forward-vlan",
    "forward-vlan-ipv6",
    "forward-qinq",
    "forward-ipv6-extensions",
    "forward-ipv4-options",
    "forward-first",
    "forward-odd",
    "forward-bad-checksum",
];

/// A fresh router has no interval behind it and hands out nothing.
#[test]
fn golden_packets_through_a_fresh_router() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    for case in cases::all() {
        router.reset();
        println!("{}: {}", case.name, case.about);
        let frame = case.bytes();
        let out = router.send(&frame);
        let delta = edit::check(&frame, &out);
        assert_eq!(delta.is_some(), case.expect.is_forward());
        if let Some(asked) = case.expect.forward {
            assert_eq!(delta, Some(asked.delta_Bps.min(0)));
        }

        let counted = router.counters();
        let forward = u64::from(case.expect.is_forward());
        assert_eq!(counted.xcp_packets, forward);
        assert_eq!(counted.other_packets, 1 - forward);
        assert_eq!(counted.malformed, u64::from(case.expect.malformed));
        assert_eq!(counted.granted_Bps, i64::from(delta.unwrap_or(0)));
    }
}

#[test]
fn packets_cut_at_every_byte_pass_untouched_and_are_counted() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    for name in CUT {
        let whole = cases::named(name).bytes();
        for length in SHORTEST..whole.len() {
            let frame = &whole[..length];
            assert!(decode::decode(frame).malformed, "{name} cut to {length}");
            let before = router.counters();
            let Some(out) = router.try_send(frame) else {
                continue;
            };
            assert!(out == frame, "{name} cut to {length}: changed");
            let after = router.counters();
            assert_eq!(
                after.malformed,
                before.malformed + 1,
                "{name} cut to {length}: malformed"
            );
            assert_eq!(after.xcp_packets, before.xcp_packets);
        }
    }
}

/// Hop after hop: the count saturates, xcp_ttl stops at the TTL.
#[test]
fn one_packet_through_many_routers() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    let mut frame = cases::named("xcp-ttl-ahead").bytes();
    for hop in 1..=20 {
        router.reset();
        let out = router.send(&frame);
        edit::check(&frame, &out);
        let seen = decode::decode(&out)
            .forward
            .expect("still a forward header");
        assert_eq!(seen.xcp_hops, Some(hop.min(15)));
        assert_eq!(seen.other_hops, Some(3 - i16::from(hop.min(3))));
        frame = out;
    }
    assert_eq!(decode::decode(&frame).checksum_valid, Some(true));
}
