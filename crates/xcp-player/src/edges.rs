// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! XCP-i's daemons of a play: one in each node that is the edge of a cloud, the
//! same that `xcp edged run` runs. They are at work for a while before the play
//! begins, as they are on real networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xcp_edge::message::Key;
use xcp_edged::daemon::{self, Options};

use crate::experiment::{Experiment, Variant};
use crate::stage::{address, enter, Stage};
use crate::{interrupt, Error, Result};

/// The queueing delay is known after 10 s of probes, the first one after two round
/// trips.
const BEFORE: Duration = Duration::from_secs(14);
/// How long an interrupt may wait.
const STEP: Duration = Duration::from_millis(200);

/// The running daemons.
pub struct Edges {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<xcp_edged::Result<()>>>,
}

impl Edges {
    /// Starts those that a variant has, and waits until they know their clouds.
    pub fn start(experiment: &Experiment, variant: &Variant, stage: &Stage) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut edges = Self {
            stop,
            threads: Vec::new(),
        };
        if !variant.edges {
            return Ok(edges);
        }
        let mut upstream: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for cloud in &experiment.clouds {
            let [from, to] = &cloud.between;
            let from_ip = address(experiment, from);
            let from_ip = from_ip
                .parse()
                .map_err(|_| Error::new(from.clone(), "has no address", "report this"))?;
            upstream.entry(from).or_default();
            upstream.entry(to).or_default().push(from_ip);
        }
        for (node, upstream) in upstream {
            edges.run(node, upstream, variant.estimate_error, stage)?;
        }
        for _ in 0..BEFORE.as_millis() / STEP.as_millis() {
            thread::sleep(STEP);
            if interrupt::requested() {
                return Err(interrupt::error());
            }
        }
        Ok(edges)
    }

    fn run(&mut self, node: &str, upstream: Vec<IpAddr>, error: f64, stage: &Stage) -> Result<()> {
        let space = stage.space(node)?;
        let options = Options {
            key: Key::new(&[1; 32]).map_err(|e| Error::new("key", e.to_string(), "report this"))?,
            upstream,
            socket: PathBuf::from(format!("/run/xcp-edged-{}", stage.space_name(node))),
            error,
        };
        let stop = self.stop.clone();
        self.threads.push(thread::spawn(move || {
            enter(&space).map_err(|e| xcp_edged::Error {
                thing: e.thing,
                reason: e.reason,
                remedy: e.remedy,
            })?;
            daemon::run(&options, || (), &|| stop.load(Ordering::Relaxed))
        }));
        Ok(())
    }

    /// Ends them; the failure of one that had ended by itself.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            if let Ok(Err(e)) = thread.join() {
                outcome = Err(Error::new(e.thing, e.reason, e.remedy));
            }
        }
        outcome
    }
}

impl Drop for Edges {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
