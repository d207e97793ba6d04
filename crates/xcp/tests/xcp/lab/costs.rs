// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab bench`: instructions of the data path, counted in the virtual-time
//! machine.

use std::process::Command;

use crate::command::{Ran, XCP};
use crate::place::number;
use serde_json::Value;

fn lab(args: &[&str]) -> Ran {
    Ran::of(Command::new(XCP).arg("lab").args(args).arg("--json"))
}

/// The instruction count of a row.
fn instructions(report: &Value, name: &str) -> f64 {
    let rows = report["costs"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    number(&row.unwrap_or_else(|| panic!("no {name}: {report}"))["instructions"])
}

#[test]
fn instruction_counts_stay_below_their_limits() {
    let ran = lab(&["bench", "--kernel", "6.18"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let reports = ran.json();
    let [router, qdisc, hosts, connections] = &reports.as_array().unwrap()[..] else {
        panic!("{reports}")
    };
    let (empty, forward) = (
        instructions(router, "empty"),
        instructions(router, "forward"),
    );
    assert!(empty > 10.0 && forward > 2.0 * empty, "{router}");
    // a VLAN tag takes the slow path
    assert!(instructions(router, "forward-vlan") > forward, "{router}");
    let [pfifo, fq_codel, cake, xcp] =
        ["pfifo", "fq_codel", "cake", "xcp"].map(|name| instructions(qdisc, name));
    assert!(pfifo > 100.0 && pfifo < fq_codel && xcp < cake, "{qdisc}");
    let plain = instructions(hosts, "cubic");
    // at least the copy into the kernel, in words of 8 bytes
    assert!(
        plain > 1e6 / 8.0 && plain < instructions(hosts, "cubic, no offload"),
        "{hosts}"
    );
    assert_eq!(hosts["costs"].as_array().unwrap().len(), 7);
    assert!(
        instructions(connections, "option") > instructions(connections, "cubic"),
        "{connections}"
    );
    assert_eq!(connections["costs"].as_array().unwrap().len(), 5);
}
