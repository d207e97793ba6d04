// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Kept results. A run of the machine is the same to the byte whenever its
//! ingredients are, so its result is kept in a file that the ingredients name.
//!
//! Processes share the folder without a common lock. Entries appear by rename,
//! so they are whole or absent, and an entry that is removed stays readable for
//! a process that has it open. A file that is being written is locked: one that
//! is not locked was left behind by a process that has died.

mod entry;
mod key;
mod played;
mod session;
mod store;

pub use entry::Label;
pub(crate) use key::digest;
pub(crate) use session::Session;
pub use store::*;
