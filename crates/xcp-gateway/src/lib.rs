// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The proxy of `xcp gateway run`: accepts the TCP connections that the gateway's programs deliver
//! (`xcp_datapath::gateway`), and connects to their destinations from the addresses and ports of
//! their sources. So XCP controls the WAN side, and the system's default the LAN side.
//!
//! [`daemon`] starts and ends everything. [`proxy`] accepts connections and enforces limits,
//! [`connection`] handles one of them, [`relay`] copies its bytes, [`fast_open`] knows where
//! a SYN may carry data, [`wan_router`] is the router of the WAN device, and [`sockets`] sets the
//! options of sockets. [`status`] is what `xcp gateway show` prints.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![deny(missing_docs)]

mod connection;
pub mod daemon;
mod fast_open;
mod proxy;
mod relay;
mod sockets;
pub mod status;
mod wan_router;

pub use xcp_datapath::{Error, Result};
