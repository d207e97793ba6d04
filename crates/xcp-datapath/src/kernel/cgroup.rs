// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Control groups (version 2), which select the sockets that may use XCP.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;

use crate::{bpf_link, mounts, Error, Result};

/// The mount point of the unified hierarchy.
pub fn mount_point() -> Result<PathBuf> {
    let mounts =
        fs::read_to_string("/proc/self/mounts").map_err(|e| Error::io("/proc/self/mounts", &e))?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.nth(1)?, fields.next()?))
        })
        .find(|(_, kind)| *kind == "cgroup2")
        .map(|(path, _)| PathBuf::from(path))
        .ok_or_else(|| {
            Error::new(
                "cgroup2",
                "no unified control group hierarchy is mounted",
                "mount one: mount -t cgroup2 none /sys/fs/cgroup",
            )
        })
}

/// The control group of this process; the root group if its own is not visible.
pub fn own() -> Result<PathBuf> {
    const OWN: &str = "/proc/self/cgroup";
    let root = mount_point()?;
    let groups = fs::read_to_string(OWN).map_err(|e| Error::io(OWN, &e))?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = root.join(path.unwrap_or_default());
    Ok(if mounts::is_cgroup2(&own) { own } else { root })
}

/// How long to wait for a group whose processes are exiting or starting others.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Moves the processes of a group to another group, or to the parent if that fails, and
/// removes the group. The group stays if one of its subgroups has processes, because that
/// belongs to another program, such as a container manager.
pub fn dissolve(group: &Path, to: &Path) {
    let root = group.parent().unwrap_or(to);
    let begun = Instant::now();
    loop {
        let below = fs::read_dir(group).into_iter().flatten().flatten();
        for entry in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            remove_empty(&entry.path());
        }
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            // fails for a process that has just exited, which is fine
            let _ = fs::write(to.join("cgroup.procs"), process)
                .or_else(|_| fs::write(root.join("cgroup.procs"), process));
        }
        match fs::remove_dir(group) {
            // an exiting process may keep the group busy for a short time
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < BUSY_PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            _ => return,
        }
    }
}

/// Removes a group and its subgroups, as far as they have no processes.
fn remove_empty(group: &Path) {
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove_empty(&entry.path());
    }
    let _ = fs::remove_dir(group);
}

/// An open control group.
pub struct Cgroup {
    dir: File,
    path: PathBuf,
}

impl Cgroup {
    /// Opens the group at `path`, or the root group if there is no path.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => mount_point()?,
        };
        let name = path.display().to_string();
        // cgroup.procs also exists in version 1
        if !mounts::is_cgroup2(&path) || !path.join("cgroup.procs").exists() {
            return Err(Error::new(
                name,
                "not a control group of the unified hierarchy (cgroup2)",
                "name a folder below the one that `findmnt -t cgroup2` prints",
            ));
        }
        let dir = File::open(&path).map_err(|e| Error::io(name, &e))?;
        Ok(Self { dir, path })
    }

    /// The kernel's ID of the group: its inode number, because [`Self::open`] accepts only
    /// groups on cgroup2.
    pub fn id(&self) -> Result<u64> {
        self.dir
            .metadata()
            .map(|m| m.ino())
            .map_err(|e| Error::io(self.path.display().to_string(), &e))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The path of the group with this ID, if it still exists.
pub fn path_of(id: u64) -> Option<PathBuf> {
    let mut todo = vec![mount_point().ok()?];
    while let Some(path) = todo.pop() {
        if fs::metadata(&path).is_ok_and(|m| m.ino() == id) {
            return Some(path);
        }
        let below = fs::read_dir(&path).into_iter().flatten().flatten();
        todo.extend(
            below
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .map(|e| e.path()),
        );
    }
    None
}

/// Explains why a program could not be attached to a group: another program is attached to
/// the group or a parent without permitting more.
pub fn explain_attach_failure(group: &Cgroup, kind: libbpf_sys::bpf_attach_type) -> Option<Error> {
    let mut path = group.path().to_path_buf();
    loop {
        let at = Cgroup::open(Some(&path)).ok()?;
        let (programs, flags) = bpf_link::cgroup_programs(at.fd(), kind).ok()?;
        let is_own = path == group.path();
        if let Some(id) = programs.first() {
            let permits = match is_own {
                true => libbpf_sys::BPF_F_ALLOW_MULTI,
                false => libbpf_sys::BPF_F_ALLOW_MULTI | libbpf_sys::BPF_F_ALLOW_OVERRIDE,
            };
            return (flags & permits == 0).then(|| exclusive(group, &path, *id, kind));
        }
        path = path.parent()?.to_path_buf();
    }
}

fn exclusive(group: &Cgroup, at: &Path, id: u32, kind: libbpf_sys::bpf_attach_type) -> Error {
    let mut programs = ProgInfoIter::default();
    let name = programs.find(|program| program.id == id);
    let name = name.map_or_else(String::new, |p| p.name.to_string_lossy().into_owned());
    let kind = match kind {
        libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE => "sock_create",
        _ => "sock_ops",
    };
    let at = at.display();
    Error::new(
        group.path().display().to_string(),
        format!(
            "the {kind} program {name} (id {id}) is attached to {at} without BPF_F_ALLOW_MULTI, \
             which excludes other programs"
        ),
        format!(
            "have its owner attach it with that flag, choose another group (--cgroup), or detach \
             it: bpftool cgroup detach {at} {kind} id {id}"
        ),
    )
}
