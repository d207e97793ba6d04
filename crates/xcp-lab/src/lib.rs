// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The lab: kernels, the virtual-time machine, results of earlier runs, reports, and the
//! document of all results. The program that runs inside the machine is xcp-player.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

pub mod all;
mod architecture;
mod archive;
pub mod cache;
mod case;
mod catalog;
mod cost_report;
pub mod csv;
mod depmod;
mod emulator;
mod exec;
mod figures;
mod file;
mod file_lock;
mod initramfs;
mod kernel;
mod limits;
mod link_trace;
mod machine;
mod machines;
mod native;
#[cfg(test)]
mod networks;
mod newest;
mod options;
mod random;
pub mod report;
pub mod result;
mod results;
mod run;
mod task;
mod test_machine;
mod verifier_report;
pub mod verify;

pub use architecture::Architecture;
pub use archive::KEYRING;
pub use cost_report::{CostReport, Row};
pub use exec::{exec, ExecOptions};
pub use initramfs::{guest_programs, which as system_program};
pub use limits::Limit;
pub use link_trace::{made as made_traces, Summary as TraceSummary};
pub use native::native_qdiscs;
pub use options::{Options, Progress};
pub use run::{interrupted, list, run, Entry, Outcome};
pub use task::{bench, check_programs, check_qdisc, TaskOptions};
pub use verifier_report::{Program, Report};
pub use xcp_checks::check::Check;
pub use xcp_checks::cost::Subject;
pub use xcp_checks::exec::Stream;
pub use xcp_datapath::{Error, Result};
pub use xcp_player::interrupt;

use xcp_player::{capture, capture_chunk, experiment, guest, metrics, play};
