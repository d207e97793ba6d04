// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The configuration that is in force in this network namespace.

use std::collections::BTreeMap;
use std::path::Path;

use xcp_datapath::{host, lock_commands_if_free, router, Result};
use xcp_edged::{status, status_socket};

use super::types::{Config, Edge, Host, Router};

/// What is there now.
#[derive(Debug)]
pub struct Running {
    pub host: Option<host::Options>,
    /// By device. None: of another version of xcp, which this one cannot read.
    pub routers: BTreeMap<String, Option<router::Options>>,
    /// Of the daemon that runs here, if one does.
    pub edge: Option<Edge>,
}

/// Reads it from what is pinned.
pub fn read() -> Result<Running> {
    let _turn = lock_commands_if_free();
    let mut routers = BTreeMap::new();
    for device in router::devices()? {
        // one that is taken off meanwhile, or cannot be read
        let options = router::options(&device).unwrap_or_default();
        routers.insert(device, options);
    }
    Ok(Running {
        host: host::options()?,
        routers,
        edge: edge(),
    })
}

/// The settings of the daemon of XCP-i, from its socket.
fn edge() -> Option<Edge> {
    let status = status_socket::ask(Path::new(status_socket::PATH)).ok()?;
    (status.netns == status::netns()).then_some(Edge {
        key: status.key_file,
        upstream: status.upstream,
    })
}

impl Running {
    /// The same as a file would have it.
    pub fn config(&self) -> Config {
        let of = |(device, options): (&String, &Option<router::Options>)| {
            options.as_ref().map(|o| Router::of(device.clone(), o))
        };
        Config {
            host: self.host.as_ref().map(Host::of),
            router: self.routers.iter().filter_map(of).collect(),
            edge: self.edge.clone(),
        }
    }
}

/// A file's text with a line on what it is.
pub fn commented(text: &str) -> String {
    let head = "# The configuration in force, as `xcp apply` reads it: xcp.toml(5)\n";
    match text.is_empty() {
        true => format!("{head}# XCP is not on, and no device is a router\n"),
        false => format!("{head}\n{text}"),
    }
}
