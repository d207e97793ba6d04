// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The laboratory: topologies, traffic, sampling, the virtual-time machine
//! and reports.

mod archive;
mod capture;
mod checksum;
mod cost;
pub mod csv;
mod delay;
mod depmod;
mod emulator;
pub mod experiment;
mod guest;
mod initramfs;
pub mod interrupt;
pub mod kept;
mod kernel;
mod limits;
mod link;
mod machine;
mod machines;
mod metrics;
mod native;
mod newest;
mod parcel;
mod pcap;
mod play;
mod probe;
mod programs;
mod qdisc;
pub mod report;
pub mod result;
mod run;
mod shaper;
mod stage;
mod tap;
mod task;
mod traffic;
mod udp;
mod validate;

pub use cost::{Bill, Cost, Subject};
pub use guest::guest_main;
pub use limits::Limit;
pub use native::native_qdiscs;
pub use programs::{Program, Report};
pub use qdisc::Check;
pub use run::{interrupted, list, run, Entry, Options, Outcome, Progress};
pub use task::{bench, check_programs, check_qdisc};
pub use xcp_datapath::{Error, Result};
