// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests on this host's kernel, in network namespaces. They run one at a time, since
//! they share the folder in which the command pins its programs.

use std::env;
use std::process::{Command, Stdio};

mod capacity_hint;
mod cases;
mod clouds;
mod config;
mod conservation;
mod devices;
mod edged;
mod ethtool;
mod experiments;
mod fallback;
mod formats;
mod gateway;
mod hops;
mod host;
mod kills;
mod metrics;
mod moves;
mod neighbours;
mod queues;
mod router;
mod run;
mod sockets;
mod speeds;
mod status;
mod top;
mod trace;
mod transfer;
mod trust;
mod upgrades;
mod why;

/// Runs a test in a separate process, because it changes what all threads of a process
/// share. Returns false in that process, where the test continues.
fn run_in_own_process(test: &str) -> bool {
    const ALONE: &str = "XCP_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return false;
    }
    let out = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(ALONE, "yes")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains(" 1 passed"), "{said}");
    true
}
