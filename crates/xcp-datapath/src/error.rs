// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Errors that name the thing, the reason and the remedy.

use std::io;

/// Something could not be done.
#[derive(Debug, thiserror::Error)]
#[error("{thing}: {reason}")]
pub struct Error {
    /// What it is about: a device, a file, a feature.
    pub thing: String,
    pub reason: String,
    /// What the user can do about it.
    pub remedy: String,
}

/// A result with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(
        thing: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            thing: thing.into(),
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// An operating system error on a thing, with the remedy for its most
    /// common cause.
    pub fn io(thing: impl Into<String>, err: &io::Error) -> Self {
        let remedy = match err.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "run it as root (sudo)",
            Some(libc::ENODEV | libc::ENXIO) => "list the devices with `ip link`",
            Some(libc::ENOENT) => "check the name",
            Some(libc::EOPNOTSUPP) => "see `xcp doctor` for what this kernel lacks",
            _ => "see `xcp doctor`",
        };
        Self::new(thing, err.to_string(), remedy)
    }

    /// The last operating system error of this thread.
    pub(crate) fn last_os(thing: impl Into<String>) -> Self {
        Self::io(thing, &io::Error::last_os_error())
    }
}

/// Fails unless this process may load programs.
pub fn require_root(what: &str) -> Result<()> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    Err(Error::new(
        what,
        "only root may change the network",
        "run it with sudo",
    ))
}
