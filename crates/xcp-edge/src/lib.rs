// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! XCP-i: how an XCP router asks another one, across routers that do not speak
//! XCP, to measure the path between them.
//!
//! Two XCP routers, edges, have a cloud of other routers between them. The
//! downstream edge, the asker, sees the upstream edge's packets and asks it to
//! send probes; the upstream edge, the answerer, sends probes and reports.
//! [`message`] is the format of what they send over UDP, [`conversation`] is
//! what each of them does. docs/xcp-i.md describes both.
//!
//! Nothing here does I/O or has a clock: a message is a slice of bytes, time is
//! an argument in ns, and random numbers come from the caller.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

pub mod conversation;
pub mod message;
