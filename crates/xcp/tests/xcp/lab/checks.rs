// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab check`: the queue discipline `xcp` keeps its promises, and every
//! kernel's verifier takes the programs.

use std::process::Command;

use crate::command::{Ran, XCP};
use serde_json::Value;

fn lab(args: &[&str]) -> Ran {
    Ran::of(Command::new(XCP).arg("lab").args(args))
}

/// What the machine found, each by its name.
fn found(ran: &Ran) -> Vec<(String, bool, String)> {
    let all: Vec<Value> = ran.json().as_array().unwrap().clone();
    let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    all.iter()
        .map(|c| (text(c, "name"), c["ok"] == true, text(c, "seen")))
        .collect()
}

/// Counters, classes, rate, weights, delay and one medium for two devices;
/// then 1,000 times installed, changed, replaced and deleted under full load:
/// nothing out of order, nothing left.
#[test]
fn the_queue_discipline_holds_what_it_promises_and_leaves_nothing() {
    let ran = lab(&["check", "qdisc", "--kernel", "6.18", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = found(&ran);
    assert_eq!(found.len(), 14, "{found:?}");
    assert!(found.iter().all(|(_, ok, _)| *ok), "{found:?}");
    let order = found.iter().find(|c| c.0 == "order under change").unwrap();
    assert!(order.2.starts_with("1000 cycles"), "{order:?}");
}

/// A kernel without queue disciplines in BPF says so.
#[test]
fn a_kernel_without_the_queue_discipline_is_told() {
    let ran = lab(&["check", "qdisc", "--kernel", "6.12"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let reason = "this kernel has no queue disciplines in BPF";
    assert!(ran.err.contains(reason), "{}", ran.err);
}

/// Every program loads, at least so many, and carries traffic.
fn programs_are_well(kernel: &str, processors: &str, least: usize) {
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
fn every_program_is_well_on_6_12() {
    programs_are_well("6.12", "1", 16);
}

/// Its verifier follows fewer bounds, which kept the router from loading once.
#[test]
fn every_program_is_well_on_the_newest_kernel() {
    programs_are_well("newest", "1", 20);
}

/// The router loops over them, which kept it from loading once.
#[test]
fn every_program_is_well_on_40_processors() {
    programs_are_well("6.18", "40", 20);
}
