// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! GSO packets: one XCP header counts for all their wire packets.

use std::thread::sleep;
use std::time::Duration;

use crate::support::flow::{send_slow, FAST, RESOLUTION_BPS};
use crate::support::{edit, pin, retry_until_one_interval, Router};
use crate::wire::cases;
use crate::wire::frame::{Frame, Ip, TCP, UDP};
use crate::wire::option::{self, Forward};
use libbpf_rs::ProgramInput;
use xcp_datapath::router::{LawTerms, Options};

const CAPACITY_BPS: u64 = 12_500_000;
const SEGMENTS: u32 = 10;
const WIRE_BYTES: u32 = 15_140;
/// Slightly longer than the first control interval of 200 ms.
const INTERVAL: Duration = Duration::from_millis(220);

/// The size of struct __sk_buff (uapi/linux/bpf.h), and the offsets of the fields that are set.
const CONTEXT_LEN: usize = 192;
const WIRE_LEN: usize = 160;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;

/// Sends a frame as a GSO packet; `None` if this kernel cannot do that.
fn send(router: &Router, frame: &[u8]) -> Option<Vec<u8>> {
    send_as(router, frame, SEGMENTS, 1448)
}

/// Sends a frame as a GSO packet with this number of segments (0 if the kernel has not counted
/// them) and this payload per segment.
fn send_as(router: &Router, frame: &[u8], segments: u32, size: u32) -> Option<Vec<u8>> {
    let mut context = [0; CONTEXT_LEN];
    for (at, value) in [
        (WIRE_LEN, WIRE_BYTES),
        (GSO_SEGS, segments),
        (GSO_SIZE, size),
    ] {
        context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let mut out = vec![0; frame.len()];
    let program = router
        .bench()
        .object()
        .progs_mut()
        .find(|p| p.name() == "xcp_router")
        .expect("the router program");
    let result = program.test_run(ProgramInput {
        data_in: Some(frame),
        data_out: Some(&mut out),
        context_in: Some(&mut context),
        repeat: 1,
        ..Default::default()
    });
    match result {
        Ok(result) => assert_eq!(result.return_value as i32, -1),
        Err(e) => {
            xcp_testbed::skipped(
                "GSO packets",
                &format!("this kernel does not support them in test runs: {e}"),
            );
            return None;
        }
    }
    Some(out)
}

/// Two GSO packets per interval share the pool of decreases by the sizes of their wire
/// packets. This uses the published law, which expects as many bytes as in the last interval.
#[test]
fn gso_packets_share_the_decrease_by_their_wire_packets() {
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let frame = cases::named("delta-most").bytes();
    // two pairs of packets, each pair within one control interval
    let attempt = || {
        let options = Options {
            capacity_bytes_per_s: 1_000,
            without: LawTerms::all(),
            ..Default::default()
        };
        let Some(router) = Router::with(options) else {
            return Some(None);
        };
        let mut deltas = vec![];
        for _ in 0..2 {
            deltas.clear();
            for _ in 0..2 {
                let Some(out) = send(&router, &frame) else {
                    return Some(None);
                };
                deltas.push(edit::check(&frame, &out).expect("a forward header"));
            }
            sleep(INTERVAL);
        }
        (router.intervals() == 1).then_some(Some((router, deltas)))
    };
    let Some((router, deltas)) = retry_until_one_interval(attempt) else {
        return;
    };
    let link = router.link();
    let law = &link.law[link.epoch as usize & 1];
    let neg = law.neg_pool as f64 / f64::from(law.shift).exp2();
    let share = -neg / f64::from(2 * SEGMENTS);
    for delta in deltas {
        assert!((f64::from(delta) - share).abs() <= 1.0, "{delta}: {share}");
    }
}

#[test]
fn one_option_counts_for_every_wire_packet() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let greedy = Forward {
        delta_Bps: i32::MAX,
        ..cases::default_request()
    };
    let frame = cases::data(greedy, 1448);
    let mut granted = 0;
    for round in 1..=4 {
        let Some(out) = send(&router, &frame) else {
            return;
        };
        let delta = edit::check(&frame, &out).expect("a forward header");
        granted += i64::from(delta) * i64::from(SEGMENTS);

        let counted = router.counters();
        assert_eq!(counted.xcp_packets, round * u64::from(SEGMENTS));
        assert_eq!(counted.granted_Bps, granted);
        let link = router.link();
        if round > 1 {
            assert!(delta > 0, "an idle link grants increases");
            let law = &link.law[link.epoch as usize & 1];
            assert_eq!(law.neg.total, u64::from(WIRE_BYTES));
            assert_eq!(
                law.pos.total,
                u64::from(greedy.x_ticks) * u64::from(SEGMENTS)
            );
        }
        sleep(INTERVAL);
    }

    let before = router.counters();
    let other = cases::named("option-version").bytes();
    assert_eq!(send(&router, &other), Some(other.clone()));
    let after = router.counters();
    assert_eq!(
        after.other_packets,
        before.other_packets + u64::from(SEGMENTS)
    );
    assert_eq!(after.malformed, before.malformed + u64::from(SEGMENTS));
}

/// Packets from a guest or a tap device have a known segment size, but no segment count.
#[test]
fn missing_segment_count_is_computed_from_the_segment_size() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let seen = || {
        let counted = router.counters();
        counted.xcp_packets + counted.other_packets
    };
    let forward = option::forward(cases::default_request());
    for ip in [Ip::v4(), Ip::v6()] {
        for (protocol, options) in [(TCP, vec![]), (TCP, forward.clone()), (UDP, vec![])] {
            for (payload, segments) in [(1400, 10), (1401, 11), (139, 1)] {
                let frame = Frame {
                    ip: ip.clone(),
                    protocol,
                    options: options.clone(),
                    payload,
                    ..Frame::default()
                };
                let before = seen();
                if send_as(&router, &frame.bytes(), 0, 140).is_none() {
                    return;
                }
                let case = (ip.version(), protocol, options.len(), payload);
                assert_eq!(seen() - before, segments, "{case:?}");
            }
        }
    }
}

/// Fractions that option-2005 cannot carry are kept for every wire packet, so they may move
/// between single packets and GSO packets.
#[test]
fn option_2005_remainder_counts_for_every_wire_packet() {
    const ROUNDS: usize = 1000;
    const SINGLE: usize = 12;
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let attempt = || {
        let (Some(exact), Some(carried)) = (Router::new(125_000_000), Router::new(125_000_000))
        else {
            return Some(None);
        };
        let flows = [(&exact, FAST.option()), (&carried, FAST.option_2005())];
        for (router, _) in &flows {
            send_slow(router);
        }
        sleep(INTERVAL);
        for _ in 0..ROUNDS {
            for (router, frame) in &flows {
                let Some(out) = send(router, frame) else {
                    return Some(None);
                };
                edit::check(frame, &out).expect("a forward option");
                for _ in 0..SINGLE {
                    router.send(frame);
                }
            }
        }
        let granted = [&exact, &carried].map(|r| r.counters().granted_Bps as f64);
        let one_law = flows.iter().all(|(router, _)| router.intervals() == 1);
        one_law.then_some(Some(granted))
    };
    let Some([exact, carried]) = retry_until_one_interval(attempt) else {
        return;
    };
    assert!(exact > 100.0 * RESOLUTION_BPS, "{exact} B/s in total");
    let off = (carried - exact).abs() / exact;
    assert!(off < 0.01, "{carried} B/s in total, not {exact}");
}

/// An XCP header (IP protocol) also counts for all wire packets.
#[test]
fn one_header_counts_for_every_wire_packet() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let frame = FAST.header(1);
    for round in 1..=2 {
        let Some(out) = send(&router, &frame) else {
            return;
        };
        edit::check(&frame, &out).expect("a standard header");
        let counted = router.counters();
        assert_eq!(counted.xcp_packets, round * u64::from(SEGMENTS));
        if round > 1 {
            let link = router.link();
            let law = &link.law[link.epoch as usize & 1];
            // X belongs to one wire packet
            let x_ticks = u64::from(FAST.x_ticks) * u64::from(SEGMENTS);
            assert_eq!(law.pos.total, x_ticks);
        }
        sleep(INTERVAL);
    }
}
