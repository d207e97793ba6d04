// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The end of `xcp run`: background processes that the program leaves behind, and objects
//! that the kernel has not released yet.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{xcp, Ran, SystemState, XCP};
use crate::common::{control, default_control, test_lock, transfer};
use xcp_datapath::cgroup_mount_point;
use xcp_testbed::{can_run, eventually, NameTaken};

/// The address at which a test accepts connections from its processes.
const ADDRESS: &str = "XCP_TEST_ADDRESS";

/// A command that runs an ignored test of this program.
fn me(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("native::cases::run_leftover::{test}");
    command.args(["--ignored", "--exact", &name]);
    command
}

/// A connection within this process: (client, server).
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

#[test]
#[ignore = "run by another test"]
#[allow(clippy::zombie_processes)] // its parent ends first, on purpose
fn a_program_leaves_a_daemon_behind() {
    let mut daemon = me("a_daemon_reports_its_congestion_controls");
    daemon.stdin(Stdio::null()).stdout(Stdio::null());
    daemon.stderr(Stdio::null()).process_group(0);
    let mut parent = TcpStream::connect(std::env::var(ADDRESS).unwrap()).unwrap();
    let child = daemon.spawn().unwrap();
    writeln!(parent, "{}", child.id()).unwrap();
    // wait until the daemon has opened its connection
    parent.read_exact(&mut [0]).unwrap();
}

/// Opens a connection, and another one on request.
#[test]
#[ignore = "run by another test"]
fn a_daemon_reports_its_congestion_controls() {
    let (mut client, mut server) = connection();
    let mut test = TcpStream::connect(std::env::var(ADDRESS).unwrap()).unwrap();
    writeln!(test, "{}", control(&client)).unwrap();
    test.read_exact(&mut [0]).unwrap();
    transfer(&mut client, &mut server, &[7; 1_000_000]);
    writeln!(test, "{} {}", control(&client), control(&connection().0)).unwrap();
    // wait until the test ends
    let _ = test.read(&mut [0]);
}

/// A daemon that the program of an `xcp run` has left behind.
struct Leftover {
    id: String,
    daemon: BufReader<TcpStream>,
}

impl Leftover {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut run = Command::new(XCP);
        let program = me("a_program_leaves_a_daemon_behind");
        run.arg("run")
            .arg(program.get_program())
            .args(program.get_args());
        run.env(ADDRESS, listener.local_addr().unwrap().to_string());
        let mut run = run.stdout(Stdio::null()).spawn().unwrap();
        let accept = || BufReader::new(listener.accept().unwrap().0);
        let mut program = accept();
        let id = line(&mut program);
        let mut daemon = accept();
        assert_eq!(line(&mut daemon), "xcp");
        program.get_mut().write_all(b".").unwrap();
        assert!(run.wait().unwrap().success());
        Self { id, daemon }
    }

    /// The group of a process in the unified hierarchy.
    fn group(id: &str) -> String {
        let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap();
        let unified = groups.lines().find_map(|l| l.strip_prefix("0::"));
        unified.unwrap().to_owned()
    }

    /// Lets the daemon continue; returns the congestion controls of its connection and of
    /// a new one.
    fn go_on(&mut self) -> String {
        self.daemon.get_mut().write_all(b".").unwrap();
        line(&mut self.daemon)
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn groups_of_runs() -> Vec<PathBuf> {
    let groups = fs::read_dir(cgroup_mount_point().unwrap()).unwrap();
    let groups = groups.map(|entry| entry.unwrap().path());
    let is_run = |path: &PathBuf| path.to_string_lossy().contains("xcp-run-");
    groups.filter(is_run).collect()
}

fn is_available() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .unwrap()
        .contains("xcp")
}

#[test]
fn a_daemon_left_behind_continues_without_xcp() {
    let _lock = test_lock();
    let test = "run and a daemon";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let mut leftover = Leftover::new();
    xcp("host show").failed(1, "xcp: XCP: is not on\n  help: turn it on: xcp host on\n");
    assert_eq!(groups_of_runs(), Vec::<PathBuf>::new());
    assert!(eventually(|| !is_available()));
    // the daemon is in the group in which it would be without `xcp run`
    assert_eq!(Leftover::group(&leftover.id), Leftover::group("self"));
    // its connection works and keeps its congestion control; new ones do not use XCP
    let controls = format!("xcp {}", default_control());
    assert_eq!(leftover.go_on(), controls);
    drop(leftover);
    before.assert_nothing_left();
}

#[test]
fn a_daemon_left_behind_does_not_affect_other_runs_or_the_host() {
    let _lock = test_lock();
    let test = "run, a daemon and other runs";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    // during another run
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let program = me("a_daemon_reports_its_congestion_controls");
    let mut other = Command::new(XCP)
        .arg("run")
        .arg(program.get_program())
        .args(program.get_args())
        .env(ADDRESS, listener.local_addr().unwrap().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut test = BufReader::new(listener.accept().unwrap().0);
    assert_eq!(line(&mut test), "xcp");
    drop(Leftover::new());
    test.get_mut().write_all(b".").unwrap();
    // the old connection may have fallen back: its path has no router
    assert!(line(&mut test).ends_with(" xcp"));
    drop(test);
    assert!(other.wait().unwrap().success());
    before.assert_nothing_left();
    // while XCP is on for the host
    xcp("host on").ok();
    let mut leftover = Leftover::new();
    assert_eq!(groups_of_runs(), Vec::<PathBuf>::new());
    assert!(!leftover.go_on().ends_with(" xcp"));
    xcp("host show").ok();
    xcp("host off").ok();
    drop(leftover);
    before.assert_nothing_left();
}

/// The kernel releases the name of a congestion control asynchronously.
#[test]
fn commands_wait_until_the_name_xcp_is_free() {
    let _lock = test_lock();
    let test = "name still taken";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    for args in [&["run", "--", XCP, "--version"][..], &["host", "on"]] {
        let taken = NameTaken::new().unwrap();
        let mut command = Command::new(XCP)
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let call = format!("/proc/{}/syscall", command.id());
        let sleeps = || {
            let call = fs::read_to_string(&call).unwrap_or_default();
            let number = call.split(' ').next().and_then(|n| n.parse().ok());
            [libc::SYS_nanosleep, libc::SYS_clock_nanosleep]
                .map(Some)
                .contains(&number)
        };
        let waits = eventually(|| sleeps() || command.try_wait().unwrap().is_some());
        assert!(waits);
        assert_eq!(command.try_wait().unwrap(), None, "{args:?} gave up");
        drop(taken);
        assert!(command.wait().unwrap().success(), "{args:?}");
    }
    xcp("host off").ok();
    before.assert_nothing_left();
}

#[test]
fn programs_that_start_others_through_a_service_cause_a_warning() {
    let _lock = test_lock();
    let test = "run and docker";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("xcp-run-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, warns) in [("docker", true), ("systemd-run", true), ("curl", false)] {
        let program = folder.join(name);
        symlink(XCP, &program).unwrap();
        let mut run = Command::new(XCP);
        let ran = Ran::of(run.arg("run").arg(&program).arg("--version"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let warning = format!("xcp: warning: {}: asks a service", program.display());
        assert_eq!(ran.err.starts_with(&warning), warns, "{ran:?}");
        assert_eq!(
            ran.err.contains("host on --default --cgroup"),
            warns,
            "{ran:?}"
        );
    }
    fs::remove_dir_all(&folder).unwrap();
    before.assert_nothing_left();
}
