// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the daemon knows, for people and programs.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use xcp_edge::conversation::{Counters, Ignored};
use xcp_edge::edge::{Cloud, Edge, State};
use xcp_edge::estimate::Source;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The clouds between this router and the upstream edges that it asks.
    pub clouds: Vec<CloudStatus>,
    /// Upstream edges that no route leads to.
    pub unreachable: Vec<IpAddr>,
    /// Downstream edges that get probes from here.
    pub askers: Vec<SocketAddr>,
    /// The addresses that they ask. This system's routers write the first one into
    /// last_xcp_router.
    pub known_as: Vec<IpAddr>,
    /// Messages of askers that were ignored.
    pub ignored: IgnoredCounts,
    /// Answers that came from addresses that were not asked.
    pub unasked: u64,
    /// Messages that the system did not take.
    pub unsent: u64,
    /// Why the data path could not be told of a cloud, the last time that it could
    /// not.
    pub failure: Option<String>,
    /// The file with its key.
    #[serde(default)]
    pub key_file: PathBuf,
    /// The upstream edges that it was configured to ask.
    #[serde(default)]
    pub upstream: Vec<IpAddr>,
    /// The number of its network namespace.
    #[serde(default)]
    pub netns: u64,
}

/// The number of this thread's network namespace; 0 if it cannot be read.
pub fn netns() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino())
}

/// A cloud.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloudStatus {
    /// The upstream edge's address.
    pub upstream: IpAddr,
    /// The address that it is asked from.
    pub local: IpAddr,
    /// asking, probed or broken.
    pub state: String,
    /// Routers in the cloud.
    pub routers: Option<u8>,
    /// What is free, bit/s.
    pub free_bps: Option<f64>,
    /// The estimate's standard error, bit/s.
    pub error_bps: Option<f64>,
    /// Since the last train, ms.
    pub age_ms: Option<f64>,
    /// The queueing delay that the last probe has met, ms.
    pub queue_ms: Option<f64>,
    /// Trains that the estimate has learnt from.
    pub trains: u64,
    /// Probes that have arrived.
    pub probes: u64,
    /// Its messages that were ignored.
    pub ignored: IgnoredCounts,
}

/// How many messages were ignored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredCounts {
    /// No message, or of another version.
    pub malformed: u64,
    /// Not made with the shared key.
    pub bad_tag: u64,
    /// Received before.
    pub replayed: u64,
    /// Too old.
    pub stale: u64,
    /// Of another stream or path.
    pub unexpected: u64,
    /// Too many.
    pub rate: u64,
}

impl IgnoredCounts {
    /// All together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.malformed + self.bad_tag + self.replayed + self.stale + self.unexpected + self.rate
    }
}

impl From<Counters> for IgnoredCounts {
    fn from(counters: Counters) -> Self {
        Self {
            malformed: counters.of(Ignored::Malformed),
            bad_tag: counters.of(Ignored::BadTag),
            replayed: counters.of(Ignored::Replayed),
            stale: counters.of(Ignored::Stale),
            unexpected: counters.of(Ignored::Unexpected),
            rate: counters.of(Ignored::Rate),
        }
    }
}

impl Status {
    pub(crate) fn of(edge: &Edge, now_ns: u64) -> Self {
        let clouds = edge.clouds();
        Self {
            clouds: clouds
                .map(|(ip, cloud)| CloudStatus::of(ip, cloud, now_ns))
                .collect(),
            unreachable: Vec::new(),
            askers: edge.askers(now_ns).collect(),
            known_as: edge.known_as().into_iter().collect(),
            ignored: edge.ignored().into(),
            unasked: edge.unasked(),
            unsent: 0,
            failure: None,
            key_file: PathBuf::new(),
            upstream: Vec::new(),
            netns: 0,
        }
    }
}

impl CloudStatus {
    fn of(upstream: IpAddr, cloud: &Cloud, now_ns: u64) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        let estimate = cloud.estimate();
        let free_Bps = estimate.estimate_Bps(now_ns);
        Self {
            upstream,
            local: cloud.local(),
            state: match cloud.state(now_ns) {
                State::Asking => "asking",
                State::Probed => "probed",
                State::Broken => "broken",
            }
            .to_owned(),
            routers: cloud.routers(),
            free_bps: free_Bps.map(|rate| rate * 8.0),
            error_bps: free_Bps.map(|_| estimate.error_Bps() * 8.0),
            age_ms: estimate.age_ns(now_ns).map(ms),
            queue_ms: cloud.queue_ns().map(ms),
            trains: cloud.trains(),
            probes: cloud.probes(),
            ignored: cloud.ignored().into(),
        }
    }
}
