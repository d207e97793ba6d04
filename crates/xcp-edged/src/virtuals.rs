// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The virtual routers of this edge's clouds: they come when a cloud is known, are
//! told of each probe, and go with it.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::net::if_::if_indextoname;
use xcp_datapath::cloud::{self, Reading, Virtual};
use xcp_datapath::router;
use xcp_edge::edge::{Cloud, Edge};
use xcp_edge::estimate::{Source, Wrong};

use crate::notify;
use crate::trial::Trial;

/// How often the routers of this system are told their address again: one that is
/// added does not know it.
const EDGE_NS: u64 = 5_000_000_000;
/// And how soon again where a command was at work.
const BUSY_NS: u64 = 1_000_000_000;
/// When a failure is tried again: what is loaded is not to take the time of probes.
const RETRY_NS: u64 = 10_000_000_000;
/// After how long without a probe a virtual router goes. It has stood aside since
/// soon after the last one.
const INACTIVE_NS: u64 = 60_000_000_000;

struct There {
    router: Virtual,
    /// The probes that it has been told of.
    probes: u64,
    told_ns: u64,
}

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// The virtual router of an upstream edge.
    Of(IpAddr),
    /// Routers are to write this edge's address.
    Name,
    /// Virtual routers that were left are to go.
    Clear,
}

/// How long an error lasts that is made on purpose.
const WRONG_NS: u64 = 1_000_000_000;

/// What the data path has of clouds.
pub(crate) struct Virtuals {
    there: BTreeMap<IpAddr, There>,
    edge_ns: u64,
    /// What could not be done: why, and when it is tried again.
    failures: BTreeMap<Work, (String, u64)>,
    /// What the service manager was told.
    said: Option<String>,
    trial: Trial,
}

impl Virtuals {
    pub(crate) fn new(trial: Trial) -> Self {
        Self {
            there: BTreeMap::new(),
            edge_ns: 0,
            failures: BTreeMap::new(),
            said: None,
            trial,
        }
    }

    /// Why the data path cannot be told, and what to do about it.
    pub(crate) fn failure(&self) -> Option<String> {
        let all: BTreeSet<&str> = self
            .failures
            .values()
            .map(|(why, _)| why.as_str())
            .collect();
        let all: Vec<&str> = all.into_iter().collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }

    /// Tells the service manager, when that changes.
    fn say(&mut self) {
        let failure = self.failure();
        if failure != self.said {
            let state = failure.as_deref().map_or("at work".into(), |why| {
                format!("not in the data path: {}", why.replace('\n', ". "))
            });
            notify::tell(&format!("STATUS={state}"));
            self.said = failure;
        }
    }

    /// Has this system's routers write the address that askers know them by.
    pub(crate) fn name_routers(&mut self, edge: &Edge, now_ns: u64) {
        if now_ns < self.edge_ns {
            return;
        }
        if let Some(address) = edge.known_as().first() {
            let named = cloud::name_routers(*address);
            let busy = matches!(named, Ok(false));
            self.edge_ns = now_ns + if busy { BUSY_NS } else { EDGE_NS };
            self.note(Work::Name, named, now_ns);
        }
    }

    /// An upstream edge has sent something, which came in by this device.
    pub(crate) fn heard(&mut self, edge: &Edge, upstream: IpAddr, device: u32, now_ns: u64) {
        let Some(cloud) = edge.cloud(upstream) else {
            return;
        };
        let probes = self.there.get(&upstream).map_or(0, |there| there.probes);
        let failure = self.failures.get(&Work::Of(upstream));
        let waits = failure.is_some_and(|(_, again_ns)| now_ns < *again_ns);
        if cloud.probes() == probes || waits {
            return;
        }
        let told = self.tell(cloud, upstream, device, now_ns);
        self.note(Work::Of(upstream), told, now_ns);
    }

    fn tell(
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
        let moved = |there: &There| there.router.ifindex != device;
        if self.there.get(&upstream).is_some_and(moved) {
            self.remove(upstream)?;
        }
        let there = match self.there.entry(upstream) {
            Entry::Occupied(there) => there.into_mut(),
            // it would have nothing to begin with
            Entry::Vacant(_) if free_Bps.is_none() => return Ok(()),
            Entry::Vacant(place) => {
                let name = if_indextoname(device).unwrap_or_default();
                let Some(router) = Virtual::add(&name.to_string_lossy(), upstream)? else {
                    return Ok(()); // the next probe tries again
                };
                place.insert(There {
                    router,
                    probes: 0,
                    told_ns: now_ns,
                })
            }
        };
        there.probes = cloud.probes();
        there.told_ns = now_ns;
        there.router.tell(Reading {
            now_ns,
            wait_ns,
            free_bytes_per_s: free_Bps.unwrap_or(0.0) as u64,
            error_bytes_per_s: cloud.estimate().error_Bps() as u64,
            free_at_ns: now_ns - cloud.estimate().age_ns(now_ns).unwrap_or(now_ns),
            routers,
            base_probe: cloud.base_probe().unwrap_or_default(),
            not_held_back: self.trial.not_held_back,
        })
    }

    /// Takes those away that have not been told anything for long, and those of
    /// clouds that are not asked for any more.
    pub(crate) fn tidy(&mut self, edge: &Edge, now_ns: u64) {
        let old = |(upstream, there): (&IpAddr, &There)| {
            let inactive = now_ns.saturating_sub(there.told_ns) > INACTIVE_NS;
            (inactive || edge.cloud(*upstream).is_none()).then_some(*upstream)
        };
        for upstream in self.there.iter().filter_map(old).collect::<Vec<_>>() {
            let removed = self.remove(upstream);
            self.note(Work::Of(upstream), removed, now_ns);
        }
        let asked = |work: &Work| match work {
            Work::Of(upstream) => edge.cloud(*upstream).is_some(),
            Work::Name | Work::Clear => true,
        };
        self.failures.retain(|work, _| asked(work));
        self.say();
        let cleared = cloud::clear_old(now_ns.saturating_sub(INACTIVE_NS));
        self.note(Work::Clear, cleared, now_ns);
    }

    /// Takes all away, and the routers' address: of a daemon before that was killed
    /// too.
    pub(crate) fn stop(&mut self) {
        self.there.clear();
        self.note(Work::Name, router::set_edge(None), 0);
        self.note(Work::Clear, cloud::clear(), 0);
    }

    fn remove(&mut self, upstream: IpAddr) -> xcp_datapath::Result<()> {
        match self.there.remove(&upstream) {
            Some(there) => there.router.del(),
            None => Ok(()),
        }
    }

    fn note<T>(&mut self, work: Work, done: xcp_datapath::Result<T>, now_ns: u64) {
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
