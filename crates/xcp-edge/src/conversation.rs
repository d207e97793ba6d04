// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What two edges tell each other: [`Asker`] and [`Answerer`] are its two ends.

mod answerer;
mod asker;
mod common;

pub use answerer::{Answerer, MAX_PEERS};
pub use asker::Asker;
pub use common::*;
