// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The queue discipline `xcp` in the machine: what must hold of it, and what
//! a packet costs.

mod check;
mod cycles;
pub(crate) mod frames;
mod load;
pub(crate) mod tools;

pub use check::check;
