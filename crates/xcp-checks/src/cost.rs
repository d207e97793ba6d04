// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Counts the cost of the data path in the machine. The machine's clock counts
//! instructions, so the results do not depend on the host or its load.

mod connections;
mod figure;
mod hosts;
mod qdisc;
mod router;
mod spare;

pub use figure::{Cost, Subject};

use crate::Result;

/// Counts the cost of a part of the data path. Runs in the machine.
pub fn count(what: Subject, progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    match what {
        Subject::Router => router::count(progress),
        Subject::Qdisc => qdisc::count(progress),
        Subject::Hosts => hosts::count(progress),
        Subject::Connections => connections::count(progress),
    }
}
