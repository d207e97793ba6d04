// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the data path costs, counted in the virtual-time machine, and what
//! the kernels' verifiers think of it.

use std::process::Command;

use crate::command::{Ran, XCP};
use crate::place::{in_parallel, number};
use serde_json::Value;

fn lab(args: &[&str]) -> Ran {
    Ran::of(Command::new(XCP).arg("lab").args(args).arg("--json"))
}

/// The instructions of a row.
fn instructions(bill: &Value, name: &str) -> f64 {
    let rows = bill["costs"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    number(&row.unwrap_or_else(|| panic!("no {name}: {bill}"))["instructions"])
}

#[test]
fn nothing_costs_more_instructions_than_its_limit() {
    let ran = lab(&["bench", "--kernel", "6.18"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let bills = ran.json();
    let [router, qdisc, hosts] = &bills.as_array().unwrap()[..] else {
        panic!("{bills}")
    };
    let (empty, forward) = (
        instructions(router, "empty"),
        instructions(router, "forward"),
    );
    assert!(empty > 10.0 && forward > 2.0 * empty, "{router}");
    // the fast path is found by none of these
    assert!(instructions(router, "forward-vlan") > forward, "{router}");
    let [pfifo, fq_codel, cake, xcp] =
        ["pfifo", "fq_codel", "cake", "xcp"].map(|name| instructions(qdisc, name));
    assert!(pfifo > 100.0 && pfifo < fq_codel && xcp < cake, "{qdisc}");
    // more than the copy into the kernel
    assert!(instructions(hosts, "cubic") > 1e6, "{hosts}");
    assert_eq!(hosts["costs"].as_array().unwrap().len(), 7);
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
        ]);
        assert_eq!(ran.code, Some(0), "{kernel}: {ran:?}");
        let report = ran.json();
        assert_eq!(report["loaded_for"], "1, 2, 31, 64, 1024");
        let programs = report["programs"].as_array().unwrap();
        assert!(programs.len() >= least, "{kernel}: {programs:?}");
        assert_eq!(report["checks"].as_array().unwrap().len(), 4);
    });
}
