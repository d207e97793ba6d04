// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the virtual router's program on golden packets, whole, cut and damaged: it
//! edits only packets from its upstream router.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::thread::sleep;
use std::time::Duration;

use crate::mutations::damage;
use crate::support::{crossed, edit, retry_until_one_interval, Router};
use crate::wire::decode::Decoded;
use crate::wire::random::Random;
use crate::wire::{cases, decode};
use xcp_abi::xcp_cloud;
use xcp_datapath::cloud::id;
use xcp_datapath::monotonic_ns;

const UPSTREAM: u32 = 0x0a4f_02fe;
const NS_PER_MS: u64 = 1_000_000;
/// A probe time that stays recent for the whole test.
const ALWAYS_NS: u64 = u64::MAX;
const FREE_BPS: u64 = 1_250_000;
/// An Ethernet header: the shortest frame that BPF_PROG_TEST_RUN accepts.
const SHORTEST: usize = 14;
const ROUNDS: usize = 30_000;

fn cloud(routers: u8) -> xcp_cloud {
    xcp_cloud {
        last_probe_ns: ALWAYS_NS,
        free_Bps: FREE_BPS,
        routers: routers.into(),
        ..xcp_cloud::default()
    }
}

fn cloud_probed_at(last_probe_ns: u64) -> xcp_cloud {
    xcp_cloud {
        last_probe_ns,
        ..cloud(3)
    }
}

/// Returns a virtual router for a cloud with this number of routers.
fn told(routers: u8) -> Option<Router> {
    let router = Router::of_cloud(UPSTREAM)?;
    router.update(cloud(routers));
    Some(router)
}

/// Returns last_xcp_router, if the format has this field.
fn last_router(seen: &Decoded) -> Option<u32> {
    let appended = seen.header.as_ref().and_then(|h| h.last_xcp_router);
    let option = || seen.forward.as_ref().and_then(|f| f.last_xcp_router);
    appended.map(id).or_else(option)
}

/// Fails unless the frame passes unchanged and is not counted.
fn passes_unchanged(router: &Router, frame: &[u8], what: &str) {
    router.reset();
    let Some(out) = router.try_send(frame) else {
        return;
    };
    assert!(out == frame, "{what}: changed");
    let counted = router.counters();
    assert_eq!((counted.xcp_packets, counted.granted_Bps), (0, 0), "{what}");
    assert_eq!((counted.other_packets, counted.malformed), (0, 0), "{what}");
    assert_eq!(router.input_B(), 0, "{what}");
    assert_eq!(router.link().seen.sent_B, 0, "{what}");
}

/// A new virtual router has not ended an interval yet and grants no increase.
#[test]
fn packets_from_the_upstream_router_are_edited() {
    let Some(router) = Router::of_cloud(UPSTREAM) else {
        return;
    };
    for routers in [0, 1, 2, 3, 4, 64, 255] {
        router.update(cloud(routers));
        for (name, frame) in crossed::all(UPSTREAM) {
            println!("{name}, {routers} routers");
            router.reset();
            let out = router.send(&frame);
            let delta = edit::check_cloud(&frame, &out, routers).expect("a forward header");
            let asked = decode::decode(&frame).forward.unwrap();
            assert_eq!(delta, asked.delta_Bps.min(0));
            let seen = decode::decode(&out).forward.unwrap();
            assert_eq!(seen.xcp_hops, asked.xcp_hops, "a virtual router is no hop");
            assert_eq!(last_router(&decode::decode(&out)), Some(UPSTREAM));

            let counted = router.counters();
            assert_eq!((counted.xcp_packets, counted.malformed), (1, 0));
            assert_eq!(counted.granted_Bps, i64::from(delta));
            assert_eq!(router.input_B(), frame.len() as u64);
            assert_eq!(router.link().seen.sent_B, frame.len() as u64);
        }
    }
}

/// The virtual router makes as many routers count as XCP routers as the cloud contains.
#[test]
fn routers_of_the_cloud_count_as_xcp_routers() {
    let frame = crossed::named("xcp-ttl-ahead", UPSTREAM);
    assert_eq!(decode::decode(&frame).forward.unwrap().other_hops, Some(3));
    for (routers, left) in [(0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (255, 0)] {
        let Some(router) = told(routers) else {
            return;
        };
        let seen = decode::decode(&router.send(&frame));
        assert_eq!(seen.forward.unwrap().other_hops, Some(left), "{routers}");
        assert_eq!(seen.checksum_valid, Some(true));
    }
}

/// If the sender itself is the upstream edge of the cloud, packets have passed no router yet.
#[test]
fn packets_without_a_last_router_are_matched_by_their_source() {
    let names = [
        ("forward", 26..30),
        ("forward-ipv6", 22..38),
        ("header-standard", 26..30), // without the last_xcp_router field
        ("header-ipv6", 22..38),
        ("header-last-router", 26..30),
        ("header-last-router-ipv6", 26..30),
    ];
    for (name, from) in names {
        let mut frame = crossed::named(name, 0);
        let source = frame[from.clone()].to_vec();
        let address: std::net::IpAddr = match <[u8; 4]>::try_from(&source[..]) {
            Ok(v4) => v4.into(),
            Err(_) => <[u8; 16]>::try_from(&source[..]).unwrap().into(),
        };
        let Some(router) = Router::of_cloud(id(address)) else {
            return;
        };
        router.update(cloud(3));
        router.send(&frame);
        assert_eq!(router.counters().xcp_packets, 1, "{name}");
        // from another source address
        frame[from.end - 1] ^= 1;
        router.send(&frame);
        assert_eq!(router.counters().xcp_packets, 1, "{name}, from another");
    }
}

#[test]
fn packets_from_other_routers_pass_unchanged() {
    let Some(router) = told(3) else {
        return;
    };
    for other in [0, 1, !0, UPSTREAM + 1, UPSTREAM.swap_bytes(), !UPSTREAM] {
        for (name, frame) in crossed::all(other) {
            passes_unchanged(&router, &frame, &format!("{name} of {other:#x}"));
        }
    }
}

/// Golden packets name no router, or another one.
#[test]
fn golden_packets_from_other_sources_pass_unchanged() {
    let Some(router) = told(3) else {
        return;
    };
    for case in cases::all() {
        passes_unchanged(&router, &case.bytes(), case.name);
    }
}

#[test]
fn cut_packets_pass_unchanged() {
    let Some(router) = told(3) else {
        return;
    };
    for (name, whole) in crossed::all(UPSTREAM) {
        let padded = cases::named(name).layers.last().unwrap().0 == "Ethernet padding";
        for length in SHORTEST..whole.len() {
            if !padded {
                passes_unchanged(
                    &router,
                    &whole[..length],
                    &format!("{name} cut to {length}"),
                );
            } else if let Some(out) = router.try_send(&whole[..length]) {
                edit::check_cloud(&whole[..length], &out, 3);
            }
        }
    }
}

#[test]
fn damaged_packets_are_edited_only_if_they_name_the_upstream_router() {
    let Some(router) = told(2) else {
        return;
    };
    let goldens = crossed::all(UPSTREAM);
    let mut random = Random(0x5843_0002);
    let (mut own, mut others) = (0u64, 0u64);
    for round in 0..ROUNDS {
        let (name, mut frame) = goldens[random.below(goldens.len())].clone();
        damage(&mut frame, &mut random);
        let Some(out) = router.try_send(&frame) else {
            continue;
        };
        let seen = decode::decode(&frame);
        if seen.is_forward() && last_router(&seen) == Some(UPSTREAM) {
            own += 1;
            edit::check_cloud(&frame, &out, 2);
        } else {
            others += 1;
            assert!(out == frame, "round {round}, {name}: changed: {seen:?}");
        }
        assert_eq!(router.counters().xcp_packets, own, "round {round}, {name}");
    }
    assert!(own > 1000 && others > 1000, "{own} and {others}");
}

/// Without a recent probe the virtual router is suspended.
#[test]
fn packets_pass_unchanged_without_a_recent_probe() {
    let Some(router) = Router::of_cloud(UPSTREAM) else {
        return;
    };
    let now_ns = monotonic_ns();
    for last_probe_ns in [0, 1, now_ns - 60 * NS_PER_MS] {
        router.update(cloud_probed_at(last_probe_ns));
        for (name, frame) in crossed::all(UPSTREAM) {
            passes_unchanged(
                &router,
                &frame,
                &format!("{name}, last probe at {last_probe_ns}"),
            );
        }
    }
}

/// While other traffic fills the cloud, its routers stay visible as non-XCP routers, nothing
/// is counted, and deltas are only lowered.
#[test]
fn suspended_virtual_router_only_lowers_deltas() {
    let Some(router) = told(3) else {
        return;
    };
    router.suspend_until(ALWAYS_NS);
    let mut lowered = 0;
    for (name, frame) in crossed::all(UPSTREAM) {
        let out = router.send(&frame);
        let delta = edit::check_cloud(&frame, &out, 0).expect("a forward header");
        let asked = decode::decode(&frame).forward.unwrap();
        assert_eq!(delta < 0, asked.delta_Bps < 0, "{name}");
        lowered += u32::from(delta < asked.delta_Bps);
        let seen = decode::decode(&out).forward.unwrap();
        assert_eq!(seen.other_hops, asked.other_hops, "{name}");
    }
    assert!(lowered > 5, "{lowered}");
    assert_eq!(router.counters().xcp_packets, 0);
    assert_eq!((router.input_B(), router.link().started), (0, 0));
    router.suspend_until(0);
    router.send(&crossed::named("forward", UPSTREAM));
    assert_eq!(router.counters().xcp_packets, 1);
}

/// Before the first packet there is no control interval, so the limit is 50 ms.
#[test]
fn probe_is_valid_for_50_ms_before_the_first_packet() {
    let Some(router) = Router::of_cloud(UPSTREAM) else {
        return;
    };
    let frame = crossed::named("xcp-ttl-ahead", UPSTREAM);
    let edits_after = |age_ms: u64| {
        router.reset();
        router.update(cloud_probed_at(monotonic_ns() - age_ms * NS_PER_MS));
        router.send(&frame) != frame
    };
    assert!(xcp_testbed::eventually(|| edits_after(0)));
    assert!(xcp_testbed::eventually(|| edits_after(40)));
    assert!(!edits_after(51));
}

/// The limit is two control intervals; the first one has 200 ms.
#[test]
fn probe_is_valid_for_two_control_intervals() {
    let Some(router) = told(3) else {
        return;
    };
    let frame = crossed::named("xcp-ttl-ahead", UPSTREAM);
    // the interval is new, so no packet can end it
    let edits_after = |age_ms: u64| {
        router.reset();
        router.update(cloud(3));
        router.send(&frame);
        router.update(cloud_probed_at(monotonic_ns() - age_ms * NS_PER_MS));
        router.send(&frame) != frame
    };
    assert!(xcp_testbed::eventually(|| edits_after(300)));
    assert!(!edits_after(401));
    assert!(!edits_after(10_000));
}

/// The capacity that trains found free is granted once an interval has ended.
#[test]
fn free_capacity_is_granted() {
    let Some(router) = told(3) else {
        return;
    };
    // the packet requests 10 kB/s more
    let frame = crossed::named("forward", UPSTREAM);
    let granted = retry_until_one_interval(|| {
        sleep(Duration::from_millis(20));
        let out = router.send(&frame);
        edit::check_cloud(&frame, &out, 3).filter(|delta| *delta > 0)
    });
    assert!(granted <= 10_000, "{granted}");
    let link = router.link();
    assert!(link.started > 0 && link.epoch > 0);
    // the initial value, or more if the router has measured since then
    assert!(
        link.state.capacity.link_Bps >= FREE_BPS,
        "{:?}",
        link.state.capacity
    );
}

/// The backlog of the cloud is its capacity times the wait of the last probe.
#[test]
fn backlog_follows_the_wait_of_the_last_probe() {
    let Some(router) = Router::of_cloud(UPSTREAM) else {
        return;
    };
    let frame = crossed::named("forward", UPSTREAM);
    for (queue_delay_ms, backlog_B) in [(0, 0), (2, 0), (30, FREE_BPS * 30 / 1000)] {
        router.reset();
        router.update(xcp_cloud {
            wait_ns: queue_delay_ms * NS_PER_MS,
            ..cloud(3)
        });
        router.send(&frame);
        let seen = router.link().seen.backlog_B;
        assert!(
            seen <= backlog_B && seen + 300 > backlog_B,
            "{seen}, {backlog_B}"
        );
    }
}
