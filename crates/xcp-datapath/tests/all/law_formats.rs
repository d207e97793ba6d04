// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! All wire formats use the same control law: equal requests get equal grants, as far
//! as the format can carry them.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::thread::sleep;
use std::time::Duration;

use crate::support::flow::{send_slow, Flow, FAST, FRAME_B, RESOLUTION_BPS};
use crate::support::{edit, pin, retry_until_one_interval, Router};
use crate::wire::decode::{decode, Wire};
use xcp_datapath::router::Options;

/// Slightly longer than the first control interval of 200 ms.
const FIRST_INTERVAL: Duration = Duration::from_millis(220);

fn send(router: &Router, frame: &[u8]) -> f64 {
    let out = router.send(frame);
    edit::check(frame, &out)
        .expect("a forward header or option")
        .into()
}

/// Returns the current epoch, its pool of increases, B/s, and one packet's share.
fn pos(router: &Router, x_ticks: u32) -> (u32, f64, f64) {
    let link = router.link();
    let law = &link.law[link.epoch as usize & 1];
    let pool = law.pos_pool as f64 / f64::from(law.shift).exp2();
    let share = pool * f64::from(x_ticks) / (law.pos.total as f64).max(1.0);
    (link.epoch, pool, share)
}

/// A flow with an RTT of 100 ms and a packet every 2 ms.
const USUAL: Flow = Flow {
    rtt_ms: 100,
    cwnd: 50,
    rtt_ticks: 26_843_545,
    x_ticks: 536_871,
    throughput_B_per_ms: 757,
};

/// The allowed relative difference between a grant and the grant in the format `option`.
const FORMATS: [(Wire, f64); 5] = [
    (Wire::Option, 0.0),
    // the mantissa has 9 to 12 significant bits, and the remainder of the last packet is added
    (Wire::Option2005, 1.0 / 128.0),
    (Wire::Header, 1e-5),
    (Wire::HeaderV2, 1e-5),
    // X is computed from whole B/ms: 536870 ticks
    (Wire::Header2004, 1e-5),
];

#[test]
fn all_formats_get_the_same_grants() {
    const CYCLES: usize = 40;
    const BURSTS: usize = 8;
    // for machines on which cycles are often interrupted
    const BURSTS_MAX: usize = 400;
    let Some(router) = Router::new(12_500_000) else {
        return;
    };
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let frames = [
        USUAL.option(),
        USUAL.option_2005(),
        USUAL.header(3),
        USUAL.header(2),
        USUAL.header(1),
    ];
    for (frame, (wire, _)) in frames.iter().zip(FORMATS) {
        assert_eq!(frame.len() as f64, FRAME_B);
        assert_eq!(decode(frame).wire, Some(wire));
    }

    let (mut compared, mut sums) = (0, [0.0; 5]);
    let (mut spent_Bps, mut last) = (0.0, 0);
    let mut bursts = 0;
    while bursts < BURSTS || compared <= CYCLES && bursts < BURSTS_MAX {
        bursts += 1;
        for _ in 0..CYCLES {
            let (before, ..) = pos(&router, USUAL.x_ticks);
            let got = frames.each_ref().map(|frame| send(&router, frame));
            let (now, pool, share) = pos(&router, USUAL.x_ticks);
            if now != last {
                (spent_Bps, last) = (0.0, now);
            }
            spent_Bps += 5.0 * share;
            // all five must use the same law, and the pool must suffice for all five
            if before != now || share == 0.0 || spent_Bps > 0.98 * pool {
                continue;
            }
            compared += 1;
            for (i, (wire, within)) in FORMATS.iter().enumerate() {
                let off = (got[i] - got[0]).abs();
                assert!(off <= within * got[0] + 2.0, "{wire:?}: {got:?}");
                sums[i] += got[i];
            }
        }
        sleep(Duration::from_millis(110));
    }
    assert!(compared > CYCLES, "only {compared} cycles compared");
    assert!(sums[0] > 1e5, "an idle link grants increases");
    for (sum, (wire, _)) in sums.iter().zip(FORMATS) {
        let off = (sum - sums[0]).abs() / sums[0];
        assert!(off < 1e-3, "{wire:?}: {sum} B/s in total, not {}", sums[0]);
    }
    assert_eq!(router.counters().xcp_packets, (5 * CYCLES * bursts) as u64);
}

#[test]
fn fractions_that_option_2005_cannot_carry_are_kept_for_later_packets() {
    // stay on one CPU, so that one per-CPU record counts everything
    assert!(pin::stay_on_this_cpu());
    let Some(Granted { sums, single }) = retry_until_one_interval(what_is_granted) else {
        return;
    };
    assert!(
        single[0] < RESOLUTION_BPS / 10.0,
        "each packet's share, {}, is below the resolution of the format",
        single[0]
    );
    assert!(sums[0] > 100.0 * RESOLUTION_BPS, "{} B/s in total", sums[0]);
    // and no packet gets more than one unit
    assert!(single[1] <= RESOLUTION_BPS, "{} B/s at once", single[1]);
    let off = (sums[1] - sums[0]).abs() / sums[0];
    assert!(off < 0.01, "{} B/s in total, not {}", sums[1], sums[0]);
    assert!(sums[2] < 0.01 * sums[0], "{} B/s in whole packets", sums[2]);
}

/// The grants of the fast flow in B/s: in the formats `option`,
/// `option-2005`, and `option-2005` with feedback in whole packets.
struct Granted {
    /// The sum over all packets.
    sums: [f64; 3],
    /// The largest grant of one packet.
    single: [f64; 3],
}

/// Measures the grants. None if a control interval ended during the measurement, Some(None)
/// if this machine cannot load a router.
fn what_is_granted() -> Option<Option<Granted>> {
    const PACKETS: usize = 4000;
    let options = Options {
        capacity_bytes_per_s: 125_000_000,
        ..Default::default()
    };
    let whole = Options {
        whole_feedback: true,
        ..options
    };
    let (Some(exact), Some(carried), Some(lost)) = (
        Router::with(options),
        Router::with(options),
        Router::with(whole),
    ) else {
        return Some(None);
    };
    let flows = [
        (&exact, FAST.option()),
        (&carried, FAST.option_2005()),
        (&lost, FAST.option_2005()),
    ];
    for (router, _) in &flows {
        send_slow(router);
    }
    sleep(FIRST_INTERVAL);

    let mut sums = [0.0; 3];
    let mut single = [0.0f64; 3];
    for _ in 0..PACKETS {
        for (i, (router, frame)) in flows.iter().enumerate() {
            let got = send(router, frame);
            sums[i] += got;
            single[i] = single[i].max(got);
        }
    }
    for ((router, _), sum) in flows.iter().zip(sums) {
        assert_eq!(router.counters().granted_Bps as f64, sum);
    }
    let one_law = flows.iter().all(|(router, _)| router.intervals() == 1);
    one_law.then_some(Some(Granted { sums, single }))
}
