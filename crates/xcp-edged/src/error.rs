// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What can go wrong, and what to do about it.

use std::io;

/// A failure: the thing that it is about, the reason, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{thing}: {reason}")]
pub struct Error {
    /// What it is about.
    pub thing: String,
    /// Why it failed.
    pub reason: String,
    /// What the user can do.
    pub remedy: String,
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(
        thing: impl Into<String>,
        reason: impl ToString,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// An operating system error on a file.
    pub(crate) fn file(path: &std::path::Path, e: &io::Error) -> Self {
        Self::new(
            path.display().to_string(),
            e,
            "see that it exists and that you may use it",
        )
    }
}
