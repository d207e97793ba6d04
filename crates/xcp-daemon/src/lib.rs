// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the daemons `xcp edged run` and `xcp gateway run` share: [`status_socket`] serves their
//! status over a Unix socket, [`notify`] sends the service state to systemd, and [`Error`] has a
//! remedy.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![deny(missing_docs)]

mod error;
pub mod notify;
pub mod status_socket;

pub use error::{Error, Result};
