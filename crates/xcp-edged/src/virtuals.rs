// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The virtual routers of this edge's clouds: added when the first estimate of a cloud is
//! known, updated after each probe, and removed with the cloud.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::net::if_::if_indextoname;
use xcp_datapath::cloud::{self, Reading, Virtual};
use xcp_datapath::router;
use xcp_edge::edge::{Cloud, Edge};
use xcp_edge::estimate::{Source, Wrong};

use crate::test_overrides::TestOverrides;
use xcp_daemon::notify;

/// How often this edge's address is written to the routers of this system: a newly added
/// router does not have it.
const EDGE_NS: u64 = 5_000_000_000;
/// The same if another xcp command was running.
const BUSY_NS: u64 = 1_000_000_000;
/// How long after a failure the operation is repeated: loading programs must not delay
/// probes.
const RETRY_NS: u64 = 10_000_000_000;
/// A virtual router is removed after this time without a probe. It suspends itself soon
/// after the last probe.
const INACTIVE_NS: u64 = 60_000_000_000;

struct RouterEntry {
    router: Virtual,
    /// The number of received probes at the last update.
    probes: u64,
    last_probe_ns: u64,
}

/// An operation that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    /// Update the virtual router of an upstream edge.
    Of(IpAddr),
    /// Write this edge's address to the routers of this system.
    Name,
    /// Remove virtual routers of an earlier daemon.
    Clear,
}

/// How long each deliberate error of an estimate lasts.
const WRONG_NS: u64 = 1_000_000_000;

/// The virtual routers in the data path.
pub(crate) struct Virtuals {
    entries: BTreeMap<IpAddr, RouterEntry>,
    edge_ns: u64,
    /// Failed operations: the reason, and the time of the next attempt.
    failures: BTreeMap<Operation, (String, u64)>,
    /// The last failure reported to the service manager.
    said: Option<String>,
    trial: TestOverrides,
}

impl Virtuals {
    pub(crate) fn new(trial: TestOverrides) -> Self {
        Self {
            entries: BTreeMap::new(),
            edge_ns: 0,
            failures: BTreeMap::new(),
            said: None,
            trial,
        }
    }

    /// Why the data path could not be updated, and the remedies.
    pub(crate) fn failure(&self) -> Option<String> {
        let all: BTreeSet<&str> = self
            .failures
            .values()
            .map(|(why, _)| why.as_str())
            .collect();
        let all: Vec<&str> = all.into_iter().collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// Reports failures to the service manager when they change.
    fn say(&mut self) {
        let failure = self.failure();
        if failure != self.said {
            let state = failure.as_deref().map_or("running".into(), |why| {
                format!("not in the data path: {}", why.replace('\n', ". "))
            });
            notify::send_state(&format!("STATUS={state}"));
            self.said = failure;
        }
    }

    /// Makes this system's routers write the address that askers use for this edge.
    pub(crate) fn set_edge_address(&mut self, edge: &Edge, now_ns: u64) {
        if now_ns < self.edge_ns {
            return;
        }
        if let Some(address) = edge.local_addresses().first() {
            let named = cloud::set_edge_address(*address);
            let busy = matches!(named, Ok(false));
            self.edge_ns = now_ns + if busy { BUSY_NS } else { EDGE_NS };
            self.note(Operation::Name, named, now_ns);
        }
    }

    /// Updates the virtual router after a message of an upstream edge, received on this device.
    pub(crate) fn heard(&mut self, edge: &Edge, upstream: IpAddr, device: u32, now_ns: u64) {
        let Some(cloud) = edge.cloud(upstream) else {
            return;
        };
        let probes = self.entries.get(&upstream).map_or(0, |entry| entry.probes);
        let failure = self.failures.get(&Operation::Of(upstream));
        let waits = failure.is_some_and(|(_, again_ns)| now_ns < *again_ns);
        if cloud.probes() == probes || waits {
            return;
        }
        let told = self.update_router(cloud, upstream, device, now_ns);
        self.note(Operation::Of(upstream), told, now_ns);
    }

    fn update_router(
        &mut self,
        cloud: &Cloud,
        upstream: IpAddr,
        device: u32,
        now_ns: u64,
    ) -> xcp_datapath::Result<()> {
        let wrong = Wrong {
            source: cloud.estimate(),
            error: self.trial.error,
            interval_ns: WRONG_NS,
            seed: device.into(),
        };
        let free_Bps = wrong.estimate_Bps(now_ns);
        let (Some(wait_ns), Some(routers)) = (cloud.queue_ns(), cloud.routers()) else {
            return Ok(());
        };
        if routers == 0 {
            return self.remove(upstream);
        }
        let moved = |entry: &RouterEntry| entry.router.ifindex != device;
        if self.entries.get(&upstream).is_some_and(moved) {
            self.remove(upstream)?;
        }
        let entry = match self.entries.entry(upstream) {
            Entry::Occupied(entry) => entry.into_mut(),
            // a virtual router needs an estimate to start with
            Entry::Vacant(_) if free_Bps.is_none() => return Ok(()),
            Entry::Vacant(place) => {
                let name = if_indextoname(device).unwrap_or_default();
                let Some(router) = Virtual::add(&name.to_string_lossy(), upstream)? else {
                    return Ok(()); // try again after the next probe
                };
                place.insert(RouterEntry {
                    router,
                    probes: 0,
                    last_probe_ns: now_ns,
                })
            }
        };
        entry.probes = cloud.probes();
        entry.last_probe_ns = now_ns;
        entry.router.update(Reading {
            now_ns,
            wait_ns,
            free_bytes_per_s: free_Bps.unwrap_or(0.0) as u64,
            error_bytes_per_s: cloud.estimate().error_Bps() as u64,
            free_at_ns: now_ns - cloud.estimate().age_ns(now_ns).unwrap_or(now_ns),
            routers,
            base_probe: cloud.base_probe().unwrap_or_default(),
            no_delta_limit: self.trial.no_delta_limit,
        })
    }

    /// Removes virtual routers without a recent probe, and those of upstream edges that are
    /// not asked any more.
    pub(crate) fn tidy(&mut self, edge: &Edge, now_ns: u64) {
        let old = |(upstream, entry): (&IpAddr, &RouterEntry)| {
            let inactive = now_ns.saturating_sub(entry.last_probe_ns) > INACTIVE_NS;
            (inactive || edge.cloud(*upstream).is_none()).then_some(*upstream)
        };
        for upstream in self.entries.iter().filter_map(old).collect::<Vec<_>>() {
            let removed = self.remove(upstream);
            self.note(Operation::Of(upstream), removed, now_ns);
        }
        let asked = |work: &Operation| match work {
            Operation::Of(upstream) => edge.cloud(*upstream).is_some(),
            Operation::Name | Operation::Clear => true,
        };
        self.failures.retain(|work, _| asked(work));
        self.say();
        let cleared = cloud::clear_old(now_ns.saturating_sub(INACTIVE_NS));
        self.note(Operation::Clear, cleared, now_ns);
    }

    /// Removes all virtual routers and the address in this system's routers, including those
    /// of an earlier daemon that was killed.
    pub(crate) fn stop(&mut self) {
        self.entries.clear();
        self.note(Operation::Name, router::set_edge(None), 0);
        self.note(Operation::Clear, cloud::clear(), 0);
    }

    fn remove(&mut self, upstream: IpAddr) -> xcp_datapath::Result<()> {
        match self.entries.remove(&upstream) {
            Some(entry) => entry.router.del(),
            None => Ok(()),
        }
    }

    fn note<T>(&mut self, work: Operation, done: xcp_datapath::Result<T>, now_ns: u64) {
        match done {
            Ok(_) if self.failures.remove(&work).is_none() => return,
            Ok(_) => {}
            Err(e) => {
                let why = format!("{e}; {}", e.remedy);
                self.failures.insert(work, (why, now_ns + RETRY_NS));
            }
        }
        self.say();
    }
}
