// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The protocol between two edges: an [`Asker`] and an [`Answerer`].

mod answerer;
mod asker;
mod common;

pub use answerer::{Answerer, MAX_PEERS};
pub use asker::Asker;
pub use common::*;
