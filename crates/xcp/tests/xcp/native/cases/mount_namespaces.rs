// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Private mount namespaces: the next command finds what a command pins, or the command
//! refuses to run.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use crate::command::{xcp, NetNamespace, Ran, SystemState, XCP};
use crate::common::test_lock;
use xcp_testbed::{can_run, skipped};

const ADD: &str = "router add v0 --capacity 10mbit --shape";
/// All commands that use pinned objects.
const COMMANDS: [&str; 9] = [
    ADD,
    "router show",
    "router show v0",
    "router trace v0",
    "router del v0",
    "host on --netns --default",
    "host show",
    "host off",
    "run -- ip -V",
];

/// A function that mounts something in a private mount namespace.
type Mount = fn() -> io::Result<()>;

fn mount(from: &CStr, at: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all arguments are C strings, or null, and live through the call.
    match unsafe { libc::mount(from.as_ptr(), at.as_ptr(), kind, flags, ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn plain() -> io::Result<()> {
    Ok(())
}

/// Mounts a new /sys, as `ip netns exec` does.
fn new_sysfs() -> io::Result<()> {
    // SAFETY: the path is a C string.
    if unsafe { libc::umount2(c"/sys".as_ptr(), libc::MNT_DETACH) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount(c"none", c"/sys", Some(c"sysfs"), 0)
}

/// Mounts another bpffs, as a container may have.
fn own_bpffs() -> io::Result<()> {
    mount(c"bpf", c"/sys/fs/bpf", Some(c"bpf"), 0)
}

/// Mounts a new /sys with the system's bpffs, as a container may have.
fn bound_bpffs() -> io::Result<()> {
    let saved_bpffs = c"/run/xcp-test-bpffs";
    // SAFETY: the path is a C string.
    unsafe { libc::mkdir(saved_bpffs.as_ptr(), 0o700) };
    mount(c"/sys/fs/bpf", saved_bpffs, None, libc::MS_BIND)?;
    new_sysfs()?;
    mount(saved_bpffs, c"/sys/fs/bpf", None, libc::MS_BIND)
}

/// Makes the bpffs read-only, as in a systemd unit with ProtectKernelTunables=.
fn read_only() -> io::Result<()> {
    const READ_ONLY: libc::c_ulong = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
    mount(c"/sys/fs/bpf", c"/sys/fs/bpf", None, libc::MS_BIND)?;
    mount(c"none", c"/sys/fs/bpf", None, READ_ONLY)
}

/// Runs `xcp` in its own mount namespace.
fn xcp_in_mount_namespace(space: &NetNamespace, args: &str, what: Mount) -> Ran {
    let mut command = space.command(args);
    // SAFETY: only system calls that may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(io::Error::last_os_error());
            }
            mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
            what()
        });
    }
    Ran::of(&mut command)
}

/// A network namespace with a router; None if the test cannot run. Adding the router
/// mounts the bpffs.
fn with_router(test: &str) -> Option<(NetNamespace, SystemState)> {
    if !can_run(test) {
        return None;
    }
    let before = SystemState::capture_before(test)?;
    let space = NetNamespace::new("mnt");
    space.xcp("router add v1 --capacity 10mbit").ok();
    Some((space, before))
}

fn end(space: &NetNamespace, before: &SystemState) {
    space.xcp("router del v1").ok();
    before.assert_nothing_left();
}

fn refused(ran: &Ran, reason: &str, remedy: &str) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.out, "", "{ran:?}");
    assert!(ran.err.contains(reason), "{ran:?}");
    assert!(ran.err.contains(remedy), "{ran:?}");
}

#[test]
fn ip_netns_exec_is_refused_and_the_remedy_is_named() {
    let _lock = test_lock();
    let test = "ip netns exec";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let space = NetNamespace::new("exec");
    let exec = |args: &str| {
        let mut ip = Command::new("ip");
        ip.args(["netns", "exec", space.name()]);
        Ran::of(ip.arg(XCP).args(args.split_whitespace()))
    };
    if exec("--version").code != Some(0) {
        skipped(test, "/sys may not be mounted here");
        return;
    }
    let untouched = space.devices();
    let remedy = format!("nsenter --net=/run/netns/{} xcp", space.name());
    // before a bpffs is mounted, and while there is a router
    for shown in ["No XCP router here", "v1"] {
        for command in COMMANDS {
            let ran = exec(command);
            let reason = "`ip netns exec` hides the system's /sys/fs/bpf";
            refused(&ran, reason, &remedy);
            let json = exec(&format!("--json {command}"));
            assert!(json.err.starts_with("{\"error\":"), "{json:?}");
            refused(&json, reason, &remedy);
        }
        let doctor = exec("doctor --json");
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        let told = doctor.json()["features"].to_string();
        assert!(told.contains("pinned programs (bpffs)"), "{told}");
        assert!(told.contains(&remedy), "{told}");
        let show = space.xcp("router show").ok();
        assert!(show.out.contains(shown), "{show:?}");
        if shown == "No XCP router here" {
            assert_eq!(space.devices(), untouched);
            space.xcp("router add v1 --capacity 10mbit").ok();
        }
    }
    end(&space, &before);
    assert_eq!(space.devices(), untouched);
}

#[test]
fn a_mount_namespace_without_the_systems_bpffs_is_refused() {
    let _lock = test_lock();
    let Some((space, before)) = with_router("hidden bpffs") else {
        return;
    };
    let devices = space.devices();
    for hidden in [new_sysfs as Mount, own_bpffs] {
        for command in COMMANDS {
            let ran = xcp_in_mount_namespace(&space, command, hidden);
            let reason = "this mount namespace lacks the system's /sys/fs/bpf";
            refused(&ran, reason, "nsenter --net=/run/netns/NAME xcp");
        }
    }
    assert_eq!(space.devices(), devices);
    end(&space, &before);
}

#[test]
fn a_mount_namespace_with_the_systems_bpffs_works() {
    let _lock = test_lock();
    let Some((space, before)) = with_router("unshare --mount") else {
        return;
    };
    for shared in [plain as Mount, bound_bpffs] {
        xcp_in_mount_namespace(&space, ADD, shared).ok();
        let show = xcp_in_mount_namespace(&space, "router show", shared).ok();
        assert!(
            show.out.contains("v0") && show.out.contains("v1"),
            "{show:?}"
        );
        // it is the same outside the mount namespace
        assert_eq!(space.xcp("router show").ok().out, show.out);
        xcp_in_mount_namespace(&space, "router del v0", shared).ok();
    }
    fs::remove_dir("/run/xcp-test-bpffs").unwrap();
    xcp_in_mount_namespace(&space, "host on --default", plain).ok();
    xcp("host show").ok();
    xcp_in_mount_namespace(&space, "host off", plain).ok();
    xcp_in_mount_namespace(&space, "run -- ip -V", plain).ok();
    end(&space, &before);
}

#[test]
fn commands_that_only_show_work_with_a_read_only_bpffs() {
    let _lock = test_lock();
    let Some((space, before)) = with_router("read-only bpffs") else {
        return;
    };
    let devices = space.devices();
    for command in COMMANDS {
        let ran = xcp_in_mount_namespace(&space, command, read_only);
        if !command.contains("show") && !command.contains("trace") {
            let reason = "/sys/fs/bpf: mounted read-only for this process";
            refused(&ran, reason, "ProtectKernelTunables=");
        }
    }
    let show = xcp_in_mount_namespace(&space, "router show", read_only).ok();
    assert!(show.out.contains("v1"), "{show:?}");
    let doctor = xcp_in_mount_namespace(&space, "doctor", read_only);
    assert!(doctor.out.contains("mounted read-only"), "{doctor:?}");
    assert_eq!(space.devices(), devices);
    end(&space, &before);
}
