// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The result of playing a variant: its metrics, and the time series for the
//! CSV file and the report.

use serde::{Deserialize, Serialize};
use xcp_datapath::trace::Interval;

/// The metrics of one variant, such as XCP, or CUBIC over a FIFO.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VariantResult {
    pub name: String,
    /// Bytes that the bottleneck carried after the warm-up, headers and framing
    /// included, divided by what it could have carried. On a half-duplex link
    /// both directions count.
    pub link_utilisation: f64,
    pub queue_packets: QueueStats,
    /// The queue that holds XCP packets: the same, unless they have a separate
    /// one.
    pub xcp_queue_packets: QueueStats,
    /// The delay of the bytes dequeued after the warm-up, milliseconds.
    pub queue_delay_ms: DelayStats,
    /// Packets dropped at the bottleneck in the whole run.
    pub drops: u64,
    /// Segments retransmitted by all flows in the whole run.
    pub retransmissions: u64,
    /// Jain's index of the TCP flows' goodputs.
    pub jain: f64,
    /// The longest time from the end of an XCP-i daemon until the virtual
    /// routers of its clouds were suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension_s: Option<f64>,
    /// The metrics of each of the experiment's periods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<PeriodResult>,
    /// The experiment's transfers, by size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<TransferResult>,
    /// The experiment's web pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<PageResult>,
    /// The flows by congestion control.
    pub kinds: Vec<KindResult>,
    pub flows: Vec<FlowResult>,
    pub checks: Vec<CheckResult>,
}

impl VariantResult {
    /// The lowest value of a metric in all periods, if there are any.
    #[must_use]
    pub fn period_least(&self, figure: fn(&PeriodResult) -> f64) -> Option<f64> {
        self.periods.iter().map(figure).reduce(f64::min)
    }
}

/// The metrics of a part of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PeriodResult {
    pub from_s: f64,
    pub to_s: f64,
    pub link_utilisation: f64,
    /// Jain's index of the TCP flows that run during the whole period.
    pub jain: f64,
}

/// Transfers of about the same size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TransferResult {
    pub from_bytes: u64,
    /// Exclusive.
    pub to_bytes: u64,
    pub count: usize,
    pub done: usize,
    /// The total time of the completed transfers, each from the start of the
    /// connection to the last byte read.
    pub total_s: f64,
}

/// The web pages that users began to load after the warm-up.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PageResult {
    /// Pages that were loaded completely.
    pub loaded: usize,
    /// From the first connection of a page to the last byte of its last object.
    pub mean_s: f64,
    pub p95_s: f64,
}

/// The bottleneck's queue in packets, sampled after the warm-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueStats {
    pub mean: f64,
    pub p99: f64,
    pub max: f64,
}

/// The delay in the bottleneck's queue, weighted by bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DelayStats {
    pub mean: f64,
    pub p95: f64,
    pub max: f64,
}

/// All flows of one kind, measured after the warm-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KindResult {
    /// The configured congestion control, or `udp`.
    pub kind: String,
    pub flows: usize,
    /// The total goodput, bits per second.
    pub goodput_bps: f64,
    /// Their share of the goodput of all kinds.
    pub share: f64,
    /// Their mean goodput per flow, divided by that of all TCP flows.
    pub flow_share: f64,
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
    /// Largest congestion window, packets.
    pub cwnd_max_packets: u32,
    /// Mean smoothed RTT, milliseconds.
    pub rtt_ms: f64,
    /// Seconds from the flow's start until it is within 10 % of its fair
    /// share and stays there; absent if it never does.
    pub convergence_s: Option<f64>,
    /// The same in round trips without queues, only for newcomers, which start
    /// while other flows run. The flow's whole duration if it never had its
    /// share.
    pub convergence_rtts: Option<f64>,
    /// Goodput divided by the max-min fair one, for TCP flows that run all the
    /// time.
    pub fair_share: Option<f64>,
}

/// A requirement of the experiment's file, and the measured value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckResult {
    /// The requirement, such as `link_utilisation >= 0.98`.
    pub name: String,
    pub required: f64,
    pub measured: f64,
    /// The check does not fail the run: its verdict passes.
    pub ok: bool,
    pub verdict: Verdict,
    /// Why the file marks the check as a known gap, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_gap: Option<String>,
}

/// The state of a check after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The measured value meets the requirement.
    Ok,
    /// The measured value misses the requirement.
    Failed,
    /// The measured value misses the requirement, and the file gives the
    /// reason.
    KnownGap,
    /// The measured value meets the requirement, but the file still marks the
    /// check as a known gap. The run fails until the mark is removed, so that a
    /// mark cannot hide a later miss.
    GapClosed,
}

impl Verdict {
    /// Whether a run with this verdict succeeds.
    #[must_use]
    pub fn passes(self) -> bool {
        match self {
            Self::Ok | Self::KnownGap => true,
            Self::Failed | Self::GapClosed => false,
        }
    }

    /// The word that tables and reports put before the check.
    #[must_use]
    pub fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed | Self::GapClosed => "FAILED",
            Self::KnownGap => "gap",
        }
    }
}

impl CheckResult {
    /// The result of a check; `met` is whether its requirement is met,
    /// `known_gap` is the reason in its mark.
    #[must_use]
    pub fn new(
        name: String,
        required: f64,
        measured: f64,
        met: bool,
        known_gap: Option<String>,
    ) -> Self {
        let verdict = match (met, known_gap.is_some()) {
            (true, false) => Verdict::Ok,
            (false, false) => Verdict::Failed,
            (false, true) => Verdict::KnownGap,
            (true, true) => Verdict::GapClosed,
        };
        Self {
            name,
            required,
            measured,
            ok: verdict.passes(),
            verdict,
            known_gap,
        }
    }

    /// The note on a known gap: its reason, or what to do when it has closed.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match self.verdict {
            Verdict::Ok | Verdict::Failed => None,
            Verdict::KnownGap => self
                .known_gap
                .as_ref()
                .map(|why| format!("known gap: {why}")),
            Verdict::GapClosed => {
                Some("the known gap has closed: remove known_gap from the check".into())
            }
        }
    }
}

/// The samples of one variant, for the CSV and the report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    pub samples: Vec<Sample>,
    /// The decisions of the bottleneck's router in the measured direction;
    /// times since the start of the run.
    #[serde(default)]
    pub router: Vec<Interval>,
}

/// A sample of one variant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start of the run.
    pub time_s: f64,
    pub queue_packets: u32,
    pub queue_bytes: u32,
    /// Bytes sent by the bottleneck so far.
    pub sent_bytes: u64,
    /// Bytes that the link has carried so far, including its framing; on a
    /// half-duplex link in both directions.
    pub carried_bytes: u64,
    pub drops: u64,
    pub flows: Vec<FlowSample>,
}

/// A sample of one flow; all zero before it starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowSample {
    /// Bytes read by the receiving application so far.
    pub received_bytes: u64,
    pub cwnd_packets: u32,
    pub rtt_us: u32,
    pub retransmissions: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_results_survive_json() {
        for (met, why, verdict, ok) in [
            (true, None, "ok", true),
            (false, None, "failed", false),
            (false, Some("why"), "known_gap", true),
            (true, Some("why"), "gap_closed", false),
        ] {
            let check = CheckResult::new("x".into(), 1.0, 2.0, met, why.map(String::from));
            let sent = serde_json::to_value(&check).expect("serialises");
            assert_eq!(sent["verdict"], verdict);
            assert_eq!(sent["ok"], ok);
            assert_eq!(sent.get("known_gap").and_then(|w| w.as_str()), why);
            let got: CheckResult = serde_json::from_value(sent).expect("parses");
            assert_eq!(format!("{got:?}"), format!("{check:?}"));
        }
    }
}
