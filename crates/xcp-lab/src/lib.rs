// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The laboratory: topologies, traffic, sampling, the virtual-time machine
//! and reports.

pub mod csv;
pub mod report;
pub mod result;
mod run;

pub use run::{guest_main, list, native_qdiscs, run, Entry, Options, Outcome, Progress};
pub use xcp_datapath::{Error, Result};
