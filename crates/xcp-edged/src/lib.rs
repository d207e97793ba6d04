// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP-i daemon: the sockets, clocks and files around `xcp_edge::edge`.
//!
//! [`daemon`] is its main loop, and [`socket`] the UDP socket for messages of other edges.
//! [`status`] is its status, and where to ask for it. [`secret`] reads and makes the shared
//! key, and [`virtuals`] manages the virtual routers in the data path.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

pub mod daemon;
pub mod secret;
mod socket;
pub mod status;
mod test_overrides;
mod virtuals;

pub use xcp_datapath::{Error, Result};
