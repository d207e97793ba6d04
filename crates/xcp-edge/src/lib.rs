// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! XCP-i: how an XCP router asks another one, across routers that do not speak
//! XCP, to measure the path between them.
//!
//! Two XCP routers, edges, have a cloud of other routers between them. The
//! downstream edge, the asker, sees the upstream edge's packets and asks it to
//! send probes; the upstream edge, the answerer, sends probes and reports.
//! [`message`] is the format of what they send over UDP, [`conversation`] is
//! what each of them does. From the probes, [`delay`] tells the queueing delay,
//! [`train`] what one train has found, and [`estimate`] what the cloud has free.
//! docs/xcp-i.md describes all of it.
//!
//! Nothing here does I/O or has a clock: a message is a slice of bytes, time is
//! an argument in ns, and random numbers come from the caller.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

pub mod conversation;
pub mod delay;
pub mod edge;
pub mod estimate;
pub mod message;
pub mod train;
