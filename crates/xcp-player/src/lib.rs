// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The player: plays one variant of an experiment on a stage of namespaces,
//! samples it and makes the figures; counts costs; checks the data path. What
//! runs in the virtual-time machine, and nothing else: a result is kept until
//! this changes.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

pub mod capture;
mod checksum;
pub mod cost;
mod delay;
#[cfg_attr(not(feature = "edges"), path = "no_edges.rs")]
mod edges;
pub mod exec;
pub mod experiment;
pub mod guest;
pub mod link;
pub mod metrics;
mod modem;
pub mod parcel;
mod pcap;
pub mod play;
mod probe;
pub mod programs;
pub mod qdisc;
pub mod result;
mod shaper;
pub mod stage;
mod tap;
pub mod trace_file;
mod traffic;
mod transfers;
mod udp;
mod validate;
mod way;

pub use xcp_datapath::{interrupt, Error, Result};
