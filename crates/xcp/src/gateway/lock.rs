// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! At most one gateway runs in a network namespace: its routing rule, its router and TCP Fast
//! Open's setting exist once, and `xcp gateway off` removes them.

use std::path::PathBuf;

use xcp_cli::failure::Failure;
use xcp_daemon::status_socket::{process_of, StatusSocket};

/// A socket of this network namespace, by which other commands find this one. Its file is
/// removed when it is dropped.
///
/// # Errors
/// A gateway runs here, or the socket cannot be made.
pub fn take() -> Result<StatusSocket, Failure> {
    let path = path()?;
    match process_of(&path) {
        None => Ok(StatusSocket::open(&path)?),
        Some(process) => Err(Failure::new(
            super::thing(process),
            "is running in this network namespace",
            "end it: xcp gateway off, with its --socket if that is not the default",
        )),
    }
}

fn path() -> Result<PathBuf, Failure> {
    let inode = xcp_datapath::netns_inode()?;
    Ok(format!("/run/xcp/gateway-{inode}.sock").into())
}
