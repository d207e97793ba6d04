// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The state of the daemon.

use std::path::Path;

use serde::{Deserialize, Serialize};
use xcp_daemon::status_socket;
use xcp_datapath::gateway::{Counters, Filters};
use xcp_datapath::{netns_inode, Result};

/// The default path of the status socket.
pub const SOCKET: &str = "/run/xcp/gateway.sock";

/// Requests the status of the daemon at this path.
///
/// # Errors
/// There is no daemon, or it does not answer.
pub fn ask(socket: &Path) -> Result<Status> {
    status_socket::ask(socket, "xcp gateway run --lan DEV --wan DEV")
}

/// The status of the gateway of this network namespace, if one runs at the default path.
pub fn here() -> Option<Status> {
    let status = ask(Path::new(SOCKET)).ok()?;
    netns_inode()
        .is_ok_and(|netns| netns == status.netns)
        .then_some(status)
}

/// The state of the daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The devices on the LAN side.
    pub lan: Vec<String>,
    /// The device on the WAN side.
    pub wan: String,
    /// The capacity of the router that the gateway has added, 0 if it is measured.
    pub capacity_bytes_per_s: Option<u64>,
    /// The connections to split.
    pub filters: Filters,
    /// Present connections.
    pub connections: u32,
    /// The most connections.
    pub connections_max: u32,
    /// The same in the configuration: open files may suffice for fewer.
    pub connections_configured: u32,
    /// The most connections of one source address.
    pub per_source_max: u32,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Of these: the destination refused or did not answer, or the source did not wait.
    pub not_connected: u64,
    /// Of these: one side was reset.
    pub reset: u64,
    /// Of these: the source's port was in use, and another one was used.
    pub other_port: u64,
    /// Of these: opened over the WAN with a SYN that may carry data.
    pub fast_open: u64,
    /// Bytes copied, both directions.
    pub bytes: u64,
    /// How often the routing rule was missing and was added again.
    pub rule_repairs: u64,
    /// What does not work now, and is tried again every second.
    pub failures: Vec<String>,
    /// The inode number of the daemon's network namespace.
    pub netns: u64,
    /// Counters of the gateway's programs.
    pub packets: Counters,
}

impl Status {
    /// New connections that were forwarded and not split, although they cross the gateway.
    pub fn forwarded(&self) -> u64 {
        let n = &self.packets;
        n.excluded + n.unsplittable + n.over_limit + n.no_proxy + n.no_rule + n.spoofed
    }
}
