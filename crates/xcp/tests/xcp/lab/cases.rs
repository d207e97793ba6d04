// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs tests of `native::` on the lab's kernels, in virtual machines.

use std::env;
use std::process::Command;

use crate::command::{Ran, XCP};
use xcp_testbed::skipped;

/// The modules whose tests need only what the virtual machine has.
const MODULES: &[&str] = &[
    "native::cases::",
    "native::clouds::",
    "native::config::",
    "native::fallback::",
    "native::hops::",
    "native::host::",
    "native::moves::",
    "native::speeds::",
    "native::trust::",
    "native::why::",
];

fn pass_on(kernel: &str) {
    let mut command = Command::new(XCP);
    let tests = env::current_exe().unwrap();
    command.args(["lab", "exec", "--kernel", kernel, "--file", XCP]);
    command.arg("--file").arg(&tests).arg("--");
    command.args(["env", "XCP_TEST_FILES=40"]).arg(&tests);
    let ran = Ran::of(command.args(["--test-threads", "1"]).args(MODULES));
    let skips = ran.err.lines().filter_map(|l| l.strip_prefix("SKIPPED "));
    for (test, reason) in skips.filter_map(|s| s.split_once(": ")) {
        skipped(&format!("{test} on Linux {kernel}"), reason);
    }
    assert_eq!(ran.code, Some(0), "{kernel}:\n{}\n{}", ran.out, ran.err);
    for module in MODULES {
        let passed = ran.out.lines().any(|line| {
            let test = line.strip_prefix("test ").unwrap_or_default();
            test.starts_with(module) && test.ends_with("... ok")
        });
        assert!(passed, "{kernel}: {module}:\n{}", ran.out);
    }
}

#[test]
fn native_tests_pass_on_6_12() {
    pass_on("6.12");
}

#[test]
fn native_tests_pass_on_6_18() {
    pass_on("6.18");
}

#[test]
fn native_tests_pass_on_the_newest_kernel() {
    pass_on("newest");
}
