// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the daemons `xcp edged run` and `xcp gateway run` share: [`status_socket`] serves their
//! status over a Unix socket, [`notify`] sends the service state to systemd.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![deny(missing_docs)]

pub mod notify;
pub mod status_socket;

use std::io;
use std::path::Path;

use xcp_datapath::Error;

/// An operating system error on a file of a daemon.
pub fn file_error(path: &Path, e: &io::Error) -> Error {
    Error::new(
        path.display().to_string(),
        e.to_string(),
        "check that it exists and that you have access to it",
    )
}
