// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Measures the time per packet, arrival and departure, of core/ and of the f64
//! model, over 1024 packets (hot caches). The times depend on the machine, so
//! no test checks them. ns-2's router in double precision takes 6.0 ns.

#![allow(non_snake_case)] // units in names

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use xcp_core::model::Model;
use xcp_core::*;

const PACKETS: usize = 1024;
const CAPACITY_BPS: u64 = 1_250_000_000;
const INTERVAL_NS: u64 = 100_000_000;

/// Packets of several rates and sizes; each requests the maximum.
fn packets() -> Vec<xcp_bench_packet> {
    (0..PACKETS as u64)
        .map(|i| xcp_bench_packet {
            size_B: [40, 1500, 1500, 9000][i as usize % 4],
            x: 20_000 + i * 37 % 5_000,
            rtt: TICKS_PER_SEC / 10 + i * 1_003 % 100_000,
            n: 1,
            delta: i32::MAX,
            ..xcp_bench_packet::default()
        })
        .collect()
}

fn to_model_packet(p: &xcp_bench_packet) -> model::Packet {
    model::Packet {
        n: 1.0,
        size_B: p.size_B as f64,
        x_s: p.x as f64 / TICKS_PER_SEC as f64,
        rtt_s: p.rtt as f64 / TICKS_PER_SEC as f64,
        delta_Bps: f64::from(p.delta),
    }
}

/// Times about `count` packets in rounds. Between rounds `end` ends a control interval,
/// so that the pools are never empty; that is not timed.
fn time<S>(
    count: u64,
    subject: &mut S,
    mut round: impl FnMut(&mut S),
    mut end: impl FnMut(&mut S, u64),
) -> Duration {
    let rounds = count.div_ceil(PACKETS as u64);
    let mut total = Duration::ZERO;
    for i in 1..=rounds {
        let begin = Instant::now();
        round(subject);
        total += begin.elapsed();
        end(subject, i);
    }
    total.mul_f64(count as f64 / (rounds * PACKETS as u64) as f64)
}

fn core(count: u64) -> Duration {
    let params = xcp_router_params {
        capacity_Bps: CAPACITY_BPS,
        min_interval_ns: 1_000_000,
        ..xcp_router_params::default()
    };
    let mut packets = packets();
    time(
        count,
        &mut Router::new(params, 0),
        |router| router.batch(black_box(&mut packets)),
        |router, i| {
            router.interval_end(i * INTERVAL_NS);
        },
    )
}

fn in_f64(count: u64) -> Duration {
    let packets: Vec<_> = packets().iter().map(to_model_packet).collect();
    time(
        count,
        &mut Model::new(model::Params::core(CAPACITY_BPS as f64), 0.0),
        |model| {
            for p in black_box(&packets) {
                model.arrival(p.size_B);
                model.arrival_xcp(p);
                black_box(model.departure(p));
            }
        },
        |model, i| {
            model.interval_end((i * INTERVAL_NS) as f64 / 1e9);
        },
    )
}

/// Runs one benchmark. Returns its best and its median run, ns per packet, or None if it was
/// filtered out or not measured.
fn bench(criterion: &mut Criterion, name: &str, run: fn(u64) -> Duration) -> Option<(f64, f64)> {
    let mut runs_ns = Vec::new();
    criterion.bench_function(name, |b| {
        b.iter_custom(|count| {
            let time = run(count);
            // shorter runs are warm-up
            if time > Duration::from_millis(1) {
                runs_ns.push(time.as_secs_f64() * 1e9 / count as f64);
            }
            time
        });
    });
    runs_ns.sort_by(f64::total_cmp);
    Some((*runs_ns.first()?, *runs_ns.get(runs_ns.len() / 2)?))
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .without_plots()
        .configure_from_args();
    let in_core = bench(&mut criterion, "router in core/, per packet", core);
    let reference = bench(&mut criterion, "router in f64, per packet", in_f64);
    criterion.final_summary();
    // the best run shows the cost of the code; the others include noise of the machine
    for (name, times) in [("core/", in_core), ("f64", reference)] {
        if let Some((best, median)) = times {
            println!("{name}: {best:.2} ns per packet (median {median:.2})");
        }
    }
    if let (Some((core, _)), Some((f64, _))) = (in_core, reference) {
        println!("core/ relative to f64: {:.2}", core / f64);
    }
}
