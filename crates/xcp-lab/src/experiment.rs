// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Experiment files: topology, flows, variants and checks in TOML.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stage::device;
use xcp_datapath::Wire;

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
    /// The measured direction, `[from, to]`, of a link with a queue.
    pub bottleneck: [String; 2],
    /// Internet protocol version.
    #[serde(default = "ipv4")]
    pub ip: u8,
    /// Largest TCP send and receive buffers, and the receive buffer at start.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: u64,
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    #[serde(rename = "flow")]
    pub flows: Vec<Flow>,
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

/// Two directions alike. Either a path, with a delay and a rate (or neither),
/// or a bottleneck, with a rate and a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub between: [String; 2],
    /// As fast as the devices are if absent.
    pub rate_mbit: Option<f64>,
    /// One way.
    #[serde(default)]
    pub delay_ms: f64,
    /// Limit of the queue at the bottleneck, in packets.
    pub queue_packets: Option<u32>,
}

impl Link {
    /// Whether a path of its own kind must be emulated.
    pub fn needs_netem(&self) -> bool {
        self.queue_packets.is_none() && (self.rate_mbit.is_some() || self.delay_ms > 0.0)
    }
}

/// One TCP connection that sends all it can.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub name: String,
    pub from: String,
    pub to: String,
    #[serde(default)]
    pub start_s: f64,
    /// The end of the run if absent.
    pub stop_s: Option<f64>,
    /// Wire format, in place of the variant's.
    pub wire: Option<Wire>,
}

/// One way to run it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
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
    /// Only the first so many flows.
    pub flows: Option<usize>,
}

fn yes() -> bool {
    true
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
    /// A FIFO behind an XCP router.
    Xcp,
}

/// A requirement on one variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub variant: String,
    pub metric: Metric,
    pub min: Option<f64>,
    pub max: Option<f64>,
}

/// What a check can look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    LinkUtilisation,
    Jain,
    QueueMean,
    QueueP99,
    QueueMax,
    Drops,
    Retransmissions,
}

impl Metric {
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkUtilisation => "link_utilisation",
            Self::Jain => "jain",
            Self::QueueMean => "queue_packets.mean",
            Self::QueueP99 => "queue_packets.p99",
            Self::QueueMax => "queue_packets.max",
            Self::Drops => "drops",
            Self::Retransmissions => "retransmissions",
        }
    }
}

/// The experiments of the house.
macro_rules! house {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../experiments/", $name, ".toml"))),)*]
    };
}

const HOUSE: &[(&str, &str)] = house!["zh-fractions", "zh-validation", "mixed-formats"];

impl Experiment {
    /// The experiment with this name, or in this file.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = HOUSE.iter().find(|(n, _)| *n == name) {
            return Self::parse(name, text);
        }
        if !name.ends_with(".toml") {
            return Err(Error::new(
                name,
                "no such experiment",
                "list them with `xcp lab list`, or name a .toml file",
            ));
        }
        let text = fs::read_to_string(Path::new(name)).map_err(|e| Error::io(name, &e))?;
        Self::parse(name, &text)
    }

    /// All experiments of the house, in the papers' order.
    pub fn house() -> impl Iterator<Item = Result<Self>> {
        HOUSE.iter().map(|(name, text)| Self::parse(name, text))
    }

    /// Reads a file's text; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let experiment: Self = toml::from_str(text).map_err(|e| {
            let place = e.span().map_or(String::new(), |span| {
                let before = &text[..span.start.min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
                format!(":{line}:{column}")
            });
            Error::new(
                format!("{file}{place}"),
                e.message().to_owned(),
                "see the files in experiments/ for the form",
            )
        })?;
        experiment.validate(file)?;
        Ok(experiment)
    }

    fn validate(&self, file: &str) -> Result<()> {
        let wrong = |reason: String| {
            Err(Error::new(
                file,
                reason,
                "see the files in experiments/ for the form",
            ))
        };
        let nodes = self.nodes();
        if !(self.warmup_s >= 0.0 && self.duration_s > self.warmup_s && self.duration_s <= 3600.0) {
            return wrong("duration_s must be more than warmup_s, and at most 3600".into());
        }
        if self.ip != 4 && self.ip != 6 {
            return wrong(format!("ip must be 4 or 6, not {}", self.ip));
        }
        if self.links.len() > 250 {
            return wrong("at most 250 links".into());
        }
        if let Some(node) = nodes
            .iter()
            .find(|n| n.is_empty() || n.len() > 7 || !n.chars().all(|c| c.is_ascii_alphanumeric()))
        {
            return wrong(format!(
                "node {node:?}: 1 to 7 letters and digits make a name"
            ));
        }
        for link in &self.links {
            let [a, b] = &link.between;
            if link
                .rate_mbit
                .is_some_and(|r| !(0.008..=100_000.0).contains(&r))
            {
                return wrong(format!("link {a}-{b}: rate_mbit must be 0.008 to 100000"));
            }
            if link.rate_mbit.is_none() && link.queue_packets.is_some() {
                return wrong(format!("link {a}-{b}: a queue needs a rate_mbit"));
            }
            if !(0.0..=60_000.0).contains(&link.delay_ms) {
                return wrong(format!("link {a}-{b}: delay_ms must be 0 to 60000"));
            }
            if link.queue_packets.is_some() && link.delay_ms > 0.0 {
                return wrong(format!(
                    "link {a}-{b}: a link with a queue has no delay: put it on the next link"
                ));
            }
        }
        if self
            .bottleneck_link()
            .is_none_or(|l| l.queue_packets.is_none())
        {
            return wrong("bottleneck: no link with queue_packets between these nodes".into());
        }
        for flow in &self.flows {
            if !nodes.contains(&flow.from) || !nodes.contains(&flow.to) || flow.from == flow.to {
                return wrong(format!("flow {}: from and to must be two nodes", flow.name));
            }
            let stop = flow.stop_s.unwrap_or(self.duration_s);
            if !(flow.start_s >= 0.0 && flow.start_s < stop && stop <= self.duration_s) {
                return wrong(format!("flow {}: must start before it stops", flow.name));
            }
        }
        if self.flows.is_empty() || self.variants.is_empty() {
            return wrong("at least one flow and one variant".into());
        }
        let all = self.flows.len();
        for variant in &self.variants {
            if variant.flows.is_some_and(|n| n == 0 || n > all) {
                return wrong(format!(
                    "variant {}: flows must be 1 to {all}, as many as there are",
                    variant.name
                ));
            }
            if variant.socket == Socket::Protocol && variant.control != "xcp" {
                return wrong(format!(
                    "variant {}: the protocol number is XCP's: control must be \"xcp\"",
                    variant.name
                ));
            }
        }
        for check in &self.checks {
            if !self.variants.iter().any(|v| v.name == check.variant) {
                return wrong(format!("check: no variant {:?}", check.variant));
            }
            if check.min.is_some() == check.max.is_some() {
                return wrong("check: give either min or max".into());
            }
        }
        Ok(())
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
        kept.checks.retain(|c| names.contains(&c.variant));
        Ok(kept)
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

    /// The same with the flows of a variant only.
    #[must_use]
    pub fn of_variant(&self, variant: &Variant) -> Self {
        let mut kept = self.clone();
        kept.flows.truncate(variant.flows.unwrap_or(usize::MAX));
        kept
    }

    /// The bottleneck's rate, bits per second.
    pub fn capacity_bps(&self) -> f64 {
        self.bottleneck_link()
            .and_then(|l| l.rate_mbit)
            .map_or(0.0, |r| r * 1e6)
    }
}
