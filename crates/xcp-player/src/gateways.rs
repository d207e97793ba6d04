// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The gateways of a run: the proxy of `xcp gateway run`, in each node that the
//! experiment names.

use std::fs::File;

use xcp_datapath::gateway::Filters;
use xcp_gateway::daemon::{Daemon, Limits, Options};

use crate::experiment::{Experiment, Gateway, Variant};
use crate::link::device;
use crate::topology::{enter, Topology};
use crate::{Error, Result};

/// More than an experiment has flows and transfers.
const CONNECTIONS_MAX: u32 = 20_000;

/// The gateways; they end when this is dropped.
pub struct Gateways {
    home: File,
    running: Vec<(File, Daemon)>,
}

impl Gateways {
    /// Starts the gateways of a variant, if it has any.
    pub fn start(experiment: &Experiment, variant: &Variant, stage: &Topology) -> Result<Self> {
        let home = "/proc/thread-self/ns/net";
        let mut gateways = Self {
            home: File::open(home).map_err(|e| Error::io(home, &e))?,
            running: Vec::new(),
        };
        let Some(control) = &variant.gateway else {
            return Ok(gateways);
        };
        for gateway in &experiment.gateways {
            let start = || Daemon::start(options(gateway), control);
            let daemon = stage.within(&gateway.node, start)??;
            let space = stage.space(&gateway.node)?;
            gateways.running.push((space, daemon));
        }
        Ok(gateways)
    }
}

fn options(gateway: &Gateway) -> Options {
    Options {
        lan: vec![device(&gateway.node, &gateway.lan)],
        wan: device(&gateway.node, &gateway.wan),
        router: None,
        filters: Filters::default(),
        limits: Limits {
            connections: CONNECTIONS_MAX,
            possible: CONNECTIONS_MAX,
            per_source: CONNECTIONS_MAX,
        },
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for (space, daemon) in self.running.drain(..) {
            // it undoes what it has set in its own namespace
            if enter(&space).is_ok() {
                drop(daemon);
                let _ = enter(&self.home);
            }
        }
    }
}
