// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The experiment player: builds the topology of one variant from network
//! namespaces, runs its traffic, takes samples and computes the metrics. It
//! runs in the virtual-time machine. A change of this crate invalidates cached
//! results.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

pub mod capture;
pub mod capture_chunk;
mod checksum;
mod delay;
mod edges;
pub mod experiment;
pub mod gateways;
pub mod guest;
pub mod link;
pub mod metrics;
mod modem;
mod pages;
mod parse;
mod paths;
mod pcap;
pub mod play;
mod probe;
mod random;
pub mod result;
mod shaper;
mod socket_option;
mod tap;
pub mod topology;
pub mod trace_file;
pub mod traffic;
mod transfers;
mod udp;
mod validate;

pub use xcp_datapath::{interrupt, Error, Result};
