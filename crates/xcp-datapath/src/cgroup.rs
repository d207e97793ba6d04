// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Control groups (version 2): which sockets speak XCP is told by them.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Where the unified hierarchy is mounted.
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

/// An open control group.
pub struct Cgroup {
    dir: File,
    path: PathBuf,
}

impl Cgroup {
    /// Opens the group at `path`, or the root group.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => mount_point()?,
        };
        let name = path.display().to_string();
        if !path.join("cgroup.procs").exists() {
            return Err(Error::new(
                name,
                "not a control group of the unified hierarchy (cgroup2)",
                "name a folder below the one that `findmnt -t cgroup2` prints",
            ));
        }
        let dir = File::open(&path).map_err(|e| Error::io(name, &e))?;
        Ok(Self { dir, path })
    }

    /// The kernel's number for it.
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

/// The path of the group with this number, if it still exists.
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
