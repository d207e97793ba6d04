// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of core/xcp_cloud.h, and of the header edits that routers at a cloud's edges make.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::iter;

use proptest::prelude::*;
use xcp_core::*;

use crate::properties::{cases, extreme_u64, forward, ones_sum};

const NS_PER_MS: u64 = 1_000_000;
/// The initial estimate of a cloud's capacity: 20 packets in an initial interval.
const FIRST_BPS: u64 = 150_000;
/// The smallest later estimate: eight packets per interval.
const LEAST_B: u64 = 12_000;
/// A control interval that makes the rates in these tests whole numbers.
const D_NS: u64 = 200 * NS_PER_MS;
/// The largest link capacity that core/ supports.
const MAX_BPS: u64 = 1 << 42;

fn cloud_with_wait(wait_ns: u64) -> xcp_cloud {
    xcp_cloud {
        wait_ns,
        ..xcp_cloud::default()
    }
}

fn told(last_probe_ns: u64) -> xcp_cloud {
    xcp_cloud {
        last_probe_ns,
        ..xcp_cloud::default()
    }
}

/// A wait of 2 ms or less, one or two full packets at 10 Mb/s, counts as an empty cloud.
#[test]
fn a_wait_of_up_to_2_ms_counts_as_no_backlog() {
    for link_Bps in [0, 1, FIRST_BPS, 1_250_000, MAX_BPS, (1 << 44) - 1] {
        for wait_ns in [0, 1, NS_PER_MS, 2 * NS_PER_MS] {
            assert_eq!(
                xcp_cloud_backlog(&cloud_with_wait(wait_ns), link_Bps),
                0,
                "{wait_ns}"
            );
        }
        assert!(xcp_cloud_backlog(&cloud_with_wait(2 * NS_PER_MS + 1), link_Bps) >= 1);
    }
}

#[test]
fn backlog_of_common_links_is_rate_times_wait() {
    // 10 Mb/s with 30 ms, 1 Gb/s with 3 ms, 75 kB/s with 1 s
    for (link_Bps, wait_ms, backlog_B) in [
        (1_250_000, 30, 37_500.0),
        (125_000_000, 3, 375_000.0),
        (75_000, 1_000, 75_000.0),
    ] {
        let got = xcp_cloud_backlog(&cloud_with_wait(wait_ms * NS_PER_MS), link_Bps) as f64;
        assert!((got / backlog_B - 1.0).abs() < 0.02, "{got}, {backlog_B}");
    }
}

#[test]
fn largest_backlog_does_not_overflow() {
    let most = xcp_cloud_backlog(&cloud_with_wait(u64::MAX), (1 << 44) - 1);
    let exact = ((1u128 << 44) - 1) * 100; // a wait counts as at most 100 s
    assert!(u128::from(most) <= exact && exact - u128::from(most) < 256 * 101);
}

#[test]
fn a_probe_is_valid_for_two_control_intervals_but_at_least_50_ms() {
    let at_ns = 7_000_000_000;
    let cloud = told(at_ns);
    // control interval, and how long a probe stays valid
    for (d_ms, patience_ms) in [
        (0, 50),
        (10, 50),
        (25, 50),
        (26, 52),
        (200, 400),
        (64_000, 128_000),
    ] {
        let (d_ns, patience_ns) = (d_ms * NS_PER_MS, patience_ms * NS_PER_MS);
        assert!(xcp_cloud_known(&cloud, at_ns, d_ns));
        assert!(
            xcp_cloud_known(&cloud, at_ns + patience_ns, d_ns),
            "{d_ms} ms"
        );
        assert!(
            !xcp_cloud_known(&cloud, at_ns + patience_ns + 1, d_ns),
            "{d_ms} ms"
        );
        assert!(!xcp_cloud_known(&cloud, u64::MAX, d_ns));
    }
}

#[test]
fn a_cloud_without_probes_is_unknown() {
    for now_ns in [0, 1, 50 * NS_PER_MS, u64::MAX] {
        assert!(!xcp_cloud_known(&told(0), now_ns, 1_000 * NS_PER_MS));
    }
}

/// This happens if another CPU read its clock slightly earlier.
#[test]
fn a_probe_time_in_the_future_is_valid() {
    for ahead_ns in [1, NS_PER_MS, 3_600_000 * NS_PER_MS] {
        assert!(xcp_cloud_known(&told(NS_PER_MS + ahead_ns), NS_PER_MS, 0));
    }
}

/// Updates the backoff every 10 ms for `intervals` control intervals, with the probe waits
/// that `wait_ns` gives for each time. Returns the length of each suspension in seconds.
fn suspensions_s(intervals: u64, wait_ns: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut backoff = xcp_cloud_backoff::default();
    let mut found = Vec::new();
    let mut now_ns = D_NS;
    while now_ns < intervals * D_NS {
        let suspended = xcp_cloud_backoff_active(&backoff, now_ns);
        if !suspended {
            xcp_cloud_backoff_update(&mut backoff, wait_ns(now_ns), now_ns, D_NS);
            if xcp_cloud_backoff_active(&backoff, now_ns) {
                found.push((backoff.suspended_until_ns - now_ns) / NS_PER_MS / 1_000);
            }
        }
        now_ns += 10 * NS_PER_MS;
    }
    found
}

const SIZE_B: u64 = 1500;

/// The delta that a packet keeps while the virtual router is suspended.
fn held_back_Bps(cloud: &xcp_cloud, delta: i32, rtt: u32, x: u32) -> i32 {
    let header = xcp_forward {
        rtt,
        x,
        delta,
        ..Default::default()
    };
    xcp_cloud_backoff_delta(cloud, &header, SIZE_B)
}

/// Flows grow by one packet per RTT like Reno, or by W^(2/3) / 2 per second, close to CUBIC.
#[test]
fn flows_grow_like_tcp_while_the_virtual_router_is_suspended() {
    const SECOND: u32 = 1 << 28; // ticks
    let packets_per_s = |window: u32, rtt: u32| {
        let granted = held_back_Bps(&xcp_cloud::default(), i32::MAX, rtt, rtt / window);
        // `window` packets per RTT, each of which adds granted * RTT to the window
        f64::from(granted) * f64::from(window) / SIZE_B as f64
    };
    for (window, rtt, want) in [
        (1000, SECOND / 4, 50.0),
        (125, SECOND, 12.5),
        (64, SECOND / 100, 100.0),
        (1, SECOND / 10, 10.0),
        (1, SECOND, 1.0),
    ] {
        let found = packets_per_s(window, rtt);
        assert!(
            (found / want - 1.0).abs() < 0.05,
            "{window}: {found}, {want}"
        );
    }
    let of = |delta, rtt, x| held_back_Bps(&xcp_cloud::default(), delta, rtt, x);
    assert_eq!(of(151, SECOND, SECOND / 125), 150);
    assert_eq!(of(50, SECOND, SECOND / 125), 50);
    assert_eq!(of(-5, SECOND, SECOND / 125), -5);
    // RTT or X is not known yet
    assert_eq!((of(1, 0, 1), of(1, 1, 0), of(-1, 0, 0)), (0, 0, -1));
    // a sender with the largest window
    assert_eq!(of(i32::MAX, u32::MAX, 1), 0);
    let without = xcp_cloud {
        flags: XCP_CLOUD_NO_DELTA_LIMIT,
        ..xcp_cloud::default()
    };
    assert_eq!(held_back_Bps(&without, i32::MAX, SECOND, SECOND), i32::MAX);
}

/// The first suspension follows after 12 intervals and lasts 10 s, the next ones 20 s and so on.
#[test]
fn a_persistent_queue_suspends_the_virtual_router() {
    assert_eq!(
        suspensions_s(3_000, |_| D_NS),
        [10, 20, 40, 80, 160, 160, 160]
    );
    assert!(suspensions_s(12, |_| D_NS).is_empty());
}

/// Virtual routers leave a short queue behind, and an overload leaves a temporary one.
#[test]
fn queues_caused_by_xcp_do_not_suspend_the_virtual_router() {
    assert!(suspensions_s(3_000, |_| D_NS / 4).is_empty());
    let overload = |now_ns: u64| now_ns / D_NS % 20 < 8;
    let wait_ns = |now_ns| if overload(now_ns) { 3 * D_NS } else { 0 };
    assert!(suspensions_s(3_000, wait_ns).is_empty());
}

/// The capacity granted beyond the measured traffic is 20 KB per flow and interval, and
/// shrinks as the queue grows.
#[test]
fn excess_capacity_shrinks_as_the_queue_grows() {
    let over_B = |wait_ns, flows| {
        xcp_cloud_excess(&cloud_with_wait(wait_ns), flows, D_NS) * D_NS / 1_000 / NS_PER_MS
    };
    let flow = 256;
    assert!(over_B(0, flow).abs_diff(20_000) <= 1);
    assert!(over_B(D_NS / 8, flow).abs_diff(10_000) <= 1);
    assert!(over_B(D_NS / 8, 3 * flow).abs_diff(30_000) <= 1);
    assert!(over_B(0, 0).abs_diff(20_000) <= 1, "no flows count as one");
    for wait_ns in [D_NS / 4, D_NS, u64::MAX] {
        assert_eq!(
            xcp_cloud_excess(&cloud_with_wait(wait_ns), flow, D_NS),
            1,
            "1 B/s is the minimum"
        );
    }
}

/// The start of a transfer may fill a queue for 8 intervals. A start much later does not
/// add to that count.
#[test]
fn intervals_with_a_queue_before_a_pause_do_not_count() {
    let mut backoff = xcp_cloud_backoff::default();
    for transfer in 0..20 {
        for interval in 0..=8 {
            let now_ns = (transfer * 1_000 + interval) * D_NS + D_NS;
            xcp_cloud_backoff_update(&mut backoff, D_NS, now_ns, D_NS);
            assert!(
                !xcp_cloud_backoff_active(&backoff, now_ns),
                "{transfer}, {interval}"
            );
        }
    }
}

/// After a long time without other traffic, suspensions start at 10 s again.
#[test]
fn backoff_restarts_after_a_long_time_without_other_traffic() {
    let crowded = |now_ns: u64| (now_ns / (1_500 * D_NS)).is_multiple_of(2);
    let wait_ns = |now_ns| if crowded(now_ns) { D_NS } else { 0 };
    let found = suspensions_s(3_500, wait_ns);
    assert_eq!(found.iter().filter(|s| **s == 10).count(), 2, "{found:?}");
}

proptest! {
    #![proptest_config(cases(4000))]

    /// The backlog is L w, rounded down in steps of 1 us, 256 B/s and 256 B; at least 1 B.
    #[test]
    fn backlog_is_rate_times_wait(
        link_Bps in extreme_u64(),
        wait_ns in extreme_u64(),
        (less, shorter) in (20..64u32, 0..64u32),
    ) {
        let (link_Bps, wait_ns) = (link_Bps >> less, wait_ns >> shorter);
        let backlog_B = xcp_cloud_backlog(&cloud_with_wait(wait_ns), link_Bps);
        if wait_ns <= 2 * NS_PER_MS {
            prop_assert_eq!(backlog_B, 0);
            return Ok(());
        }
        let us = u128::from(wait_ns.min(100_000_000_000) / 1_000);
        let exact_B = u128::from(link_Bps) * us / 1_000_000;
        let least_B = u128::from(link_Bps).saturating_sub(255) * us / 1_000_000;
        let backlog_B = u128::from(backlog_B);
        prop_assert!(backlog_B <= exact_B.max(1), "{backlog_B}, more than {exact_B}");
        prop_assert!(backlog_B >= 1 && backlog_B + 256 > least_B, "{backlog_B}, {least_B}");
    }

    /// The estimate starts with the rate that trains found free, within the supported range.
    /// Later it is the measured rate, but at least eight packets per interval.
    #[test]
    fn capacity_estimate_starts_at_the_free_rate_and_has_a_minimum(
        link_Bps in extreme_u64(),
        free_Bps in extreme_u64(),
    ) {
        let cloud = xcp_cloud { free_Bps, ..xcp_cloud::default() };
        prop_assert_eq!(xcp_cloud_least(&cloud, 0, D_NS), free_Bps.clamp(FIRST_BPS, MAX_BPS));
        if link_Bps > 0 {
            let least_Bps = LEAST_B * 1_000 * NS_PER_MS / D_NS;
            // numbers of 32 bits round down
            let found_Bps = xcp_cloud_least(&cloud, link_Bps, D_NS);
            prop_assert!(found_Bps.abs_diff(link_Bps.max(least_Bps)) <= 1);
        }
    }

    /// A virtual router's edit writes the delta, makes the cloud's routers count as XCP
    /// routers in xcp_ttl, and adds no hop. A correct checksum stays correct, and a wrong one
    /// stays wrong.
    #[test]
    fn edit_by_a_virtual_router_adds_no_hop(
        (f, routers) in (forward(), any::<u8>()),
        (delta, ip_ttl) in any::<(i32, u8)>(),
        // favour few routers and a TTL near xcp_ttl
        (few, ahead) in (prop::option::of(0..6u8), prop::option::of(-3..10i16)),
        mut bytes in prop::collection::vec(any::<u8>(), 40..80),
        offset in 0..70usize,
    ) {
        let routers = few.unwrap_or(routers);
        let ip_ttl = ahead.map_or(ip_ttl, |a| (i16::from(f.xcp_ttl) - a).clamp(0, 255) as u8);
        let fits = place(&mut bytes, offset, f);
        let before = bytes.clone();
        prop_assert_eq!(wire::edit_cloud(&mut bytes, offset, delta, ip_ttl, routers), fits);
        if !fits {
            prop_assert_eq!(bytes, before);
            return Ok(());
        }
        let xcp_ttl = match f.xcp_ttl > ip_ttl {
            true => f.xcp_ttl.saturating_sub(routers).max(ip_ttl),
            false => f.xcp_ttl,
        };
        let want = xcp_forward { delta, xcp_ttl, xcp_hops: f.xcp_hops.min(15), ..f };
        prop_assert_eq!(wire::parse_forward(&bytes[offset..]), Some(want));
        prop_assert_eq!(ones_sum(&bytes) % 0xffff, ones_sum(&before) % 0xffff);
        // the bytes of xcp_ttl and delta
        check_others(&before, &bytes, &[offset + 5..offset + 6, offset + 14..offset + 18])?;
    }

    /// Setting last_xcp_router changes only its four bytes and the checksum.
    #[test]
    fn edit_of_the_last_router_changes_four_bytes(
        (f, router) in (forward(), any::<u32>()),
        // include small changes, which test the carry in the checksum
        change in prop::option::of(0..4u32),
        mut bytes in prop::collection::vec(any::<u8>(), 40..80),
        offset in 0..70usize,
    ) {
        let router = change.map_or(router, |c| f.last_xcp_router.wrapping_add(c));
        let fits = place(&mut bytes, offset, f);
        let before = bytes.clone();
        prop_assert_eq!(wire::edit_last_router(&mut bytes, offset, router), fits);
        if !fits {
            prop_assert_eq!(bytes, before);
            return Ok(());
        }
        let last = offset + 18..offset + wire::FORWARD_LEN;
        prop_assert_eq!(&bytes[last.clone()], router.to_be_bytes());
        prop_assert_eq!(ones_sum(&bytes) % 0xffff, ones_sum(&before) % 0xffff);
        check_others(&before, &bytes, &[last])?;
    }
}

/// Writes the option at `offset`, if it fits behind the fixed header. Returns whether it fits.
fn place(bytes: &mut [u8], offset: usize, f: xcp_forward) -> bool {
    let fits = (20..60).contains(&offset) && offset + wire::FORWARD_LEN <= bytes.len();
    if fits {
        bytes[offset..offset + wire::FORWARD_LEN].copy_from_slice(&wire::build_forward(&f));
    }
    fits
}

/// Checks that only these bytes and the checksum have changed.
fn check_others(
    before: &[u8],
    after: &[u8],
    changed: &[std::ops::Range<usize>],
) -> Result<(), TestCaseError> {
    let mut same = after.to_vec();
    for range in changed.iter().cloned().chain(iter::once(16..18)) {
        same[range.clone()].copy_from_slice(&before[range]);
    }
    prop_assert_eq!(same, before);
    Ok(())
}
