// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of the BPF programs with single packets, and of the other parsers of the wire
//! formats. They run in parallel; a test that loads a program holds the shared test lock
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
