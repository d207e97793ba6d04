// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Mounted file systems, and whether this process sees the bpffs that the rest
//! of the system sees.
//!
//! `ip netns exec` mounts a new sysfs over /sys, in a private mount namespace.
//! Containers and systemd units may have such a namespace, too. A bpffs that is
//! mounted there disappears with the last process of that namespace, with all
//! its pinned objects. Until then, commands outside do not see it.
//!
//! Commands refuse to work there instead of entering the mount namespace of
//! process 1. Entering it would expose what a sandbox hides on purpose, and would
//! change the meaning of paths that the user gives: the program of `xcp run`,
//! --cgroup, the key of `xcp edged`. A mount namespace that has the system's bpffs
//! is fine (`unshare --mount`, a container with a bind mount).

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The mount point of the bpffs.
pub const BPFFS: &str = "/sys/fs/bpf";
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
/// The folder in which `ip netns` keeps named network namespaces.
const NAMED: &str = "/run/netns";

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// The magic number of the file system that a path is in.
fn kind(path: &Path) -> Option<i64> {
    let path = c_path(path)?;
    // SAFETY: a zeroed statfs is valid, path is a C string, both live here.
    unsafe {
        let mut info: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut info) == 0).then_some(info.f_type as i64)
    }
}

/// The flags of the mount that a path is in.
fn flags(path: &Path) -> Option<libc::c_ulong> {
    let path = c_path(path)?;
    // SAFETY: a zeroed statvfs is valid, path is a C string, both live here.
    unsafe {
        let mut info: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut info) == 0).then_some(info.f_flag)
    }
}

/// Whether a path is in the unified control group hierarchy (cgroup2).
pub fn is_cgroup2(path: &Path) -> bool {
    kind(path) == Some(CGROUP2_SUPER_MAGIC)
}

/// The device number of the bpffs at a path, if there is one.
fn bpffs_at(path: &Path) -> Option<u64> {
    (kind(path)? == BPF_FS_MAGIC).then(|| fs::metadata(path).ok().map(|m| m.dev()))?
}

/// Whether a bpffs is mounted at [`BPFFS`] for this process.
pub fn has_bpffs() -> bool {
    bpffs_at(Path::new(BPFFS)).is_some()
}

/// Fails unless this process sees the bpffs that the rest of the system sees.
pub fn require_bpffs(what: &str) -> Result<()> {
    let here = bpffs_at(Path::new(BPFFS));
    let (other, netns) = (reference(), ip_netns());
    let is_shared = match other {
        Some(other) => {
            let there = bpffs_at(&process(other).join("root").join(&BPFFS[1..]));
            // if none is mounted yet, it may be mounted in the system's mount namespace
            let may_mount = || namespace("self", "mnt") == namespace(&other.to_string(), "mnt");
            here == there && (here.is_some() || may_mount())
        }
        None => here.is_some() || netns.is_none(),
    };
    if is_shared {
        return Ok(());
    }
    Err(match netns {
        Some(name) => Error::new(
            what,
            format!("`ip netns exec` hides the system's {BPFFS}, where XCP's programs are pinned"),
            format!("enter only the network namespace: nsenter --net={NAMED}/{name} xcp ..."),
        ),
        None => Error::new(
            what,
            format!(
                "this mount namespace lacks the system's {BPFFS}, where XCP's programs are pinned"
            ),
            format!(
                "bind-mount {BPFFS} of the system into it, or run the command outside of it: \
                 nsenter --mount=/proc/{}/ns/mnt xcp ...; for a network namespace alone, \
                 nsenter --net={NAMED}/NAME xcp ...",
                other.unwrap_or(1)
            ),
        ),
    })
}

/// Fails if the bpffs is mounted read-only for this process.
pub fn require_writable_bpffs() -> Result<()> {
    let is_read_only = || flags(Path::new(BPFFS)).is_some_and(|f| f & libc::ST_RDONLY != 0);
    if !has_bpffs() || !is_read_only() {
        return Ok(());
    }
    Err(Error::new(
        BPFFS,
        "mounted read-only for this process",
        "run it outside of the container, or without ProtectKernelTunables= of the systemd unit",
    ))
}

fn process(id: u32) -> PathBuf {
    Path::new("/proc").join(id.to_string())
}

/// The identifier of a process's namespace, if this process may read it.
fn namespace(process: &str, kind: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()
}

/// The process whose mounts represent those of the system: process 1; in a container, the
/// container's process 1. In a sandbox, process 1 may have more capabilities than this
/// process and be unreadable. Then the most distant readable ancestor is used.
fn reference() -> Option<u32> {
    const FIRST: u32 = 1;
    let visible = |id: &u32| namespace(&id.to_string(), "mnt").is_some();
    let ancestors = std::iter::successors(Some(parent_id()), |id| parent_of(*id));
    let ancestors = ancestors.take_while(|id| *id > FIRST);
    visible(&FIRST)
        .then_some(FIRST)
        .or_else(|| ancestors.filter(visible).last())
}

fn parent_of(id: u32) -> Option<u32> {
    let status = fs::read_to_string(process(id).join("status")).ok()?;
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

/// The name of the network namespace, if `ip netns exec` created this mount namespace: it
/// uses that name as the source of the sysfs mount.
fn ip_netns() -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut fields| {
        let (from, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let is_named = || Path::new(NAMED).join(from).exists();
        (at == "/sys" && kind == "sysfs" && is_named()).then(|| from.to_owned())
    })
}
