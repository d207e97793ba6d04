// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp run`: the program's sockets use XCP, its exit status is returned, and nothing is
//! left behind.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::command::{xcp, Ran, SystemState, XCP};
use crate::common::{control, test_lock};
use xcp_testbed::{can_run, eventually};

fn run(script: &str) -> Ran {
    Ran::of(Command::new(XCP).args(["run", "--", "sh", "-c", script]))
}

#[test]
fn run_returns_the_exit_status_of_the_program() {
    let _lock = test_lock();
    let test = "run";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    assert_eq!(run("echo in there").ok().out, "in there\n");
    assert_eq!(run("exit 3").code, Some(3));
    assert_eq!(run("kill -TERM $$").code, Some(128 + libc::SIGTERM));
    xcp("run -- xcp-no-such-command").failed(
        127,
        "xcp: xcp-no-such-command: no such command\n  \
         help: check the name, or give the path of the program\n",
    );
    xcp("run /etc/passwd").failed(
        126,
        "xcp: /etc/passwd: not executable\n  help: give a program, or chmod +x it\n",
    );
    before.assert_nothing_left();
}

#[test]
fn signals_are_forwarded_to_the_program() {
    let _lock = test_lock();
    let test = "run and signals";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let mut child = Command::new(XCP)
            .args([
                "run",
                "sh",
                "-c",
                "trap 'exit 9' TERM HUP INT; echo ready; while :; do sleep 0.1; done",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(9), "signal {signal}");
    }
    before.assert_nothing_left();
}

/// The kernel reports that a terminal is gone only to the leader of its session.
#[test]
fn the_program_ends_with_its_terminal() {
    let _lock = test_lock();
    let test = "run and a terminal that is closed";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let program = format!(
        "exec {XCP} run sh -c 'echo $$ >{}; exec sleep 1000'",
        pid.display()
    );
    let mut terminal = Command::new("script")
        .args(["-q", "-c", &program, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = || {
        std::fs::read_to_string(&pid)
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    assert!(eventually(|| started().is_some()));
    let child = started().unwrap();
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let ended = eventually(|| unsafe { libc::kill(child, 0) } != 0);
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert!(ended, "the program still runs");
    before.assert_nothing_left();
}

/// `xcp run` waits while another command holds the lock.
#[test]
fn an_interrupt_ends_the_wait_for_another_command() {
    let _lock = test_lock();
    let test = "run, interrupted while it waits";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let other = File::options()
        .create(true)
        .append(true)
        .open("/run/xcp.lock")
        .unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX) }, 0);
    let waiting = [libc::SIGINT, libc::SIGTERM].map(|signal| {
        let run = Command::new(XCP)
            .args(["run", "true"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (signal, run)
    });
    let ended = waiting.map(|(signal, mut run)| {
        let mut line = String::new();
        BufReader::new(run.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "xcp: waiting for another xcp command to end\n");
        // SAFETY: the child has not been waited for.
        assert_eq!(unsafe { libc::kill(run.id() as i32, signal) }, 0);
        let in_time = eventually(|| run.try_wait().unwrap().is_some());
        (signal, run, in_time)
    });
    // SAFETY: as above.
    assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_UN) }, 0);
    for (signal, mut run, in_time) in ended {
        let status = run.wait().unwrap();
        assert!(in_time, "still waiting after signal {signal}");
        // a shell reports it as 128 plus the signal
        assert_eq!(status.signal(), Some(signal), "{status}");
    }
    before.assert_nothing_left();
}

/// The next test runs this inside and outside `xcp run`.
#[test]
#[ignore = "run by another test"]
fn congestion_controls_of_a_connection_are_printed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    println!("client {} server {}", control(&client), control(&server));
}

#[test]
fn only_sockets_inside_the_run_use_xcp() {
    let _lock = test_lock();
    let test = "run and sockets";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let me = std::env::current_exe().unwrap();
    let tell = [
        "--ignored",
        "--exact",
        "--nocapture",
        "native::run::congestion_controls_of_a_connection_are_printed",
    ];
    let inside = Ran::of(Command::new(XCP).arg("run").arg(&me).args(tell)).ok();
    assert!(inside.out.contains("client xcp server xcp"), "{inside:?}");
    let outside = Ran::of(Command::new(&me).args(tell)).ok();
    assert!(!outside.out.contains(" xcp"), "{outside:?}");
    before.assert_nothing_left();
}

/// The BPF programs stay loaded as long as any of several runs needs them.
#[test]
fn a_run_that_ends_does_not_affect_other_runs() {
    let _lock = test_lock();
    let test = "several runs";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let me = std::env::current_exe().unwrap();
    let tell = format!(
        "{} --ignored --exact --nocapture \
         native::run::congestion_controls_of_a_connection_are_printed",
        me.display()
    );
    // start and end of the runs overlap in different ways
    let runs: Vec<_> = (0..8)
        .map(|i| {
            let script = format!("sleep 0.{i}; {tell}");
            Command::new(XCP)
                .args(["run", "--", "sh", "-c", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for run in runs {
        let out = run.wait_with_output().unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{said}");
        assert!(said.contains("client xcp server xcp"), "{said}");
    }
    before.assert_nothing_left();
}
