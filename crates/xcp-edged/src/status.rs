// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The daemon's status, for display and for JSON output.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xcp_daemon::status_socket;
use xcp_datapath::Result;
use xcp_edge::conversation::{Counters, Ignored};
use xcp_edge::edge::{Cloud, Edge, State};
use xcp_edge::estimate::Source;

/// The default path of the status socket.
pub const SOCKET: &str = "/run/xcp/edged.sock";

/// Requests the status of the daemon at this path.
///
/// # Errors
/// There is no daemon, or it does not answer.
pub fn ask(socket: &Path) -> Result<Status> {
    status_socket::ask(socket, "xcp edged run --key FILE")
}

/// The daemon's status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The clouds between this router and the upstream edges that it asks.
    pub clouds: Vec<CloudStatus>,
    /// Upstream edges without a route.
    pub unreachable: Vec<IpAddr>,
    /// Downstream edges that receive probes from this one.
    pub askers: Vec<SocketAddr>,
    /// The local addresses that they send requests to. This system's routers write the
    /// first one into last_xcp_router.
    pub local_addresses: Vec<IpAddr>,
    /// The number of ignored messages from askers.
    pub ignored: IgnoredCounts,
    /// The number of answers from addresses that were not asked.
    pub unrequested: u64,
    /// The number of messages that the kernel did not accept.
    pub unsent: u64,
    /// Why virtual routers or router addresses in the data path could not be updated, if
    /// there are such errors.
    pub failure: Option<String>,
    /// The file with the shared key.
    #[serde(default)]
    pub key_file: PathBuf,
    /// The configured upstream edges.
    #[serde(default)]
    pub upstream: Vec<IpAddr>,
    /// The inode number of the daemon's network namespace.
    #[serde(default)]
    pub netns: u64,
}

/// The inode number of this thread's network namespace; 0 if it cannot be read.
pub fn netns() -> u64 {
    xcp_datapath::netns_inode().unwrap_or(0)
}

/// The status of a cloud.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloudStatus {
    /// The upstream edge's address.
    pub upstream: IpAddr,
    /// The source address of requests to it.
    pub local: IpAddr,
    /// The state: asking, probed or broken.
    pub state: String,
    /// The number of routers in the cloud.
    pub routers: Option<u8>,
    /// The available bandwidth, bit/s.
    pub free_bps: Option<f64>,
    /// The estimate's standard error, bit/s.
    pub error_bps: Option<f64>,
    /// The age of the last train, ms.
    pub age_ms: Option<f64>,
    /// The queueing delay of the last probe, ms.
    pub queue_delay_ms: Option<f64>,
    /// The number of trains that the estimate used.
    pub trains: u64,
    /// The number of received probes.
    pub probes: u64,
    /// The number of ignored messages from the upstream edge.
    pub ignored: IgnoredCounts,
}

/// How many messages were ignored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredCounts {
    /// Invalid messages, or of another version.
    pub malformed: u64,
    /// Messages that were not made with the shared key.
    pub bad_tag: u64,
    /// Messages that were received before.
    pub replayed: u64,
    /// Messages that are too old.
    pub stale: u64,
    /// Messages of another stream or path, or unexpected in the current state.
    pub unexpected: u64,
    /// Messages over the rate limit.
    pub rate: u64,
}

impl IgnoredCounts {
    /// The sum of all reasons.
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
            local_addresses: edge.local_addresses().into_iter().collect(),
            ignored: edge.ignored().into(),
            unrequested: edge.unrequested(),
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
            queue_delay_ms: cloud.queue_ns().map(ms),
            trains: cloud.trains(),
            probes: cloud.probes(),
            ignored: cloud.ignored().into(),
        }
    }
}
