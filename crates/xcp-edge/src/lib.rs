// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! XCP-i: measures the path between two XCP routers that have routers without
//! XCP between them.
//!
//! The two XCP routers are edges, and the routers between them are a cloud. The
//! downstream edge, the asker, receives the upstream edge's packets and asks it to
//! send probes; the upstream edge, the answerer, sends probes and reports.
//! [`message`] is the format of their UDP messages, [`conversation`] the protocol.
//! From the probes, [`delay`] computes the queueing delay, [`train`] evaluates one
//! packet train, and [`estimate`] computes the cloud's available bandwidth.
//! See docs/design/xcp-i.md.
//!
//! This crate has no I/O and no clock: a message is a slice of bytes, time is
//! an argument in ns, and the caller supplies random numbers.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

pub mod conversation;
pub mod delay;
pub mod edge;
pub mod estimate;
pub mod message;
pub mod train;
