// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The command line: invalid arguments and their error messages, and commands
//! that only print something.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{xcp, Ran, XCP};
use serde_json::json;
use xcp_testbed::shared_test_lock;

const NOBODY: u32 = 65534;

#[test]
fn invalid_capacities_give_reason_and_remedy() {
    let example = "give the link's rate, e.g. 10mbit";
    let range = "give a capacity from 8kbit to 1tbit";
    for (text, reason, remedy) in [
        ("0mbit", "a link needs a capacity above 0", example),
        ("-5mbit", "negative", example),
        ("10", "without a unit", "add one, e.g. 10mbit"),
        ("fast", "not a number with a unit", example),
        ("2tbit", "too large", range),
        ("1kbit", "too small", range),
        (
            "10mb",
            "unknown unit \"mb\"",
            "give bit, kbit, mbit, gbit or tbit (per second), e.g. 10mbit",
        ),
    ] {
        xcp(&format!("router add lo --capacity {text}")).failed(
            2,
            &format!("xcp: --capacity {text}: {reason}\n  help: {remedy}\n"),
        );
    }
}

#[test]
fn invalid_whole_numbers_give_reason_and_remedy() {
    for (text, reason) in [
        ("-65", "too small"),
        ("5000", "too large"),
        ("x", "not a whole number"),
    ] {
        xcp(&format!("router add lo --capacity 1mbit --overhead {text}")).failed(
            2,
            &format!(
                "xcp: --overhead {text}: {reason}\n  help: give whole bytes from -64 to 4096\n"
            ),
        );
    }
    for (option, remedy) in [
        ("--xcp-share 0", "give whole percent from 1 to 99"),
        ("--mpu -1", "give whole bytes from 0 to 4096"),
    ] {
        let ran = xcp(&format!("router add lo --capacity 1mbit {option}"));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.ends_with(&format!("  help: {remedy}\n")), "{ran:?}");
    }
    xcp("router trace lo --duration 0").failed(
        2,
        "xcp: --duration 0: not a positive number\n  help: give seconds, such as 10 or 0.5\n",
    );
    assert_eq!(xcp("lab run x --seed -1").code, Some(2));
    xcp("host on --without losses,care").failed(
        2,
        "xcp: --without care: no such sender feature\n  help: give some of losses, idle, app-limit, totals\n",
    );
}

#[test]
fn conflicting_options_are_refused() {
    xcp("router add lo --capacity auto --no-measure").failed(
        2,
        "xcp: --no-measure: contradicts --capacity auto, which measures the capacity\n  \
         help: give the capacity, or leave out --no-measure\n",
    );
    xcp("router add lo --capacity auto --shape").failed(
        2,
        "xcp: --shape: needs a rate with --capacity auto\n  \
         help: give one, e.g. --shape 10mbit\n",
    );
    for args in [
        "router add lo --capacity 1mbit --atm --ptm",
        "router add lo --capacity 1mbit --shape --no-qdisc",
        "router trace lo --csv --json",
        "--json router trace lo --csv",
    ] {
        let ran = xcp(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("cannot be used with"), "{ran:?}");
    }
}

#[test]
fn options_of_the_other_check_are_refused() {
    for (args, option, other) in [
        ("lab check qdisc --processors 8", "--processors", "programs"),
        ("lab check programs --cycles 5", "--cycles", "qdisc"),
    ] {
        let expected = format!(
            "xcp: {option}: has no effect here\n  \
             help: leave it out: it belongs to xcp lab check {other}\n"
        );
        xcp(args).failed(2, &expected);
    }
}

#[test]
fn only_regular_files_are_copied_to_the_virtual_machine() {
    xcp("lab exec --file /dev/zero -- true").failed(
        1,
        "xcp: /dev/zero: is not a regular file\n  help: give a file\n",
    );
    xcp("lab exec -- /etc").failed(
        126,
        "xcp: /etc: not executable\n  help: give a program, or chmod +x it\n",
    );
}

#[test]
fn errors_are_json_with_the_json_option() {
    let error = |args: &str| {
        let ran = xcp(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        serde_json::from_str::<serde_json::Value>(&ran.err).unwrap()
    };
    assert_eq!(
        error("--json router add lo --capacity 10"),
        json!({ "error": {
            "thing": "--capacity 10",
            "reason": "without a unit",
            "remedy": "add one, e.g. 10mbit",
        }})
    );
    assert_eq!(
        error("router add lo --json"),
        json!({ "error": {
            "thing": "command line",
            "reason": "the following required arguments were not provided: --capacity <RATE>",
            "remedy": "see xcp --help",
        }})
    );
    assert_eq!(
        error("--json router"),
        json!({ "error": {
            "thing": "command line",
            "reason": "a subcommand or an argument is missing",
            "remedy": "see xcp --help",
        }})
    );
}

#[test]
fn unknown_commands_and_options_are_usage_errors() {
    for (args, part) in [
        ("frob", "unrecognized subcommand 'frob'"),
        ("host", "Usage: xcp host"),
        ("router add", "<DEV>"),
        ("run", "<CMD>"),
        ("lab run x --frob", "unexpected argument '--frob'"),
        ("", "Usage: xcp"),
    ] {
        let ran = xcp(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(part), "{ran:?}");
    }
}

#[test]
fn help_and_version_succeed() {
    assert!(xcp("--help").ok().out.contains("Exit status:"));
    assert!(xcp("router add --help")
        .ok()
        .out
        .contains("--capacity <RATE>"));
    let version = format!("xcp {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(xcp("--version").ok().out, version);
}

#[test]
fn unknown_experiments_are_errors() {
    xcp("lab run no-such-experiment").failed(
        1,
        "xcp: no-such-experiment: no such experiment\n  \
         help: list them with `xcp lab list`, or give a .toml file\n",
    );
}

#[test]
fn the_list_of_experiments_counts_known_gaps() {
    let all = xcp("lab list --json").ok().json();
    let all = all.as_array().unwrap();
    assert!(!all.is_empty());
    let gaps: u64 = all.iter().map(|e| e["known_gaps"].as_u64().unwrap()).sum();
    let text = xcp("lab list").ok().out;
    let last = text.lines().last().unwrap();
    let total = format!("{} experiments, {gaps} known gap", all.len());
    assert!(last.starts_with(&total), "{last}");
}

#[test]
fn commands_fail_without_root() {
    // the user `nobody` cannot read the build folder
    let dir = Scratch::new();
    let copy = dir.0.join("xcp");
    // cp writes the copy: a child of another thread would inherit a file that this
    // process has open for writing, and the copy could not be executed (ETXTBSY)
    Ran::of(Command::new("cp").arg(XCP).arg(&copy)).ok();
    for (args, what) in [
        ("host on", "xcp host on"),
        ("host off", "xcp host off"),
        ("host show", "xcp host show"),
        ("run -- true", "xcp run"),
        ("router add lo --capacity 1mbit", "xcp router add"),
        ("router del lo", "xcp router del"),
        ("router show", "xcp router show"),
        ("router trace lo", "xcp router trace"),
        ("status", "xcp status"),
        ("edged run --key x", "xcp edged run"),
    ] {
        let mut command = Command::new(&copy);
        command.args(args.split(' ')).current_dir("/");
        if unsafe { libc::geteuid() } == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        Ran::of(&mut command).failed(
            1,
            &format!("xcp: {what}: only root may change the network\n  help: run it with sudo\n"),
        );
    }
}

#[test]
fn doctor_reports_the_cost_of_missing_header_support() {
    // it loads every program
    let _lock = shared_test_lock().unwrap();
    let report = xcp("doctor --json").json();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel"], release.trim());
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["processors"].as_u64().unwrap() >= 1);
    let features = report["features"].as_array().unwrap();
    let headers = features
        .iter()
        .find(|f| f["name"] == "headers between IP and TCP (tc)")
        .unwrap();
    assert_eq!(headers["required"], false);
    assert_eq!(
        headers["cost"],
        "the wire formats header and header-2004 are not available"
    );
}

/// `xcp` runs as root, so the code of experiments is in another program that it
/// executes.
#[test]
fn lab_is_a_separate_program() {
    let program = fs::read(XCP).unwrap();
    for foreign in ["plotters", "qemu-system", "rates_step_ms ="] {
        let has = |w: &[u8]| w == foreign.as_bytes();
        assert!(!program.windows(foreign.len()).any(has), "{foreign}");
    }
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("xcp");
    fs::copy(XCP, &alone).unwrap();
    let lab = |args: &[&str]| Ran::of(Command::new(&alone).args(args).env("PATH", "/nonexistent"));
    lab(&["lab", "list"]).failed(
        127,
        "xcp: xcp-lab: not installed, neither in the folder of xcp nor on the PATH\n  \
         help: install the package xcp-lab, or build it: ./x build\n",
    );
    let beside = dir.path().join("xcp-lab");
    fs::write(&beside, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = lab(&["--json", "lab", "run", "lab", "--seed", "3"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(7), "--json run lab --seed 3\n")
    );
}

#[test]
fn completions_exist_for_three_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = xcp(&format!("completions {shell}")).ok().out;
        assert!(script.contains("capacity"), "{shell}");
    }
}

#[test]
fn man_pages_exist_for_subcommands() {
    assert!(xcp("man").ok().out.contains(".TH xcp 1"));
    let dir = Scratch::new();
    xcp(&format!("man --out {}", dir.0.display())).ok();
    for name in [
        "xcp",
        "xcp-host-on",
        "xcp-router-add",
        "xcp-edged-run",
        "xcp-lab-run",
        "xcp-lab-cache",
        "xcp-run",
    ] {
        let page = fs::read_to_string(dir.0.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
}

#[test]
fn a_closed_output_pipe_causes_no_panic() {
    let mut child = Command::new(XCP)
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(out.status.code(), Some(0));
}

/// A folder that all users may read; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("xcp-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
