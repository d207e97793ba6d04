// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab exec`: runs a program of this computer in the virtual machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::command::{path_with_xcp, Ran, XCP};

fn exec(args: &[&str]) -> Command {
    let mut command = Command::new(XCP);
    command.args(["lab", "exec"]).args(args);
    command
}

#[test]
fn output_and_exit_status_come_from_the_program() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a file"), "its text\n").unwrap();
    let script = "read -r line < 'a file' && echo \"$line\"
        ip -brief link show lo up
        xcp doctor >/dev/null || echo \"xcp failed\"
        # the machine's init waits for orphans
        orphan=$(sh -c ': & echo $!')
        for try in 1 2 3 4 5 6 7 8 9; do
            [ -e /proc/$orphan ] || break
            sh -c 'read -r rest < /proc/uptime'
        done
        [ ! -e /proc/$orphan ] || echo \"a zombie\"
        echo error >&2
        exit 7";
    let files = ["--file", "a file", "--file", XCP];
    let ran = Ran::of(
        exec(&files)
            .args(["--", "sh", "-c", script])
            .current_dir(&folder)
            .env("PATH", path_with_xcp()),
    );
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert_eq!(ran.err, "error\n");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        matches!(lines[..], ["its text", lo] if lo.starts_with("lo ")),
        "{ran:?}"
    );
}

#[test]
fn a_program_killed_by_a_signal_exits_with_128_plus_its_number() {
    let ran = Ran::of(exec(&["--", "sh", "-c", "kill -9 $$"]).env("PATH", "/usr/bin:/bin"));
    assert_eq!(ran.code, Some(128 + libc::SIGKILL), "{ran:?}");
}

#[test]
fn output_is_not_buffered_and_an_interrupt_stops_the_machine() {
    let mut child = exec(&["--", "sh", "-c", "echo begin; while :; do :; done"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "begin\n");
    // SAFETY: this process started the child and has not waited for it.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_missing_program_fails_before_the_machine_boots() {
    let ran = Ran::of(&mut exec(&["--kernel", "none", "--", "no-such-program"]));
    let expected = "xcp: no-such-program: no such command\n";
    assert_eq!(ran.code, Some(127), "{ran:?}");
    assert!(ran.err.starts_with(expected), "{ran:?}");
    let ran = Ran::of(&mut exec(&["--kernel", "none", "--", "/etc/passwd"]));
    assert_eq!(ran.code, Some(126), "{ran:?}");
}
