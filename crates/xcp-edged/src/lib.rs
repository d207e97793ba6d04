// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! XCP-i's daemon: the sockets, clocks and files around `xcp_edge::edge`.
//!
//! [`daemon`] is its loop, [`socket`] how it speaks to other edges, [`status`]
//! what it tells people, over [`status_socket`], a Unix socket. [`secret`] is the shared
//! key, [`notify`] how systemd learns that it is ready, [`virtuals`] what becomes of
//! it in the data path.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

pub mod daemon;
mod error;
mod notify;
pub mod secret;
mod socket;
pub mod status;
pub mod status_socket;
mod test_overrides;
mod virtuals;

pub use error::{Error, Result};
