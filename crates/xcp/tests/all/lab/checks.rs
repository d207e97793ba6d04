// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab check`: the queue discipline `xcp` keeps its promises, and every
//! kernel's verifier takes the programs.

use std::process::Command;

use crate::command::{Ran, XCP};
use crate::place::in_parallel;
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
    assert_eq!(found.len(), 12, "{found:?}");
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

/// The router loops over processors, and the newest kernel's verifier follows
/// fewer bounds: both kept it from loading once.
#[test]
fn every_program_loads_and_carries_traffic_on_every_kernel() {
    let runs = vec![("6.12", "1", 16), ("newest", "1", 20), ("6.18", "40", 20)];
    in_parallel(runs, |(kernel, processors, least)| {
        let ran = lab(&[
            "check",
            "programs",
            "--kernel",
            kernel,
            "--processors",
            processors,
            "--json",
        ]);
        assert_eq!(ran.code, Some(0), "{kernel}: {ran:?}");
        let report = ran.json();
        assert_eq!(report["loaded_for"], "1, 2, 31, 64, 1024");
        let programs = report["programs"].as_array().unwrap();
        assert!(programs.len() >= least, "{kernel}: {programs:?}");
        assert_eq!(report["checks"].as_array().unwrap().len(), 4);
    });
}
