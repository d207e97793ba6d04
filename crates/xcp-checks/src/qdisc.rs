// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The queue discipline `xcp` in the machine: what must hold of it, and what
//! a packet costs.

mod bench;
mod check;
mod cycles;
mod frames;
mod load;
mod tools;

use serde::{Deserialize, Serialize};

pub use bench::bench;
pub use check::check;

/// One thing that must hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// What was seen.
    pub seen: String,
}
