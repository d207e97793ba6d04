// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the data path costs, counted in the machine: its clock counts
//! instructions, so the figures are the same on any host, however busy.

mod connections;
mod figure;
mod hosts;
mod qdisc;
mod router;
mod spare;

pub use figure::{Cost, Subject};

use crate::Result;

/// Counts, in the machine.
pub fn count(what: Subject, progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    match what {
        Subject::Router => router::count(progress),
        Subject::Qdisc => qdisc::count(progress),
        Subject::Hosts => hosts::count(progress),
        Subject::Connections => connections::count(progress),
    }
}
