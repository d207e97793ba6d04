// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab check`: the queue discipline `xcp` passes its stress test, and the
//! verifier of every kernel accepts the programs.

use std::process::Command;

use crate::command::{Ran, XCP};
use serde_json::Value;

fn lab(args: &[&str]) -> Ran {
    Ran::of(Command::new(XCP).arg("lab").args(args))
}

/// The checks of the machine: name, whether it passed, and the value seen.
fn found(ran: &Ran) -> Vec<(String, bool, String)> {
    let all: Vec<Value> = ran.json().as_array().unwrap().clone();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    all.iter()
        .map(|c| (text(c, "name"), c["ok"] == true, text(c, "seen")))
        .collect()
}

/// Checks counters, classes, rate, weights, delay, one medium for two devices, and address
/// resolution.
/// Then the queue discipline is installed, changed, replaced and deleted 1,000 times
/// under full load: no packet is reordered, and nothing is left behind.
#[test]
fn the_xcp_queue_discipline_passes_all_checks_and_leaves_nothing_behind() {
    let ran = lab(&["check", "qdisc", "--kernel", "6.18", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = found(&ran);
    assert_eq!(found.len(), 15, "{found:?}");
    assert!(found.iter().all(|(_, ok, _)| *ok), "{found:?}");
    let order = found.iter().find(|c| c.0 == "order under change").unwrap();
    assert!(order.2.starts_with("1000 cycles"), "{order:?}");
}

#[test]
fn a_kernel_without_bpf_queue_disciplines_is_reported() {
    let ran = lab(&["check", "qdisc", "--kernel", "6.12"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let reason = "this kernel has no queue disciplines in BPF";
    assert!(ran.err.contains(reason), "{}", ran.err);
}

/// Checks that every program loads, that there are at least `least`, and that they
/// carry traffic.
fn check_programs(kernel: &str, processors: &str, least: usize) {
    let args = ["check", "programs", "--kernel", kernel];
    let ran = lab(&[&args[..], &["--processors", processors, "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{kernel}: {ran:?}");
    let report = ran.json();
    assert_eq!(report["loaded_for"], "1, 2, 31, 64, 1024");
    let programs = report["programs"].as_array().unwrap();
    assert!(programs.len() >= least, "{kernel}: {programs:?}");
    assert_eq!(report["checks"].as_array().unwrap().len(), 4);
}

#[test]
fn every_program_loads_and_carries_traffic_on_6_12() {
    check_programs("6.12", "1", 16);
}

/// The newest verifier tracks fewer bounds, which once prevented the router from
/// loading.
#[test]
fn every_program_loads_and_carries_traffic_on_the_newest_kernel() {
    check_programs("newest", "1", 20);
}

/// The router loops over the processors, which once prevented it from loading.
#[test]
fn every_program_loads_and_carries_traffic_on_40_processors() {
    check_programs("6.18", "40", 20);
}
