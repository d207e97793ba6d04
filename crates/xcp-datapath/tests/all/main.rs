// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of the programs in BPF, one packet at a time, and of what else reads
//! the formats. They run side by side: one that loads a program holds the lock
//! (`xcp_testbed`).

mod clouds;
mod cpus;
mod device;
mod dissector;
mod edges;
mod golden;
mod law;
mod law_formats;

mod mutations;
mod packets;
mod refused;
mod super_packets;
mod support;
mod trace;
#[path = "../../../../wireshark/tshark.rs"]
mod tshark;
mod wire;
