// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `--cgroup` accepts only a group of the unified hierarchy to which XCP's programs can be
//! attached.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{xcp, SystemState};
use crate::common::test_lock;
use xcp_datapath::cgroup_mount_point;
use xcp_testbed::{can_run, skipped, Exclusive};

const BPF_F_ALLOW_OVERRIDE: u32 = 1;

/// A control group hierarchy of version 1; unmounted when dropped.
struct Version1(PathBuf);

impl Version1 {
    fn mount() -> Option<Self> {
        let at = std::env::temp_dir().join(format!("xcp-v1-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        let (name, options) = (c_path(&at), c"none,name=xcptest");
        // SAFETY: all arguments are C strings that live through the call.
        let rc = unsafe {
            libc::mount(
                c"none".as_ptr(),
                name.as_ptr(),
                c"cgroup".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        let mounted = Self(at);
        (rc == 0).then_some(mounted)
    }
}

impl Drop for Version1 {
    fn drop(&mut self) {
        let name = c_path(&self.0);
        // SAFETY: the path is a C string.
        unsafe { libc::umount(name.as_ptr()) };
        let _ = fs::remove_dir(&self.0);
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// Two control groups, one below the other; removed when dropped.
struct Groups {
    above: PathBuf,
    below: PathBuf,
}

impl Groups {
    fn new() -> Self {
        let root = cgroup_mount_point().unwrap();
        let above = root.join(format!("xt{}", std::process::id()));
        let below = above.join("below");
        fs::create_dir_all(&below).unwrap();
        Self { above, below }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in [&self.below, &self.above] {
            let _ = fs::remove_dir(group);
        }
    }
}

#[test]
fn a_control_group_of_version_1_is_refused() {
    let _lock = test_lock();
    let test = "control group of version 1";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let Some(version_1) = Version1::mount() else {
        skipped(test, "this kernel has no control groups of version 1");
        return;
    };
    let group = version_1.0.display().to_string();
    let refused = || {
        xcp(&format!("host on --default --cgroup {group}")).failed(
            1,
            &format!(
                "xcp: {group}: not a control group of the unified hierarchy (cgroup2)\n  \
                 help: name a folder below the one that `findmnt -t cgroup2` prints\n"
            ),
        );
    };
    refused();
    assert_eq!(xcp("host show").code, Some(1));
    // the roots of both versions have the same inode number
    xcp("host on").ok();
    let unchanged = xcp("host show").ok().out;
    refused();
    assert_eq!(xcp("host show").ok().out, unchanged);
    xcp("host off").ok();
    before.assert_nothing_left();
}

#[test]
fn a_sock_ops_program_that_excludes_others_is_named() {
    let _lock = test_lock();
    let test = "exclusive programs";
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    let groups = Groups::new();
    let on = |group: &Path| xcp(&format!("host on --cgroup {}", group.display()));
    for (flags, group, at) in [
        (0, &groups.above, &groups.above),
        (0, &groups.below, &groups.above),
        (BPF_F_ALLOW_OVERRIDE, &groups.below, &groups.below),
    ] {
        let exclusive = Exclusive::on(at, flags).unwrap();
        let ran = on(group);
        let told = format!(
            "xcp: {}: the sock_ops program xcp_foreign (id {}) is attached to {} without \
             BPF_F_ALLOW_MULTI",
            group.display(),
            exclusive.id().unwrap(),
            at.display()
        );
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.starts_with(&told), "{ran:?}");
        assert!(ran.err.contains("bpftool cgroup detach"), "{ran:?}");
        assert_eq!(xcp("host show").code, Some(1));
        // the same if XCP is on for all
        drop(exclusive);
        xcp("host on --default").ok();
        let unchanged = xcp("host show").ok().out;
        let exclusive = Exclusive::on(at, flags).unwrap();
        assert_eq!(on(group).code, Some(1));
        assert_eq!(xcp("host show").ok().out, unchanged);
        drop(exclusive);
        on(group).ok();
        xcp("host off").ok();
    }
    // in a group below, XCP's program replaces one that may be overridden
    let _override = Exclusive::on(&groups.above, BPF_F_ALLOW_OVERRIDE).unwrap();
    on(&groups.below).ok();
    xcp("host off").ok();
    drop(_override);
    before.assert_nothing_left();
}
