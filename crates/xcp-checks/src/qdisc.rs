// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Checks of the `xcp` queue discipline in the machine.

mod check;
mod cycles;
pub(crate) mod frames;
mod load;
pub(crate) mod tools;

pub use check::check;
