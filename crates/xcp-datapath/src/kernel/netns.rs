// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Finds network namespaces by their cookies, which the kernel never reuses.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::{Error, Result};

const HERE: &str = "/proc/thread-self/ns/net";
/// The folder of named namespaces (`ip netns`).
const NAMED: &str = "/run/netns";
/// The folder of processes, whose namespaces include the initial one.
const PROCESSES: &str = "/proc";

/// The cookie of this thread's network namespace.
pub fn cookie() -> Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the result of socket is checked and owned at once; the kernel
    // writes no more than the given length.
    let rc = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(Error::last_os("socket"));
        }
        let fd = OwnedFd::from_raw_fd(fd);
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if rc < 0 {
        return Err(Error::last_os("network namespace"));
    }
    Ok(cookie)
}

/// The inode number of this thread's network namespace.
pub fn inode() -> Result<u64> {
    fs::metadata(HERE)
        .map(|m| m.ino())
        .map_err(|e| Error::io(HERE, &e))
}

/// This thread's network namespace.
pub fn open() -> Result<File> {
    File::open(HERE).map_err(|e| Error::io(HERE, &e))
}

fn enter(space: &File) -> bool {
    // SAFETY: the descriptor is open; only this thread moves.
    unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) == 0 }
}

fn below(folder: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Runs `work` in the namespace with this cookie. None if no named namespace and no namespace
/// of a process has it.
pub fn within<T>(wanted: u64, work: impl FnOnce() -> T) -> Option<T> {
    let home = open().ok()?;
    let mut seen = HashSet::new();
    let entered = below(NAMED)
        .chain(below(PROCESSES).map(|process| process.join("ns/net")))
        .filter_map(|path| File::open(path).ok())
        .filter(|space| space.metadata().is_ok_and(|m| seen.insert(m.ino())))
        .any(|space| enter(&space) && cookie().is_ok_and(|c| c == wanted));
    let result = entered.then(work);
    // this cannot fail: the thread was in this namespace before
    enter(&home);
    result
}
