// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The running configuration of this network namespace.

use std::collections::BTreeMap;
use std::path::Path;

use xcp_cli::capacity::{Capacity, Rate};
use xcp_datapath::gateway::is_our_router;
use xcp_datapath::{host, lock_commands_if_free, router, Result};
use xcp_edged::status;

use super::types::{Config, Edge, Gateway, Host, Router};

/// The running configuration.
#[derive(Debug)]
pub struct Running {
    pub host: Option<host::Options>,
    /// Routers by device. None: the router belongs to another version of xcp, whose
    /// options this one cannot read.
    pub routers: BTreeMap<String, Option<router::Options>>,
    /// Settings of the edge daemon, if it runs.
    pub edge: Option<Edge>,
    /// Settings of the gateway, if it runs.
    pub gateway: Option<Gateway>,
}

/// Reads the running configuration from the pinned BPF objects.
pub fn read() -> Result<Running> {
    let _lock = lock_commands_if_free();
    let mut routers = BTreeMap::new();
    // the gateway adds and removes its own router
    let devices = router::devices()?.into_iter();
    for device in devices.filter(|device| !is_our_router(device)) {
        // the router may have been removed meanwhile, or may be unreadable
        let options = router::options(&device).unwrap_or_default();
        routers.insert(device, options);
    }
    Ok(Running {
        host: host::options()?,
        routers,
        edge: edge(),
        gateway: gateway(),
    })
}

/// Reads the settings of the edge daemon from its socket.
fn edge() -> Option<Edge> {
    let status = status::ask(Path::new(status::SOCKET)).ok()?;
    (status.netns == status::netns()).then_some(Edge {
        key: status.key_file,
        upstream: status.upstream,
    })
}

/// Reads the settings of the gateway from its socket.
pub fn gateway() -> Option<Gateway> {
    let status = xcp_gateway::status::here()?;
    Some(Gateway {
        capacity: status.capacity_bytes_per_s.map(|capacity| match capacity {
            0 => Capacity::Auto,
            bytes_per_s => Capacity::Rate(Rate { bytes_per_s }),
        }),
        lan: status.lan,
        wan: status.wan,
        include: status.filters.include,
        exclude: status.filters.exclude,
        ports: status.filters.ports,
        exclude_ports: status.filters.exclude_ports,
        max_connections: status.connections_configured,
        max_per_source: status.per_source_max,
    })
}

impl Running {
    /// Converts it to the format of the configuration file. Fails if a router's options
    /// cannot be read: to apply a file without this router would remove it.
    pub fn config(&self) -> Result<Config> {
        let mut routers = Vec::new();
        for (device, options) in &self.routers {
            let options = match options {
                Some(options) => Some(*options),
                None => router::options(device)?,
            };
            routers.extend(options.map(|o| Router::of(device.clone(), &o)));
        }
        Ok(Config {
            host: self.host.as_ref().map(Host::of),
            router: routers,
            edge: self.edge.clone(),
            gateway: self.gateway.clone(),
        })
    }
}

/// Adds a comment to the text of a configuration.
pub fn commented(text: &str) -> String {
    let head = "# The running configuration, for `xcp apply`: see xcp.toml(5)\n";
    match text.is_empty() {
        true => format!("{head}# XCP is off, and no device is a router\n"),
        false => format!("{head}\n{text}"),
    }
}
