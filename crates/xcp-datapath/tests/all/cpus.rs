// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The router on several CPUs at once: its control intervals in user space, where every
//! memory access is checked (csrc/cpus.c), and the program in the kernel.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{edit, Router};
use crate::wire::cases;
use crate::wire::option::Forward;
use xcp_testbed::{eventually, skipped};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

fn compile(source: &Path, program: &Path, more: &[&str]) -> std::io::Result<Output> {
    Command::new("gcc")
        .args(["-g", "-O2", "-pthread"])
        .args(WARNINGS)
        .args(more)
        .arg(source)
        .arg("-o")
        .arg(program)
        .output()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Compiles and runs csrc/cpus.c with these flags; skips the test if that fails for an empty
/// program.
fn run(test: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (empty, program) = (folder.path().join("empty.c"), folder.path().join("cpus"));
    std::fs::write(&empty, "int main(void) { return 0; }\n").unwrap();
    let works = match compile(&empty, &program, flags) {
        Ok(out) if out.status.success() => Command::new(&program).output(),
        other => other,
    };
    if !works.as_ref().is_ok_and(|out| out.status.success()) {
        let reason = works.map_or_else(|e| e.to_string(), |out| said(&out));
        return skipped(test, &format!("gcc {flags:?}: {}", reason.trim()));
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("csrc/cpus.c");
    let compiled = compile(&source, &program, flags).unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));
    // deliberate races are suppressed by the reader's stack, so TSan must keep a long history
    let ran = Command::new(&program)
        .env("TSAN_OPTIONS", "history_size=7")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    println!("{}", said(&ran));
}

#[test]
fn each_interval_is_ended_by_exactly_one_cpu() {
    run("intervals on several CPUs", &[]);
}

#[test]
fn shared_data_is_read_only_after_its_publication() {
    run("order of accesses", &["-fsanitize=thread"]);
}

/// Returns up to two CPUs on which this process may run.
fn two_cpus() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain bits, valid for any value, and outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .take(2)
            .collect()
    }
}

/// Both CPUs send packets in every interval, so each interval is traced.
#[test]
fn two_concurrent_cpus_grant_at_most_the_pools() {
    /// High enough that no decrease is granted.
    const CAPACITY_BPS: u64 = 125_000_000_000;
    const PACKETS: usize = 5_000;
    const EPOCHS: u32 = 300;
    let cpus = two_cpus();
    if cpus.len() < 2 {
        return skipped("router on two CPUs", "this machine has only one CPU");
    }
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    let asked = Forward {
        rtt_ticks: 1 << 18, // 1 ms: the shortest interval
        x_ticks: 1 << 10,
        delta_Bps: i32::MAX,
        ..cases::default_request()
    };
    let frame = cases::data(asked, 1448);
    let trace = router.bench().trace().unwrap();
    let (mut told, mut sent, mut granted_Bps) = (Vec::new(), 0, 0);
    let done = eventually(|| {
        let deltas = |out: &[u8]| edit::check(&frame, out).map_or(0, i64::from);
        for of_cpu in router.bench().send_on(&cpus, &frame, PACKETS).unwrap() {
            sent += of_cpu.len();
            granted_Bps += of_cpu.iter().map(|out| deltas(out)).sum::<i64>();
        }
        told.extend(std::iter::from_fn(|| trace.next(Duration::ZERO).unwrap()));
        router.link().epoch >= EPOCHS
    });
    assert!(done, "{EPOCHS} intervals have ended");

    let (link, counters) = (router.link(), router.counters());
    assert_eq!(counters.xcp_packets, sent as u64);
    assert_eq!(counters.granted_Bps, granted_Bps);
    assert_eq!(
        told.len(),
        link.epoch as usize,
        "each interval is traced once"
    );
    assert_eq!(link.state.intervals, u64::from(link.epoch));
    for pair in told.windows(2) {
        let begun_s = pair[1].time_s - pair[1].interval_s;
        assert!((begun_s - pair[0].time_s).abs() < 1e-7, "{pair:?}");
        assert!(pair[1].interval_s > 0.99e-3, "{pair:?}");
    }
    let pools_Bps: u64 = told.iter().map(|i| i.increase_bps / 8).sum();
    // each CPU may have kept a fraction of a B/s from before
    let most_Bps = (pools_Bps + u64::from(link.epoch) * (1 + cpus.len() as u64)) as i64;
    assert!(granted_Bps <= most_Bps, "{granted_Bps} of {pools_Bps}");
    let counted_B =
        |i: &xcp_datapath::trace::Interval| i.input_rate_bps as f64 / 8.0 * i.interval_s;
    let seen_B: f64 = told.iter().map(counted_B).sum();
    let total_B = link.state.last.input_traffic_B as f64;
    assert!(
        (seen_B - total_B).abs() < 1e-6 * total_B + 1.0,
        "{seen_B} of {total_B}"
    );
    assert!(total_B <= (sent * frame.len()) as f64);
    println!("{} intervals, {granted_Bps} of {pools_Bps} B/s", link.epoch);
}
