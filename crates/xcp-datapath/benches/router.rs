// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Measures the time per packet of the router program, compared with an empty program in
//! the same run (BPF_PROG_TEST_RUN), and of two CPUs on one link, compared with one CPU.
//! The times depend on the machine, so no test checks them; `xcp lab bench router` measures
//! the cost in a reproducible way and compares it with bpf/limits.toml.
//!
//! The kernel repeats a run on one packet, which keeps its edits: from the second run on the
//! packet requests what it was granted before, as behind another router.

#[path = "../tests/all/support/pin.rs"]
mod pin;
#[allow(dead_code)] // only the tests use the rest
#[path = "../tests/all/wire/mod.rs"]
mod wire;

use std::process::ExitCode;

use wire::cases;
use xcp_datapath::router::Options;
use xcp_datapath::Error;
use xcp_testbed::Bench;

const REPEATS: u32 = 1_000_000;
const ROUNDS: usize = 9;
const CAPACITY_BYTES_PER_S: u64 = 12_500_000_000; // 100 Gb/s

/// Golden packets; the first is the most common one.
const SHAPES: [(&str, &str); 5] = [
    ("forward", "option behind timestamps, 1500 B"),
    ("forward-ipv6", "the same over IPv6"),
    ("none-timestamps", "no XCP (slow path)"),
    ("forward-first", "option without timestamps (slow path)"),
    ("forward-vlan", "802.1Q tag (slow path)"),
];

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the medians, in ns, of the empty program and of the router, run alternately.
fn compare(frame: &[u8], repeats: u32, rounds: usize) -> Result<(f64, f64), Error> {
    let bench = Bench::new(Options {
        capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
        ..Default::default()
    })?;
    let yardstick = Bench::empty()?;
    let time = |bench: &Bench| {
        let mean = bench.time(frame, repeats)?;
        Ok::<_, Error>(mean.as_secs_f64() * 1e9)
    };
    let (mut empty, mut router) = (vec![], vec![]);
    for _ in 0..rounds {
        empty.push(time(&yardstick)?);
        router.push(time(&bench)?);
    }
    Ok((median(empty), median(router)))
}

/// Returns the medians, in ns, of one CPU alone and of two on the same link, run alternately.
fn compare_cpus(frame: &[u8], repeats: u32, rounds: usize) -> Result<(f64, f64), Error> {
    let bench = Bench::new(Options {
        capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
        ..Default::default()
    })?;
    let time = |cpus: &[usize]| {
        let times = bench.time_on(cpus, frame, repeats)?;
        let sum: f64 = times.iter().map(std::time::Duration::as_secs_f64).sum();
        Ok::<_, Error>(sum / times.len() as f64 * 1e9)
    };
    let (mut one, mut two) = (vec![], vec![]);
    for round in 0..rounds {
        one.push(time(&[round % 2])?);
        two.push(time(&[0, 1])?);
    }
    Ok((median(one), median(two)))
}

fn print_two(repeats: u32, rounds: usize) -> Result<(), Error> {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        eprintln!("SKIPPED two CPUs on one link: this machine has only one CPU");
        return Ok(());
    }
    let (name, what) = SHAPES[0];
    let (one, two) = compare_cpus(&cases::named(name).bytes(), repeats, rounds)?;
    println!("{:>8} {:>8} {:>6}", "one CPU", "two", "ratio");
    println!("{one:>8.0} {two:>8.0} {:>6.2}  {what}", two / one);
    Ok(())
}

fn print_shapes(repeats: u32, rounds: usize) -> Result<(), Error> {
    println!("ns per packet, median of {rounds} rounds of {repeats}");
    println!("{:>8} {:>8} {:>6}  packet", "empty", "router", "ratio");
    for (name, what) in SHAPES {
        let (empty, router) = compare(&cases::named(name).bytes(), repeats, rounds)?;
        println!("{empty:>8.0} {router:>8.0} {:>6.2}  {what}", router / empty);
    }
    Ok(())
}

fn main() -> ExitCode {
    if !xcp_testbed::can_run("router bench") {
        return ExitCode::SUCCESS;
    }
    // cargo passes --bench to benchmarks, and nothing when it only tests them
    let measure = std::env::args().any(|a| a == "--bench");
    let (repeats, rounds) = if measure {
        (REPEATS, ROUNDS)
    } else {
        (1000, 1)
    };
    let two = print_two(repeats, rounds);
    if !pin::stay_on_this_cpu() {
        eprintln!("note: not pinned to one CPU; times vary more");
    }
    if let Err(e) = two.and_then(|()| print_shapes(repeats, rounds)) {
        eprintln!("{e}\n{}", e.remedy);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
