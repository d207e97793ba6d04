// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP-i daemons of a run: one in each node at the edge of a cloud, the
//! same as `xcp edged run`. They start some time before the run begins, as on
//! real networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xcp_datapath::cloud::State;
use xcp_edge::message::Key;
use xcp_edged::daemon::{self, LoopControl, Options, TestOverrides};

use crate::experiment::{Cloud, EdgePart, Event, Experiment, Variant};
use crate::topology::{address, enter, Topology};
use crate::{interrupt, Error, Result};

/// How long the daemons run before the traffic starts: they send the first
/// probe after two round trips, and know the queueing delay after 10 s of
/// probes.
const DAEMON_LEAD_TIME: Duration = Duration::from_secs(14);
/// The interval between checks for an interrupt.
const STEP: Duration = Duration::from_millis(200);

/// How often the state of a virtual router is read until it is suspended.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait until a virtual router is suspended.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Commands to a daemon's thread: run, stop, or crash.
const ON: u8 = 0;
const END: u8 = 1;
const FALL: u8 = 2;

/// One daemon, running or stopped.
struct Daemon {
    upstream: Vec<IpAddr>,
    next: Arc<AtomicU8>,
    thread: Option<JoinHandle<xcp_edged::Result<()>>>,
}

/// The daemons of all edges, by node.
pub struct Edges {
    trial: TestOverrides,
    daemons: BTreeMap<String, Daemon>,
    /// The threads of daemons that were killed or stopped.
    fallen: Vec<JoinHandle<xcp_edged::Result<()>>>,
    /// Threads that wait until the virtual routers of killed daemons are suspended.
    watchers: Vec<JoinHandle<Result<Duration>>>,
}

impl Edges {
    /// Starts the daemons of a variant, and waits until they have measured
    /// their clouds.
    pub fn start(experiment: &Experiment, variant: &Variant, stage: &Topology) -> Result<Self> {
        let mut edges = Self {
            trial: TestOverrides {
                error: variant.estimate_error,
                no_delta_limit: variant.edges_without.contains(&EdgePart::DeltaLimit),
                frequent_trains: variant.edges_without.contains(&EdgePart::RareTrains),
            },
            daemons: BTreeMap::new(),
            fallen: Vec::new(),
            watchers: Vec::new(),
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
            let daemon = Daemon {
                upstream,
                next: Arc::default(),
                thread: None,
            };
            edges.daemons.insert(node.to_owned(), daemon);
            edges.run(node, stage)?;
        }
        for _ in 0..DAEMON_LEAD_TIME.as_millis() / STEP.as_millis() {
            thread::sleep(STEP);
            if interrupt::requested() {
                return Err(interrupt::error());
            }
        }
        Ok(edges)
    }

    /// Kills or starts a daemon, as an event requires.
    pub fn change(
        &mut self,
        experiment: &Experiment,
        stage: &Topology,
        event: &Event,
    ) -> Result<()> {
        if let Some(node) = event.kill_edge.as_deref() {
            let Some(daemon) = self.daemons.get_mut(node) else {
                return Ok(()); // a variant without edges
            };
            daemon.next.store(FALL, Ordering::Relaxed);
            self.fallen.extend(daemon.thread.take());
            let of_node = |c: &&Cloud| c.between.iter().any(|n| n == node);
            for cloud in experiment.clouds.iter().filter(of_node) {
                let space = stage.space(&cloud.between[1])?;
                let watch = move || enter(&space).and_then(|()| wait_until_suspended());
                self.watchers.push(thread::spawn(watch));
            }
        }
        match event.start_edge.as_deref() {
            Some(node) if self.daemons.contains_key(node) => self.run(node, stage),
            _ => Ok(()),
        }
    }

    fn run(&mut self, node: &str, stage: &Topology) -> Result<()> {
        let space = stage.space(node)?;
        let Some(daemon) = self.daemons.get_mut(node) else {
            return Ok(());
        };
        let options = Options {
            key: Key::new(&[1; 32]).map_err(|e| Error::new("key", e.to_string(), "report this"))?,
            key_file: PathBuf::new(),
            upstream: daemon.upstream.clone(),
            socket: PathBuf::from(format!("/run/xcp-edged-{}", stage.space_name(node))),
            trial: self.trial,
        };
        let next = Arc::new(AtomicU8::new(ON));
        daemon.next = next.clone();
        daemon.thread = Some(thread::spawn(move || {
            enter(&space)?;
            daemon::run(&options, || (), &|| match next.load(Ordering::Relaxed) {
                ON => LoopControl::On,
                FALL => LoopControl::Crash,
                _ => LoopControl::End,
            })
        }));
        Ok(())
    }

    /// Stops all daemons; fails if one of them had failed. Returns the longest
    /// time from the kill of a daemon until its virtual routers were suspended.
    pub fn stop(mut self) -> Result<Option<Duration>> {
        self.end()?;
        let asides = self.watchers.drain(..).map(|watcher| {
            let panicked = |_| Error::new("virtual router", "could not be watched", "report this");
            watcher.join().map_err(panicked)?
        });
        Ok(asides.collect::<Result<Vec<_>>>()?.into_iter().max())
    }

    fn end(&mut self) -> Result<()> {
        for daemon in self.daemons.values_mut() {
            daemon.next.store(END, Ordering::Relaxed);
            self.fallen.extend(daemon.thread.take());
        }
        let mut outcome = Ok(());
        for thread in self.fallen.drain(..) {
            if let Ok(Err(e)) = thread.join() {
                outcome = Err(e);
            }
        }
        outcome
    }
}

/// Waits until no virtual router in the calling thread's namespace grants
/// deltas, and returns how long that took.
fn wait_until_suspended() -> Result<Duration> {
    let begin = Instant::now();
    let grants = || -> Result<bool> {
        let all = xcp_datapath::cloud::list()?;
        Ok(all.iter().any(|router| router.state == State::Granting))
    };
    if !grants()? {
        return Err(Error::new(
            "virtual router",
            "did not grant when its daemon was killed",
            "kill it later, when packets have crossed the cloud",
        ));
    }
    while grants()? && begin.elapsed() < SUSPEND_TIMEOUT {
        thread::sleep(LOOK);
    }
    Ok(begin.elapsed())
}

impl Drop for Edges {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
