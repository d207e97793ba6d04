// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Errors and their remedies.

use std::io;

/// An error: the object, the reason, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{thing}: {reason}")]
pub struct Error {
    /// The object that the error is about.
    pub thing: String,
    /// The reason.
    pub reason: String,
    /// The remedy: what the user can do.
    pub remedy: String,
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with its reason and remedy.
    pub fn new(thing: impl Into<String>, reason: impl ToString, remedy: impl Into<String>) -> Self {
        Self {
            thing: thing.into(),
            reason: reason.to_string(),
            remedy: remedy.into(),
        }
    }

    /// An operating system error on a file.
    pub fn file(path: &std::path::Path, e: &io::Error) -> Self {
        Self::new(
            path.display().to_string(),
            e,
            "check that it exists and that you have access to it",
        )
    }
}
