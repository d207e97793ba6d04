// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Results of earlier runs. Runs of the machine with the same ingredients give the same
//! bytes, so results are kept in files whose names are hashes of the ingredients.
//!
//! Processes share the folder without a common lock. Entries are created by rename, so
//! they are complete or absent, and a removed entry stays readable for a process that has
//! it open. A file is locked while it is written: an unlocked one belongs to a process that
//! has died.

mod entry;
mod key;
mod played;
mod session;
mod store;

pub use entry::Label;
pub(crate) use key::digest;
pub(crate) use session::Session;
pub use store::*;
