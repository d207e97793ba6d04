// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Nanoseconds per packet of the router program, against an empty program in
//! the same run (BPF_PROG_TEST_RUN). Fails if the ratio is above the target.
//!
//! The kernel repeats a run on one packet, which keeps the edit: from the
//! second on it asks for what it was granted before, as behind another router.

#[path = "../tests/support/pin.rs"]
mod pin;
#[path = "../tests/wire/mod.rs"]
mod wire;

use std::process::ExitCode;

use wire::cases;
use xcp_datapath::router::Options;
use xcp_datapath::testing::{self, Bench};
use xcp_datapath::Error;

/// Router to empty program, the usual packet.
const TARGET: f64 = 3.5;
const REPEATS: u32 = 1_000_000;
const ROUNDS: usize = 9;
const CAPACITY_BYTES_PER_S: u64 = 12_500_000_000; // 100 Gb/s

/// Golden packets; the first is the one that the target is about.
const SHAPES: [(&str, &str); 5] = [
    ("forward", "option behind timestamps, 1500 B"),
    ("forward-ipv6", "the same in IPv6"),
    ("none-timestamps", "no XCP (slow path)"),
    ("forward-first", "option without timestamps (slow path)"),
    ("forward-vlan", "802.1Q tag (slow path)"),
];

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Medians, in ns, of the empty program and of the router, run in turns.
fn compare(frame: &[u8], repeats: u32, rounds: usize) -> Result<(f64, f64), Error> {
    let bench = Bench::new(Options {
        capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
        ..Default::default()
    })?;
    let time = |program| {
        let mean = bench.time(program, frame, repeats)?;
        Ok::<_, Error>(mean.as_secs_f64() * 1e9)
    };
    let (mut empty, mut router) = (vec![], vec![]);
    for _ in 0..rounds {
        empty.push(time("xcp_empty")?);
        router.push(time("xcp_router")?);
    }
    Ok((median(empty), median(router)))
}

fn run(repeats: u32, rounds: usize) -> Result<f64, Error> {
    println!("ns per packet, median of {rounds} rounds of {repeats}");
    println!("{:>8} {:>8} {:>6}  packet", "empty", "router", "ratio");
    let mut first = None;
    for (name, what) in SHAPES {
        let (empty, router) = compare(&cases::named(name).bytes(), repeats, rounds)?;
        let ratio = router / empty;
        println!("{empty:>8.0} {router:>8.0} {ratio:>6.2}  {what}");
        first.get_or_insert(ratio);
    }
    Ok(first.unwrap_or(f64::NAN))
}

fn main() -> ExitCode {
    if !testing::can_run("router bench") {
        return ExitCode::SUCCESS;
    }
    if !pin::stay_on_this_cpu() {
        eprintln!("note: not pinned to one CPU; times vary more");
    }
    // cargo gives --bench to benches, and nothing when it only tests them
    let measure = std::env::args().any(|a| a == "--bench");
    let result = if measure {
        run(REPEATS, ROUNDS)
    } else {
        run(1000, 1)
    };
    match result {
        Err(e) => {
            eprintln!("{e}\n{}", e.remedy);
            ExitCode::FAILURE
        }
        Ok(ratio) if measure && ratio > TARGET => {
            println!("FAILED: ratio {ratio:.2}, at most {TARGET} allowed");
            ExitCode::FAILURE
        }
        Ok(ratio) => {
            if measure {
                println!("ok: ratio {ratio:.2}, at most {TARGET} allowed");
            }
            ExitCode::SUCCESS
        }
    }
}
