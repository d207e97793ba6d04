// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a run of an experiment yields: the object that `xcp lab run --json`
//! prints, and the time series that go to CSV and to the report.

use serde::{Deserialize, Serialize};
use xcp_datapath::Wire;

/// One run of one experiment, all its variants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub experiment: String,
    pub seed: u64,
    /// Wire format and Internet protocol version, where the run named them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<u8>,
    /// Release of the kernel that ran it.
    pub kernel: String,
    pub variants: Vec<VariantResult>,
    /// Every check of every variant holds.
    pub ok: bool,
    /// The packets captured, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureFile>,
}

/// A pcap file beside the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaptureFile {
    pub file: String,
    pub packets: u64,
    /// Packets that could not be kept.
    pub missing: u64,
}

/// One way of running the experiment, such as XCP, or CUBIC over a FIFO.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VariantResult {
    pub name: String,
    /// Bytes the bottleneck sent after the warm-up, headers counted, by its capacity.
    pub link_utilisation: f64,
    pub queue_packets: QueueStats,
    /// Packets dropped at the bottleneck in the whole run.
    pub drops: u64,
    /// Segments retransmitted by all flows in the whole run.
    pub retransmissions: u64,
    /// Jain's index of the flows' goodputs.
    pub jain: f64,
    pub flows: Vec<FlowResult>,
    pub checks: Vec<CheckResult>,
}

/// More flows than that are told by their range.
pub const FLOWS_IN_FULL: usize = 8;

/// What [`VariantResult::cells`] are.
pub const HEAD: [&str; 7] = [
    "",
    "utilisation",
    "goodput per flow (Mb/s)",
    "Jain",
    "queue mean / p99 / max (packets)",
    "drops",
    "retransmissions",
];

impl RunResult {
    /// What was run: experiment, seed, how, and on which kernel.
    #[must_use]
    pub fn title(&self) -> String {
        let wire = self.wire.map_or(String::new(), |w| format!(", {w}"));
        let ip = self.ip.map_or(String::new(), |v| format!(", IPv{v}"));
        format!(
            "{}, seed {}{wire}{ip}, Linux {}",
            self.experiment, self.seed, self.kernel
        )
    }
}

impl VariantResult {
    /// Its row in a table for people.
    pub fn cells(&self) -> [String; 7] {
        let queue = &self.queue_packets;
        [
            self.name.clone(),
            format!("{:.3}", self.link_utilisation),
            self.goodputs(),
            format!("{:.4}", self.jain),
            format!("{:.1} / {:.0} / {:.0}", queue.mean, queue.p99, queue.max),
            self.drops.to_string(),
            self.retransmissions.to_string(),
        ]
    }

    fn goodputs(&self) -> String {
        let mbps = self.flows.iter().map(|flow| flow.goodput_bps / 1e6);
        if self.flows.len() <= FLOWS_IN_FULL {
            let each: Vec<String> = mbps.map(|rate| format!("{rate:.2}")).collect();
            return each.join(" ");
        }
        let least = mbps.clone().fold(f64::INFINITY, f64::min);
        let most = mbps.fold(0.0, f64::max);
        format!("{least:.2} to {most:.2} ({} flows)", self.flows.len())
    }
}

/// The bottleneck's queue in packets, sampled after the warm-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueStats {
    pub mean: f64,
    pub p99: f64,
    pub max: f64,
}

/// One flow, measured after the warm-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowResult {
    pub name: String,
    /// The congestion control that its sender had at the end; absent if it
    /// never started.
    pub control: Option<String>,
    /// Bits per second read by the receiving application.
    pub goodput_bps: f64,
    /// Mean congestion window, packets.
    pub cwnd_packets: f64,
    /// Mean smoothed RTT, milliseconds.
    pub rtt_ms: f64,
    /// Seconds from the flow's start until it is within 10 % of its fair
    /// share and stays there; absent if it never does.
    pub convergence_s: Option<f64>,
}

/// A requirement of the experiment's file, and what was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckResult {
    /// Such as `link_utilisation >= 0.98`.
    pub name: String,
    pub required: f64,
    pub measured: f64,
    pub ok: bool,
}

/// The samples of one variant, for the CSV and the report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    pub samples: Vec<Sample>,
}

/// One moment of one variant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start of the run.
    pub time_s: f64,
    pub queue_packets: u32,
    pub queue_bytes: u32,
    /// Bytes sent by the bottleneck so far.
    pub sent_bytes: u64,
    pub drops: u64,
    pub flows: Vec<FlowSample>,
}

/// One flow at one moment; all zero before it starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowSample {
    /// Bytes read by the receiving application so far.
    pub received_bytes: u64,
    pub cwnd_packets: u32,
    pub rtt_us: u32,
    pub retransmissions: u32,
}
