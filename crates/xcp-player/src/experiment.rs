// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Experiment files: topology, flows, variants and checks in TOML.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::link::device;
pub use crate::link::Link;
use xcp_datapath::{LawTerm, SenderFeature, Wire};

use crate::{Error, Result};

/// One experiment, as its file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub name: String,
    /// Paper and figure.
    pub source: String,
    pub about: String,
    pub duration_s: f64,
    /// Excluded from all means.
    pub warmup_s: f64,
    /// Parts of the run, `[from, to]`, with figures of their own.
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
    /// The receive buffer at start, from which the kernel lets it grow; the
    /// largest if absent.
    pub receive_start_bytes: Option<u64>,
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    #[serde(default, rename = "cloud", skip_serializing_if = "Vec::is_empty")]
    pub clouds: Vec<Cloud>,
    #[serde(default, rename = "flow")]
    pub flows: Vec<Flow>,
    pub transfers: Option<Transfers>,
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

/// The papers' hosts had 16 MB.
fn buffer_bytes() -> u64 {
    16_000_000
}

/// What lies between two nodes and is not XCP. In variants with `edges` the second
/// one asks the first one for what it carries (XCP-i).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    pub between: [String; 2],
}

/// One TCP connection that sends all it can, or UDP at a constant rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub name: String,
    /// So many of them: `NAME-1`, `NAME-2`, ...; in a parsed experiment each
    /// stands for itself.
    #[serde(default, skip_serializing)]
    pub count: Option<usize>,
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub start_s: f64,
    /// The end of the run if absent.
    pub stop_s: Option<f64>,
    /// It sends nothing from one second to another: `[from, to]`, in order.
    #[serde(default)]
    pub pauses: Vec<[f64; 2]>,
    /// It sends bursts in place of all it can.
    pub burst: Option<Burst>,
    /// The send buffer that its application sets, in place of one that grows.
    pub send_buffer_bytes: Option<u32>,
    /// The receive buffer that its application sets.
    pub receive_buffer_bytes: Option<u32>,
    /// When its application raises the send buffer to the experiment's largest.
    pub send_buffer_raised_s: Option<f64>,
    /// Wire format, in place of the variant's.
    pub wire: Option<Wire>,
    /// Congestion control, in place of the variant's.
    pub control: Option<String>,
    /// Sends UDP at this rate, headers not counted, whatever happens to it.
    pub udp_mbit: Option<f64>,
    /// Of each UDP packet.
    #[serde(default = "payload_bytes")]
    pub payload_bytes: usize,
}

/// All flows of an experiment.
pub(crate) const FLOWS_MAX: usize = 1000;

fn payload_bytes() -> usize {
    1400
}

/// Files over connections of their own, which come at random times.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    pub from: String,
    pub to: String,
    pub count: usize,
    /// The part of the bottleneck that they take, all of them together.
    pub load: f64,
    /// The least and the most; their logarithms are spread evenly.
    pub bytes: [u64; 2],
}

impl Transfers {
    pub fn mean_bytes(&self) -> f64 {
        let [least, most] = self.bytes.map(|b| b as f64);
        (most - least) / (most / least).ln()
    }
}

/// What an application sends at once, and then it waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    pub bytes: u64,
    /// From the moment when TCP has taken the last byte.
    pub pause_s: f64,
}

/// What changes in mid-run: one thing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at_s: f64,
    /// The link that changes, in both directions.
    pub between: Option<[String; 2]>,
    /// One way.
    pub delay_ms: Option<f64>,
    /// Of the devices at both ends.
    pub mtu_bytes: Option<u32>,
    /// `[from, to, by]`: what node `from` sends to `to` goes by this neighbour.
    pub route: Option<[String; 3]>,
    /// XCP-i's daemon at this node is killed.
    pub kill_edge: Option<String>,
    /// It starts again.
    pub start_edge: Option<String>,
}

/// A modem that tells the bottleneck's router ten times a second what the link
/// carries (`xcp router feed`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modem {
    /// It says what was so long ago.
    #[serde(default)]
    pub late_ms: f64,
    /// What it says, by what is.
    #[serde(default = "one")]
    pub factor: f64,
}

/// One way to run it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    /// Runs in every test, for it takes seconds and shows one mechanism.
    #[serde(default, skip_serializing)]
    pub quick: bool,
    /// The kernels that it is shown on; the lab's default one if there are none.
    #[serde(default, skip_serializing)]
    pub kernels: Vec<String>,
    /// Internet protocol version, in place of the experiment's.
    pub ip: Option<u8>,
    /// Congestion control of all flows.
    pub control: String,
    #[serde(default)]
    pub queue: Queue,
    #[serde(default)]
    pub socket: Socket,
    /// Wire format of XCP flows that name none.
    #[serde(default)]
    pub wire: Wire,
    /// False for feedback in whole packets, in the format `option-2005`:
    /// Zhang & Henderson's counterexample.
    #[serde(default = "yes")]
    pub fractions: bool,
    /// The link's modem is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modem: Option<Modem>,
    /// What senders do not do: a failure is shown.
    #[serde(default)]
    pub without: Vec<SenderFeature>,
    /// Hosts offer and take ECN, and a queue `red` or `xcp_red` marks.
    #[serde(default)]
    pub ecn: bool,
    /// Hosts select what they acknowledge (SACK).
    #[serde(default = "yes")]
    pub sack: bool,
    /// Percent of the packets that are lost by chance after they have left one
    /// node towards another, `from-to`.
    #[serde(default)]
    pub lose: BTreeMap<String, f64>,
    /// Only some of the flows.
    pub flows: Option<Chosen>,
    /// The edges of clouds measure them (XCP-i).
    #[serde(default, skip_serializing_if = "is_false")]
    pub edges: bool,
    /// The part by which what edges have found free is made wrong, at most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimate_error: f64,
    /// What edges do not do: what it is for is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges_without: Vec<EdgePart>,
    /// Links with `router = false` have an XCP router too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_routers: bool,
    /// The capacity that the router is configured with; the link's highest
    /// rate if absent.
    pub capacity_mbit: Option<Capacity>,
    /// The router measures what the link carries.
    #[serde(default = "yes")]
    pub measure: bool,
    /// False: the router hands out by the law as it was published.
    #[serde(default = "yes")]
    pub anticipate: bool,
    /// What is left out of the router's law: what it is for is shown.
    #[serde(default)]
    pub law_without: Vec<LawTerm>,
    /// RTTs in headers count at most this at the router, seconds.
    #[serde(default = "max_rtt_s")]
    pub max_rtt_s: f64,
    /// What the router adds to each packet.
    #[serde(default)]
    pub overhead_bytes: i32,
    /// The router counts no packet as less.
    #[serde(default)]
    pub mpu_bytes: u32,
    /// XCP's part of the bottleneck, percent, where it has a queue of its own;
    /// in proportion to the flows if absent.
    pub xcp_share: Option<u8>,
}

/// Which flows of the experiment a variant has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of flows, or a list of their names")]
pub enum Chosen {
    /// The first so many.
    First(usize),
    Named(Vec<String>),
}

/// A router's options.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "Mb/s, or \"auto\"")]
pub enum Capacity {
    Mbit(f64),
    Unknown(Unknown),
}

/// That measuring has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    Auto,
}

/// A second.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for it
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for it
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// What edges can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgePart {
    /// To lower the deltas of others while they are suspended.
    HoldBack,
    /// To send fewer trains where they lose packets.
    RareTrains,
}

/// How flows open their sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// As TCP, then they choose the congestion control.
    #[default]
    Tcp,
    /// By XCP's protocol number, which is all the choice they make.
    Protocol,
}

/// What stands at the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    #[default]
    Fifo,
    Red,
    FqCodel,
    /// Behind an XCP router, what `xcp router add` gives it on this kernel.
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

/// A requirement on one variant, or on each.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// All of them if absent.
    pub variant: Option<String>,
    /// Only on kernels of these series, such as `6.18`; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    pub metric: Metric,
    /// The flows that a metric of a kind is about: a congestion control, or
    /// `udp`.
    pub kind: Option<String>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Why it is known to be missed: a miss does not fail the run, but the run
    /// fails once the check holds.
    pub known_gap: Option<String>,
}

/// What a check can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    LinkUtilisation,
    Jain,
    /// The least of all periods.
    PeriodUtilisation,
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
    /// The queue that XCP's packets wait in.
    XcpQueueMean,
    XcpQueueP99,
    XcpQueueMax,
    /// The least goodput of a TCP flow by its max-min fair share, and the most.
    FairShareLeast,
    FairShareMost,
    /// Until the last newcomer had its fair share, in round trips.
    ConvergenceRtts,
    /// Of one kind of flows: its part of all goodput.
    Share,
    /// Of one kind of flows: the mean goodput of one of them, by that of all
    /// TCP flows.
    FlowShare,
    /// The largest congestion window of any flow, in packets.
    CwndMax,
    /// Flows that XCP controls at the end.
    XcpFlows,
    /// How many transfers were done, and how long one took on average.
    TransfersDone,
    TransferMeanS,
    Drops,
    Retransmissions,
    /// From the end of an XCP-i daemon until the virtual routers of its clouds
    /// are suspended; the longest, in seconds.
    AsideS,
}

impl Metric {
    /// Whether it is about one kind of flows.
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
            Self::FairShareLeast => "fair_share.least",
            Self::FairShareMost => "fair_share.most",
            Self::ConvergenceRtts => "convergence_rtts",
            Self::Share => "share",
            Self::FlowShare => "flow_share",
            Self::XcpFlows => "xcp_flows",
            Self::TransfersDone => "transfers.done",
            Self::TransferMeanS => "transfers.mean_s",
            Self::CwndMax => "cwnd_max_packets",
            Self::Drops => "drops",
            Self::Retransmissions => "retransmissions",
            Self::AsideS => "aside_s",
        }
    }
}

impl Experiment {
    /// Each flow that stands for several becomes so many, here and where it is
    /// named.
    pub(crate) fn count_out(&mut self) {
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

    /// All nodes, in the order of their names.
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

    /// The same with only the variants named, and their checks.
    pub fn keep(&self, names: &[String]) -> Result<Self> {
        for name in names {
            if !self.variants.iter().any(|v| v.name == *name) {
                let known: Vec<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
                return Err(Error::new(
                    format!("variant {name}"),
                    format!("{} has none of this name", self.name),
                    format!("it has {}", known.join(", ")),
                ));
            }
        }
        let mut kept = self.clone();
        kept.variants.retain(|v| names.contains(&v.name));
        kept.checks
            .retain(|c| names.iter().any(|name| c.is_of(name)));
        Ok(kept)
    }

    /// The same without what cannot change a run: the texts for people, and
    /// the checks, which the figures are compared with afterwards.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.about.clear();
        self.source.clear();
        self.checks.clear();
        self
    }

    /// Where packets can be captured: `r-d` is what node r sends towards d, and
    /// the name of the device that it leaves by.
    fn points(&self) -> impl Iterator<Item = String> + '_ {
        let both = |l: &Link| {
            let [a, b] = &l.between;
            [device(a, b), device(b, a)]
        };
        self.links.iter().flat_map(both)
    }

    /// These points, each once.
    pub fn choose_points(&self, names: &[String]) -> Result<Vec<String>> {
        let mut chosen = Vec::new();
        for name in names {
            if !self.points().any(|p| p == *name) {
                let known: Vec<String> = self.points().collect();
                return Err(Error::new(
                    format!("point {name}"),
                    format!("{} has none of this name", self.name),
                    format!("it has {}", known.join(", ")),
                ));
            }
            if !chosen.contains(name) {
                chosen.push(name.clone());
            }
        }
        Ok(chosen)
    }

    /// The same with a wire format for all XCP flows.
    #[must_use]
    pub fn speaking(mut self, wire: Wire) -> Self {
        for variant in &mut self.variants {
            variant.wire = wire;
        }
        for flow in &mut self.flows {
            flow.wire = None;
        }
        self
    }

    /// The same over this version of the Internet protocol, all variants.
    #[must_use]
    pub fn over(mut self, ip: u8) -> Self {
        self.ip = ip;
        for variant in &mut self.variants {
            variant.ip = None;
        }
        self
    }

    /// The same with the flows of a variant only, and over its version of the
    /// Internet protocol.
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

    /// The nodes of a direction of a link, `from-to`.
    pub fn direction(&self, name: &str) -> Option<(&str, &str)> {
        let ways = self.links.iter().flat_map(|l| {
            let [a, b] = &l.between;
            [(a, b), (b, a)]
        });
        ways.map(|(from, to)| (from.as_str(), to.as_str()))
            .find(|(from, to)| device(from, to) == name)
    }

    /// The highest rate of the bottleneck, bits per second.
    pub fn capacity_bps(&self) -> f64 {
        let link = self.bottleneck_link();
        link.and_then(Link::highest_bps).unwrap_or(0.0)
    }
}

impl Check {
    /// Whether it is a requirement on this variant.
    pub fn is_of(&self, variant: &str) -> bool {
        self.variant.as_ref().is_none_or(|name| name == variant)
    }

    /// Whether it is one on a kernel of this release.
    pub fn is_on(&self, release: &str) -> bool {
        let of = |series: &String| {
            let rest = release.strip_prefix(series.as_str());
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.kernels.is_empty() || self.kernels.iter().any(of)
    }
}

impl Flow {
    /// Whether it has nothing to send at a moment.
    pub fn pauses_at(&self, time_s: f64) -> bool {
        self.pauses.iter().any(|[a, b]| (*a..*b).contains(&time_s))
    }

    /// What controls it: a congestion control, or `udp`.
    pub fn kind<'a>(&'a self, variant: &'a Variant) -> &'a str {
        if self.udp_mbit.is_some() {
            return UDP;
        }
        self.control.as_deref().unwrap_or(&variant.control)
    }
}

/// The kind of flows that nothing controls.
pub const UDP: &str = "udp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_has_the_flows_that_it_names() {
        let text = include_str!("../../../experiments/sharing.toml");
        let sharing = Experiment::parse("sharing", text).expect("is well");
        let variant = sharing.variants.iter().find(|v| v.name == "one-nine");
        let variant = variant.expect("is there");
        let kept = sharing.of_variant(variant);
        let kinds: Vec<&str> = kept.flows.iter().map(|f| f.kind(variant)).collect();
        assert_eq!(kinds[..2], ["xcp", "cubic"]);
        assert_eq!(kinds.len(), 10);
    }

    #[test]
    fn a_flow_that_counts_is_so_many() {
        let text = include_str!("../../../experiments/two-way.toml");
        let two_way = Experiment::parse("two-way", text).expect("is well");
        let variant = two_way.variants.iter().find(|v| v.name == "xcp-4");
        let kept = two_way.of_variant(variant.expect("is there"));
        let names: Vec<&str> = kept.flows.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names[..2], ["there-4-1", "there-4-2"]);
        assert_eq!(names[7..], ["back-4-4"]);
    }
}
