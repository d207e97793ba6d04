// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the router program on golden packets, whole and cut at every byte.

use crate::support::{edit, Router};
use crate::wire::decode::Wire;
use crate::wire::{cases, decode};
use xcp_datapath::router::Options;

const CAPACITY_BPS: u64 = 1_250_000;
/// An Ethernet header: the shortest frame that BPF_PROG_TEST_RUN accepts.
const SHORTEST: usize = 14;

/// The golden packets that are whole TCP/IP packets without padding.
const CUT: [&str; 30] = [
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
    "2005-forward",
    "2005-both",
    "2005-return-sack",
    "2005-syn",
    "2005-forward-odd",
    "2005-forward-ipv6",
    "2005-forward-vlan",
    "header-standard",
    "header-v2-standard",
    "header-2004-standard",
    "header-minimal",
    "header-ipv6",
    "header-vlan",
    "header-ipv4-options",
    "header-ipv6-extensions",
    "header-last-router",
];

/// A new router has not ended an interval yet and grants no increase.
#[test]
fn new_router_grants_no_increase_to_golden_packets() {
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
            if asked.delta_Bps > 0 && case.expect.wire == Some(Wire::Option2005) {
                // the code is 0, not another code with the value 0
                let raw = decode::decode(&out).option_2005.unwrap();
                assert_eq!(raw.forward.unwrap().feedback.feedback_code, 0);
            }
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
fn cut_packets_pass_unchanged_and_are_counted() {
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

/// Uncontrolled traffic must not share XCP's queue, so data without an RTT is queued with
/// other traffic.
#[test]
fn data_without_an_rtt_counts_as_other_traffic() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    router.use_separate_queue();
    let arrives = |frame: &[u8]| {
        router.reset();
        router.send(frame);
        router.other_B()
    };
    // golden packets, and the position of their RTT
    for (name, rtt) in [
        ("forward", 72..76),
        ("both", 72..76),
        ("2005-forward", 70..72),
        ("header-standard", 42..46),
    ] {
        let mut frame = cases::named(name).bytes();
        assert_eq!(arrives(&frame), 0, "{name}");
        frame[rtt].fill(0);
        assert_eq!(arrives(&frame), frame.len() as u64, "{name} without RTT");
    }
    // handshakes and ACKs carry no RTT; TCP without XCP is always other traffic
    for name in ["syn", "2005-syn", "return", "header-minimal"] {
        assert_eq!(arrives(&cases::named(name).bytes()), 0, "{name}");
    }
    let plain = cases::named("none-timestamps").bytes();
    assert_eq!(arrives(&plain), plain.len() as u64);
}

/// Over many hops the hop count saturates at 15, and xcp_ttl stops at the TTL.
#[test]
fn hop_counts_of_an_option_saturate_over_many_routers() {
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

/// Headers do not count XCP routers, but xcp_ttl also stops at the TTL.
#[test]
fn xcp_ttl_of_a_header_stops_at_the_ttl() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    for name in ["header-xcp-ttl-ahead", "header-2004-xcp-ttl-ahead"] {
        let mut frame = cases::named(name).bytes();
        for hop in 1..=20 {
            router.reset();
            let out = router.send(&frame);
            edit::check(&frame, &out);
            let seen = decode::decode(&out).forward.expect("a standard header");
            assert_eq!(seen.other_hops, Some(3 - hop.min(3)), "{name}");
            frame = out;
        }
    }
}

/// A new router grants no increase, so it sets a requested increase to 0. Decreases pass
/// unchanged.
#[test]
fn new_routers_clear_increases_and_keep_decreases_of_option_2005() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    for name in ["2005-syn", "2005-less", "2005-both", "2005-least-less"] {
        let mut frame = cases::named(name).bytes();
        for _ in 1..=3 {
            router.reset();
            let out = router.send(&frame);
            edit::check(&frame, &out);
            frame = out;
        }
        let (before, after) = (cases::named(name).expect, decode::decode(&frame));
        let (before, after) = (before.option_2005.unwrap(), after.option_2005.unwrap());
        assert_eq!(before.back, after.back, "{name}");
        let (before, after) = (before.forward.unwrap(), after.forward.unwrap());
        assert_eq!(
            (before.rtt_ms, before.cwnd),
            (after.rtt_ms, after.cwnd),
            "{name}"
        );
        assert_eq!(
            after.feedback.feedback_packets,
            before.feedback.feedback_packets.min(0.0),
            "{name}"
        );
    }
}

/// With `--ip-proto` the router recognises headers by that protocol number only.
#[test]
fn ip_proto_option_selects_the_protocol_number_of_headers() {
    const PROTOCOL: u8 = 200;
    let Some(router) = Router::with(Options {
        capacity_bytes_per_s: CAPACITY_BPS,
        ip_proto: PROTOCOL,
        ..Default::default()
    }) else {
        return;
    };
    for case in cases::all() {
        router.reset();
        println!("{}: {}", case.name, case.about);
        let frame = case.bytes();
        let out = router.send(&frame);
        edit::check_as(&frame, &out, PROTOCOL);
        let seen = decode::decode_as(&frame, PROTOCOL);
        let counted = router.counters();
        assert_eq!(counted.xcp_packets, u64::from(seen.is_forward()));
        assert_eq!(counted.malformed, u64::from(seen.malformed));
        if case.expect.header.is_some() {
            assert!(!seen.is_forward(), "{} is no XCP packet", case.name);
            assert!(out == frame, "{}: changed", case.name);
        }
    }
    let frame = cases::named("none-protocol-200").bytes();
    let seen = decode::decode_as(&router.send(&frame), PROTOCOL);
    assert_eq!(seen.forward.map(|f| f.delta_Bps), Some(0));
}
