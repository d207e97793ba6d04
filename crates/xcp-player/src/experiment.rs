// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Experiment files: topology, flows, variants and checks in TOML.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::link::device;
pub use crate::link::Link;
use xcp_datapath::{LawTerm, SenderFeature, Wire};

use crate::{Error, Result};

/// One experiment, as its file describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub name: String,
    /// The paper and figure that it reproduces.
    pub source: String,
    pub about: String,
    pub duration_s: f64,
    /// The first seconds of the run, which all means exclude.
    pub warmup_s: f64,
    /// Parts of the run, `[from, to]` in seconds, with their own metrics.
    #[serde(default)]
    pub periods: Vec<[f64; 2]>,
    /// The measured direction, `[from, to]`, of a link with a queue.
    pub bottleneck: [String; 2],
    /// Internet protocol version.
    #[serde(default = "ipv4")]
    pub ip: u8,
    /// Largest TCP send and receive buffers.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    /// The initial receive buffer, which the kernel may grow; `buffer_bytes` if
    /// absent.
    pub receive_start_bytes: Option<u64>,
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    #[serde(default, rename = "cloud", skip_serializing_if = "Vec::is_empty")]
    pub clouds: Vec<Cloud>,
    #[serde(default, rename = "gateway", skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Gateway>,
    #[serde(default, rename = "flow")]
    pub flows: Vec<Flow>,
    pub transfers: Option<Transfers>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<Pages>,
    #[serde(default, rename = "event")]
    pub events: Vec<Event>,
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
}

fn ipv4() -> u8 {
    4
}

/// 16 MB, as on the papers' hosts.
fn buffer_bytes() -> u64 {
    16_000_000
}

/// The part of a path between two nodes that has no XCP routers. In variants
/// with `edges` the second node asks the first one how much this part carries
/// (XCP-i).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    pub between: [String; 2],
}

/// A node that splits TCP connections between two of its neighbours (`xcp gateway`)
/// in variants with `gateway`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    pub node: String,
    /// The neighbour on the LAN side.
    pub lan: String,
    /// The neighbour on the WAN side.
    pub wan: String,
}

/// One TCP connection that sends as fast as it can, or UDP at a constant rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub name: String,
    /// The number of such flows, named `NAME-1`, `NAME-2`, ...; a parsed
    /// experiment lists each of them.
    #[serde(default, skip_serializing)]
    pub count: Option<usize>,
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub start_s: f64,
    /// When it stops; the end of the run if absent.
    pub stop_s: Option<f64>,
    /// Pauses in its sending, `[from, to]` in seconds, in order.
    #[serde(default)]
    pub pauses: Vec<[f64; 2]>,
    /// It sends bursts instead of as fast as it can.
    pub burst: Option<Burst>,
    /// The fixed send buffer that its application sets, instead of one that
    /// grows.
    pub send_buffer_bytes: Option<u32>,
    /// The receive buffer that its application sets.
    pub receive_buffer_bytes: Option<u32>,
    /// When its application raises the send buffer to the experiment's largest.
    pub send_buffer_raised_s: Option<f64>,
    /// Wire format, instead of the variant's.
    pub wire: Option<Wire>,
    /// Congestion control, instead of the variant's.
    pub control: Option<String>,
    /// Sends UDP at this rate, headers not counted, regardless of losses.
    pub udp_mbit: Option<f64>,
    /// The payload of each UDP packet.
    #[serde(default = "payload_bytes")]
    pub payload_bytes: usize,
}

/// The largest number of flows in an experiment.
pub(crate) const FLOWS_MAX: usize = 1000;

fn payload_bytes() -> usize {
    1400
}

/// File transfers that start at random times, each over its own connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    pub from: String,
    pub to: String,
    pub count: usize,
    /// The fraction of the bottleneck's capacity that all transfers together
    /// need.
    pub load: f64,
    /// The smallest and the largest size; the logarithms of sizes are uniformly
    /// distributed.
    pub bytes: [u64; 2],
}

impl Transfers {
    pub fn mean_bytes(&self) -> f64 {
        let [least, most] = self.bytes.map(|b| b as f64);
        (most - least) / (most / least).ln()
    }
}

/// Users that load web pages, one after another. The first object of a page is
/// requested alone, then all others at once; each has its own connection, and its
/// client opens it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    pub client: String,
    pub server: String,
    pub users: usize,
    /// The objects of each page.
    pub objects: usize,
    /// The smallest and the largest object; the logarithms of sizes are uniformly
    /// distributed.
    pub bytes: [u64; 2],
}

/// What an application sends at once, followed by a pause.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    pub bytes: u64,
    /// The pause after TCP has taken the last byte.
    pub pause_s: f64,
}

/// One change during the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at_s: f64,
    /// The link that changes, in both directions.
    pub between: Option<[String; 2]>,
    /// The new delay, one way.
    pub delay_ms: Option<f64>,
    /// The new MTU of the devices at both ends.
    pub mtu_bytes: Option<u32>,
    /// `[from, to, by]`: node `from` sends packets for `to` via its neighbour
    /// `by`.
    pub route: Option<[String; 3]>,
    /// Kills the XCP-i daemon at this node.
    pub kill_edge: Option<String>,
    /// Starts the XCP-i daemon at this node again.
    pub start_edge: Option<String>,
}

/// A modem that reports the link's capacity to the bottleneck's router ten
/// times a second (`xcp router feed`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modem {
    /// The age of the reported capacity.
    #[serde(default)]
    pub late_ms: f64,
    /// The reported capacity divided by the real one.
    #[serde(default = "one")]
    pub factor: f64,
}

/// One way to run the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    /// It runs in every test, because it takes seconds and shows one mechanism.
    #[serde(default, skip_serializing)]
    pub quick: bool,
    /// The kernels that it runs on; the lab's default kernel if empty.
    #[serde(default, skip_serializing)]
    pub kernels: Vec<String>,
    /// Internet protocol version, instead of the experiment's.
    pub ip: Option<u8>,
    /// Congestion control of all flows.
    pub control: String,
    #[serde(default)]
    pub queue: Queue,
    #[serde(default)]
    pub socket: Socket,
    /// Wire format of XCP flows that do not set one.
    #[serde(default)]
    pub wire: Wire,
    /// False for feedback in whole packets, in the format `option-2005`:
    /// Zhang & Henderson's counterexample.
    #[serde(default = "yes")]
    pub fractions: bool,
    /// The modem that reports the link's capacity, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modem: Option<Modem>,
    /// Features that senders do not use, to show what fails without them.
    #[serde(default)]
    pub without: Vec<SenderFeature>,
    /// Hosts negotiate ECN, and a `red` or `xcp_red` queue marks packets.
    #[serde(default)]
    pub ecn: bool,
    /// Hosts use selective acknowledgements (SACK).
    #[serde(default = "yes")]
    pub sack: bool,
    /// Random packet loss in percent, by the direction `from-to` between
    /// neighbouring nodes.
    #[serde(default)]
    pub lose: BTreeMap<String, f64>,
    /// The flows that run; all if absent.
    pub flows: Option<Chosen>,
    /// XCP-i daemons at the edges of clouds measure them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub edges: bool,
    /// The gateways run, with this congestion control on the WAN side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The largest relative error that is added to the estimates of edges.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimate_error: f64,
    /// Features that edges do not use, to show what they are for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges_without: Vec<EdgePart>,
    /// Links with `router = false` have an XCP router too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_routers: bool,
    /// The capacity that the router is configured with; the link's highest
    /// rate if absent.
    pub capacity_mbit: Option<Capacity>,
    /// The router measures the link's capacity.
    #[serde(default = "yes")]
    pub measure: bool,
    /// False: the router uses the control law as it was published.
    #[serde(default = "yes")]
    pub anticipate: bool,
    /// Terms that the router's control law does not use, to show what they are
    /// for.
    #[serde(default)]
    pub law_without: Vec<LawTerm>,
    /// The router's control law has the level law.
    #[serde(default, skip_serializing_if = "is_false")]
    pub law_level: bool,
    /// The router limits RTTs in headers to this, seconds.
    #[serde(default = "max_rtt_s")]
    pub max_rtt_s: f64,
    /// Bytes that the router adds to the length of each packet.
    #[serde(default)]
    pub overhead_bytes: i32,
    /// The smallest length that the router counts for a packet.
    #[serde(default)]
    pub mpu_bytes: u32,
    /// XCP's share of the bottleneck, percent, where XCP has a separate queue;
    /// in proportion to the flows if absent.
    pub xcp_share: Option<u8>,
}

/// Which flows of the experiment a variant has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of flows, or a list of their names")]
pub enum Chosen {
    /// The first N flows.
    First(usize),
    Named(Vec<String>),
}

/// The capacity that a router is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "Mb/s, or \"auto\"")]
pub enum Capacity {
    Mbit(f64),
    Unknown(Unknown),
}

/// A capacity that the router must measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    Auto,
}

/// The router's default, 1 s.
fn max_rtt_s() -> f64 {
    xcp_datapath::router::Options::default()
        .max_rtt
        .as_secs_f64()
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires this signature
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// Features that edges can turn off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgePart {
    /// Suspended virtual routers lower the deltas granted by others.
    DeltaLimit,
    /// Edges send fewer trains where they lose packets.
    RareTrains,
}

/// How flows open their sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// As TCP, with the congestion control set by a socket option.
    #[default]
    Tcp,
    /// With XCP's protocol number, which selects the congestion control.
    Protocol,
}

/// The queue at the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    #[default]
    Fifo,
    Red,
    FqCodel,
    /// An XCP router with the queue that `xcp router add` gives it on this
    /// kernel.
    Xcp,
    /// A FIFO behind an XCP router, for all traffic.
    XcpFifo,
    /// RED behind an XCP router, for all traffic.
    XcpRed,
}

impl Variant {
    /// Whether a link's queue is behind an XCP router.
    pub fn routes(&self, link: &Link) -> bool {
        let router = link.router || self.all_routers;
        link.queue_packets.is_some() && router && self.queue.has_router()
    }
}

impl Queue {
    /// Whether it is behind an XCP router.
    pub fn has_router(self) -> bool {
        matches!(self, Self::Xcp | Self::XcpFifo | Self::XcpRed)
    }
}

/// A requirement on one variant, or on all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The variant; all of them if absent.
    pub variant: Option<String>,
    /// The kernel series that it applies to, such as `6.18`; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    pub metric: Metric,
    /// The kind of flows that the metric is about: a congestion control, or
    /// `udp`.
    pub kind: Option<String>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Why the requirement is known to be missed: a miss does not fail the run,
    /// but the run fails once the requirement is met.
    pub known_gap: Option<String>,
}

/// The metrics that a check can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    LinkUtilisation,
    Jain,
    /// The lowest of all periods.
    PeriodUtilisation,
    /// The lowest of all periods.
    PeriodJain,
    QueueMean,
    QueueP99,
    QueueMax,
    #[serde(rename = "queue_delay_mean_ms")]
    QueueDelayMean,
    #[serde(rename = "queue_delay_p95_ms")]
    QueueDelayP95,
    #[serde(rename = "queue_delay_max_ms")]
    QueueDelayMax,
    /// The queue that holds XCP packets.
    XcpQueueMean,
    XcpQueueP99,
    XcpQueueMax,
    /// The lowest goodput of a TCP flow, divided by its max-min fair rate.
    FairShareMin,
    /// The highest goodput of a TCP flow, divided by its max-min fair rate.
    FairShareMax,
    /// Round trips until the last newcomer had its fair share.
    ConvergenceRtts,
    /// The share of one kind of flows in all goodput.
    Share,
    /// The mean goodput of the flows of one kind, divided by that of all TCP
    /// flows.
    FlowShare,
    /// The largest congestion window of any flow, in packets.
    CwndMax,
    /// The number of flows that use XCP at the end.
    XcpFlows,
    /// The number of completed transfers.
    TransfersDone,
    /// The mean duration of a completed transfer.
    TransferMeanS,
    /// The mean time to load a page.
    PageMeanS,
    #[serde(rename = "page_p95_s")]
    PageP95S,
    Drops,
    Retransmissions,
    /// The longest time, in seconds, from the end of an XCP-i daemon until the
    /// virtual routers of its clouds are suspended.
    SuspensionS,
}

impl Metric {
    /// Whether the metric is about one kind of flows.
    pub fn of_kind(self) -> bool {
        matches!(self, Self::Share | Self::FlowShare)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::LinkUtilisation => "link_utilisation",
            Self::Jain => "jain",
            Self::PeriodUtilisation => "periods.link_utilisation",
            Self::PeriodJain => "periods.jain",
            Self::QueueMean => "queue_packets.mean",
            Self::QueueP99 => "queue_packets.p99",
            Self::QueueMax => "queue_packets.max",
            Self::QueueDelayMean => "queue_delay_ms.mean",
            Self::QueueDelayP95 => "queue_delay_ms.p95",
            Self::QueueDelayMax => "queue_delay_ms.max",
            Self::XcpQueueMean => "xcp_queue_packets.mean",
            Self::XcpQueueP99 => "xcp_queue_packets.p99",
            Self::XcpQueueMax => "xcp_queue_packets.max",
            Self::FairShareMin => "fair_share.min",
            Self::FairShareMax => "fair_share.max",
            Self::ConvergenceRtts => "convergence_rtts",
            Self::Share => "share",
            Self::FlowShare => "flow_share",
            Self::XcpFlows => "xcp_flows",
            Self::TransfersDone => "transfers.done",
            Self::TransferMeanS => "transfers.mean_s",
            Self::PageMeanS => "pages.mean_s",
            Self::PageP95S => "pages.p95_s",
            Self::CwndMax => "cwnd_max_packets",
            Self::Drops => "drops",
            Self::Retransmissions => "retransmissions",
            Self::SuspensionS => "suspension_s",
        }
    }
}

impl Experiment {
    /// Replaces each flow that has a `count` by that many flows, also where
    /// variants name it.
    pub(crate) fn expand_counts(&mut self) {
        let counted = |name: &str, flows: &[Flow]| -> Vec<String> {
            let count = flows.iter().find(|f| f.name == name).and_then(|f| f.count);
            match count {
                None | Some(0) => vec![name.to_owned()],
                Some(count) => (1..=count.min(FLOWS_MAX + 1))
                    .map(|i| format!("{name}-{i}"))
                    .collect(),
            }
        };
        for variant in &mut self.variants {
            if let Some(Chosen::Named(names)) = &mut variant.flows {
                *names = names.iter().flat_map(|n| counted(n, &self.flows)).collect();
            }
        }
        let each = |flow: &Flow| -> Vec<Flow> {
            let names = counted(&flow.name, &self.flows).into_iter();
            let named = |name| Flow {
                name,
                count: flow.count.filter(|count| *count == 0),
                ..flow.clone()
            };
            names.map(named).collect()
        };
        self.flows = self.flows.iter().flat_map(each).collect();
    }

    /// All nodes, sorted by name.
    pub fn nodes(&self) -> BTreeSet<String> {
        self.links.iter().flat_map(|l| l.between.clone()).collect()
    }

    /// The link of the bottleneck.
    pub fn bottleneck_link(&self) -> Option<&Link> {
        let [from, to] = &self.bottleneck;
        self.links
            .iter()
            .find(|l| l.between.contains(from) && l.between.contains(to))
    }

    /// A copy with only the named variants, and their checks.
    pub fn keep(&self, names: &[String]) -> Result<Self> {
        for name in names {
            if !self.variants.iter().any(|v| v.name == *name) {
                let known: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
                return Err(Error::new(
                    format!("variant {name}"),
                    format!("{} has no such variant", self.name),
                    format!("use one of {}", known.join(", ")),
                ));
            }
        }
        let mut kept = self.clone();
        kept.variants.retain(|v| names.contains(&v.name));
        kept.checks
            .retain(|c| names.iter().any(|name| c.is_of(name)));
        Ok(kept)
    }

    /// A copy without the parts that cannot change a run: the descriptions, and
    /// the checks, which are evaluated afterwards.
    #[must_use]
    pub fn without_descriptions(mut self) -> Self {
        self.about.clear();
        self.source.clear();
        self.checks.clear();
        self
    }

    /// The points where packets can be captured: `r-d` is the traffic that node
    /// r sends to d, and the name of the device that sends it.
    fn points(&self) -> impl Iterator<Item = String> + '_ {
        let both = |l: &Link| {
            let [a, b] = &l.between;
            [device(a, b), device(b, a)]
        };
        self.links.iter().flat_map(both)
    }

    /// Returns these points without duplicates; fails if one does not exist.
    pub fn choose_points(&self, names: &[String]) -> Result<Vec<String>> {
        let mut chosen = Vec::new();
        for name in names {
            if !self.points().any(|p| p == *name) {
                let known: Vec<String> = self.points().collect();
                return Err(Error::new(
                    format!("point {name}"),
                    format!("{} has no such point", self.name),
                    format!("use one of {}", known.join(", ")),
                ));
            }
            if !chosen.contains(name) {
                chosen.push(name.clone());
            }
        }
        Ok(chosen)
    }

    /// A copy with one wire format for all XCP flows.
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Self {
        for variant in &mut self.variants {
            variant.wire = wire;
        }
        for flow in &mut self.flows {
            flow.wire = None;
        }
        self
    }

    /// A copy in which all variants use this version of the Internet protocol.
    #[must_use]
    pub fn over(mut self, ip: u8) -> Self {
        self.ip = ip;
        for variant in &mut self.variants {
            variant.ip = None;
        }
        self
    }

    /// A copy with only the flows of a variant, and its version of the Internet
    /// protocol.
    #[must_use]
    pub fn of_variant(&self, variant: &Variant) -> Self {
        let mut kept = self.clone();
        kept.ip = variant.ip.unwrap_or(self.ip);
        match &variant.flows {
            None => {}
            Some(Chosen::First(count)) => kept.flows.truncate(*count),
            Some(Chosen::Named(names)) => kept.flows.retain(|f| names.contains(&f.name)),
        }
        kept
    }

    /// Whether a variant has flows of a kind.
    pub fn has_kind(&self, variant: &Variant, kind: &str) -> bool {
        self.flows.iter().any(|f| f.kind(variant) == kind)
    }

    /// How many checks are marked as known gaps.
    pub fn known_gaps(&self) -> usize {
        let marked = |c: &&Check| c.known_gap.is_some();
        self.checks.iter().filter(marked).count()
    }

    /// The nodes of a link's direction, from its name `from-to`.
    pub fn direction(&self, name: &str) -> Option<(&str, &str)> {
        let shortest_paths = self.links.iter().flat_map(|l| {
            let [a, b] = &l.between;
            [(a, b), (b, a)]
        });
        shortest_paths
            .map(|(from, to)| (from.as_str(), to.as_str()))
            .find(|(from, to)| device(from, to) == name)
    }

    /// The highest rate of the bottleneck, bits per second.
    pub fn capacity_bps(&self) -> f64 {
        let link = self.bottleneck_link();
        link.and_then(Link::highest_bps).unwrap_or(0.0)
    }
}

impl Check {
    /// Whether it applies to this variant.
    pub fn is_of(&self, variant: &str) -> bool {
        self.variant.as_ref().is_none_or(|name| name == variant)
    }

    /// Whether it applies to a kernel of this release.
    pub fn is_on(&self, release: &str) -> bool {
        let of = |series: &String| {
            let rest = release.strip_prefix(series.as_str());
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.kernels.is_empty() || self.kernels.iter().any(of)
    }
}

impl Flow {
    /// Whether it pauses at this time.
    pub fn pauses_at(&self, time_s: f64) -> bool {
        self.pauses.iter().any(|[a, b]| (*a..*b).contains(&time_s))
    }

    /// The kind of the flow: its congestion control, or `udp`.
    pub fn kind<'a>(&'a self, variant: &'a Variant) -> &'a str {
        if self.udp_mbit.is_some() {
            return UDP;
        }
        self.control.as_deref().unwrap_or(&variant.control)
    }
}

/// The kind of UDP flows, which have no congestion control.
pub const UDP: &str = "udp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_keeps_only_the_flows_that_it_names() {
        let text = include_str!("../../../experiments/sharing.toml");
        let sharing = Experiment::parse("sharing", text).expect("valid");
        let variant = sharing.variants.iter().find(|v| v.name == "one-nine");
        let variant = variant.expect("exists");
        let kept = sharing.of_variant(variant);
        let kinds: Vec<&str> = kept.flows.iter().map(|f| f.kind(variant)).collect();
        assert_eq!(kinds[..2], ["xcp", "cubic"]);
        assert_eq!(kinds.len(), 10);
    }

    #[test]
    fn flow_with_a_count_becomes_that_many_flows() {
        let text = include_str!("../../../experiments/two-way.toml");
        let two_way = Experiment::parse("two-way", text).expect("valid");
        let variant = two_way.variants.iter().find(|v| v.name == "xcp-4");
        let kept = two_way.of_variant(variant.expect("exists"));
        let names: Vec<&str> = kept.flows.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names[..2], ["forward-4-1", "forward-4-2"]);
        assert_eq!(names[7..], ["reverse-4-4"]);
    }
}
