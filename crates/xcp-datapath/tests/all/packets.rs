// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router program on golden packets, whole and cut at every byte.

use crate::support::{edit, Router};
use crate::wire::decode::Wire;
use crate::wire::{cases, decode};
use xcp_datapath::router::Options;

const CAPACITY_BPS: u64 = 1_250_000;
/// An Ethernet header: the least that BPF_PROG_TEST_RUN takes.
const SHORTEST: usize = 14;

/// The goldens that are whole TCP/IP packets without padding.
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
            if asked.delta_Bps > 0 && case.expect.wire == Some(Wire::Option2005) {
                // not one of the codes that mean nothing: 0
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

/// Nothing uncontrolled shares XCP's queue: data whose sender gives no RTT waits
/// with other traffic.
#[test]
fn data_without_an_rtt_is_other_traffic() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    router.keep_apart();
    let arrives = |frame: &[u8]| {
        router.reset();
        router.send(frame);
        router.other_B()
    };
    // the data, and where its RTT stands
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
    // handshakes and ACKs tell none, and plain TCP is never XCP's
    for name in ["syn", "2005-syn", "return", "header-minimal"] {
        assert_eq!(arrives(&cases::named(name).bytes()), 0, "{name}");
    }
    let plain = cases::named("none-timestamps").bytes();
    assert_eq!(arrives(&plain), plain.len() as u64);
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

/// The headers do not count XCP routers, but xcp_ttl stops at the TTL too.
#[test]
fn one_header_through_many_routers() {
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

/// The wish of a SYN survives no router, that of other packets the first who
/// would grant it; what is not to be granted stays as it is.
#[test]
fn one_option_of_2005_through_many_routers() {
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

/// `--ip-proto`: headers are known by another number, and by no other.
#[test]
fn another_ip_protocol() {
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
            assert!(!seen.is_forward(), "{} is nothing to it", case.name);
            assert!(out == frame, "{}: changed", case.name);
        }
    }
    let frame = cases::named("none-protocol-200").bytes();
    let seen = decode::decode_as(&router.send(&frame), PROTOCOL);
    assert_eq!(seen.forward.map(|f| f.delta_Bps), Some(0));
}
