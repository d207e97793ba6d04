// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Errors that name the thing, the reason and the remedy.

use std::io;

/// A failure: the thing, the reason and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{thing}: {reason}")]
pub struct Error {
    /// The device, file or feature that failed.
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

    /// An operating system error, with the remedy for its most common cause.
    pub fn io(thing: impl Into<String>, err: &io::Error) -> Self {
        Self::new(
            thing,
            err.to_string(),
            remedy(err.raw_os_error(), is_root()),
        )
    }

    /// The last operating system error of this thread.
    pub(crate) fn last_os(thing: impl Into<String>) -> Self {
        Self::io(thing, &io::Error::last_os_error())
    }
}

/// The remedy for the most common cause of an operating system error.
fn remedy(errno: Option<i32>, root: bool) -> &'static str {
    match errno {
        Some(libc::EPERM | libc::EACCES) => denied(root),
        Some(libc::ENODEV | libc::ENXIO) => "list the devices with `ip link`",
        Some(libc::ENOENT) => "check the name",
        Some(libc::EOPNOTSUPP) => "see `xcp doctor` for what this kernel lacks",
        _ => "see `xcp doctor`",
    }
}

pub(crate) const NOT_ROOT: &str = "run it as root (sudo)";
pub(crate) const FORBIDDEN: &str =
    "the kernel or a container forbids it, even to root: run it outside of \
                         containers and sandboxes; `xcp doctor` shows what the kernel permits";

/// The remedy if the kernel denied an operation to this process.
pub(crate) fn denied(root: bool) -> &'static str {
    if root {
        FORBIDDEN
    } else {
        NOT_ROOT
    }
}

/// Whether this process is root, perhaps only in a container.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Fails unless this process is root.
pub fn require_root(what: &str) -> Result<()> {
    if is_root() {
        return Ok(());
    }
    Err(Error::new(
        what,
        "only root may change the network",
        "run it with sudo",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_asked_to_become_root() {
        for errno in [libc::EPERM, libc::EACCES] {
            assert_eq!(remedy(Some(errno), false), "run it as root (sudo)");
            let text = remedy(Some(errno), true);
            assert!(text.contains("forbids it"), "{text}");
            assert!(!text.contains("as root"), "{text}");
        }
        for root in [false, true] {
            assert_eq!(remedy(Some(libc::ENOENT), root), "check the name");
            assert!(!remedy(Some(libc::E2BIG), root).contains("root"));
        }
    }
}
