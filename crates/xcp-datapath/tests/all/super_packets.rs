// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Segmented super-packets: one header stands for all their wire packets.

use std::thread::sleep;
use std::time::Duration;

use crate::support::flow::{send_slow, FAST, RESOLUTION_BPS};
use crate::support::{edit, pin, until_in_time, Router};
use crate::wire::cases;
use crate::wire::frame::{Frame, Ip, TCP, UDP};
use crate::wire::option::{self, Forward};
use libbpf_rs::ProgramInput;
use xcp_datapath::router::{LawTerms, Options};

const CAPACITY_BPS: u64 = 12_500_000;
const SEGMENTS: u32 = 10;
const WIRE_BYTES: u32 = 15_140;
/// The first control interval, 200 ms, and a bit.
const INTERVAL: Duration = Duration::from_millis(220);

/// struct __sk_buff (uapi/linux/bpf.h), of which only this is set.
const CONTEXT_LEN: usize = 192;
const WIRE_LEN: usize = 160;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;

/// Sends a frame as a super-packet; `None` if this kernel cannot.
fn send(router: &Router, frame: &[u8]) -> Option<Vec<u8>> {
    send_as(router, frame, SEGMENTS, 1448)
}

/// The same as the kernel has them: of so many segments, 0 where nobody has
/// counted them, of so much payload each.
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
                "super-packets",
                &format!("not in this kernel's test runs: {e}"),
            );
            return None;
        }
    }
    Some(out)
}

/// Two super-packets an interval share the pool of decreases by the sizes of
/// their wire packets; in the published law, which expects as much as came.
#[test]
fn every_wire_packet_takes_its_own_share() {
    // one per-CPU record sees everything
    assert!(pin::stay_on_this_cpu());
    let frame = cases::named("delta-most").bytes();
    // twice two packets that meet in one control interval
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
    let Some((router, deltas)) = until_in_time(attempt) else {
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
fn one_header_counts_for_every_wire_packet() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // one per-CPU record sees everything
    assert!(pin::stay_on_this_cpu());
    let greedy = Forward {
        delta_Bps: i32::MAX,
        ..cases::wish()
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
            assert!(delta > 0, "an idle link hands out");
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

/// What comes from a guest or a tap device: only the segments' size is known.
#[test]
fn segments_that_nobody_has_counted_count() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // one per-CPU record sees everything
    assert!(pin::stay_on_this_cpu());
    let seen = || {
        let counted = router.counters();
        counted.xcp_packets + counted.other_packets
    };
    let forward = option::forward(cases::wish());
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

/// What option-2005 cannot say is carried for every wire packet, and so may
/// pass between single and super-packets.
#[test]
fn remainders_count_for_every_wire_packet() {
    const ROUNDS: usize = 1000;
    const SINGLE: usize = 12;
    // one per-CPU record sees everything
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
    let Some([exact, carried]) = until_in_time(attempt) else {
        return;
    };
    assert!(exact > 100.0 * RESOLUTION_BPS, "{exact} B/s in all");
    let off = (carried - exact).abs() / exact;
    assert!(off < 0.01, "{carried} B/s in all, not {exact}");
}

/// A header of the draft stands for all wire packets too.
#[test]
fn headers_count_for_every_wire_packet() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    // one per-CPU record sees everything
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
            // X is of the wire packet's size
            let x_ticks = u64::from(FAST.x_ticks) * u64::from(SEGMENTS);
            assert_eq!(law.pos.total, x_ticks);
        }
        sleep(INTERVAL);
    }
}
