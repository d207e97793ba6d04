// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The laboratory: topologies, traffic, sampling, the virtual-time machine
//! and reports.

mod capture;
mod checksum;
pub mod csv;
mod delay;
mod emulator;
pub mod experiment;
mod guest;
mod initramfs;
pub mod interrupt;
pub mod kept;
mod kernel;
mod link;
mod machine;
mod machines;
mod metrics;
mod native;
mod parcel;
mod pcap;
mod play;
mod probe;
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

pub use guest::guest_main;
pub use native::native_qdiscs;
pub use qdisc::{Check, Cost};
pub use run::{interrupted, list, run, Entry, Options, Outcome, Progress};
pub use task::{bench_qdisc, check_qdisc};
pub use xcp_datapath::{Error, Result};
