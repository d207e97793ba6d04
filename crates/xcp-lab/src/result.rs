// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The result of a run of an experiment: the object that `xcp lab run --json` prints, and
//! its table.

use serde::Serialize;
use xcp_datapath::Wire;

pub use xcp_player::result::*;

/// The result of one run of an experiment with all its variants.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    pub experiment: String,
    pub seed: u64,
    /// Wire format and Internet protocol version, if given for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<u8>,
    /// Release of the kernel that ran it.
    pub kernel: String,
    pub variants: Vec<VariantResult>,
    /// Every check of every variant passes: see [`Verdict::passes`].
    pub ok: bool,
    /// The bottleneck's rate changes, so tables include the delay in its queue.
    #[serde(skip)]
    pub varies: bool,
    /// The captured packets, if a capture was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureFile>,
}

/// A pcap file in the folder of the report.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureFile {
    pub file: String,
    pub packets: u64,
    /// Packets for which there was no space.
    pub missing: u64,
}

/// Up to this number, flows are shown one by one; more are shown as a range.
pub const FLOWS_IN_FULL: usize = 8;

impl RunResult {
    /// The title of the run: experiment, seed, options and kernel.
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

type Cell = fn(&VariantResult) -> String;

/// The columns of every table.
const COLUMNS: [(&str, Cell); 7] = [
    ("", |v| v.name.clone()),
    ("utilisation", |v| format!("{:.3}", v.link_utilisation)),
    ("goodput per flow (Mb/s)", goodputs),
    ("Jain", |v| format!("{:.4}", v.jain)),
    ("queue mean / p99 / max (packets)", queue),
    ("drops", |v| v.drops.to_string()),
    ("retransmissions", |v| v.retransmissions.to_string()),
];

/// Column for runs in which several kinds of flows share the bottleneck.
const SHARES: (&str, Cell) = ("share of goodput", shares);

/// Column for runs with a bottleneck whose rate changes.
const DELAY: (&str, Cell) = ("queue mean / p95 / max (ms)", queue_delay);

/// Column for runs that fetch files.
const TRANSFERS: (&str, Cell) = ("seconds per file, by its size", transfers);

/// Column for runs that load web pages.
const PAGES: (&str, Cell) = ("seconds per page: mean, p95", pages);

/// Column for runs with separate figures for periods.
const PERIODS: (&str, Cell) = ("least of the periods: utilisation, Jain", periods);

impl RunResult {
    /// A table as text: its head, then a row per variant.
    pub fn table(&self) -> Vec<Vec<String>> {
        let mut columns = COLUMNS.to_vec();
        if self.varies {
            columns.insert(5, DELAY);
        }
        if self.variants.iter().any(|v| v.kinds.len() > 1) {
            columns.insert(3, SHARES);
        }
        if self.variants.iter().any(|v| !v.transfers.is_empty()) {
            columns.insert(2, TRANSFERS);
        }
        if self.variants.iter().any(|v| v.pages.is_some()) {
            columns.insert(2, PAGES);
        }
        if self.variants.iter().any(|v| !v.periods.is_empty()) {
            columns.push(PERIODS);
        }
        let head = columns.iter().map(|(name, _)| (*name).to_owned());
        let mut rows = vec![head.collect()];
        for variant in &self.variants {
            rows.push(columns.iter().map(|(_, cell)| cell(variant)).collect());
        }
        rows
    }
}

pub(crate) fn queue(variant: &VariantResult) -> String {
    let queue = &variant.queue_packets;
    format!("{:.1} / {:.0} / {:.0}", queue.mean, queue.p99, queue.max)
}

pub(crate) fn queue_delay(variant: &VariantResult) -> String {
    let delay = &variant.queue_delay_ms;
    format!("{:.0} / {:.0} / {:.0}", delay.mean, delay.p95, delay.max)
}

pub(crate) fn shares(variant: &VariantResult) -> String {
    let each = variant.kinds.iter();
    let each: Vec<String> = each.map(|k| format!("{} {:.3}", k.kind, k.share)).collect();
    each.join(", ")
}

/// The mean time of each file size.
pub(crate) fn transfers(variant: &VariantResult) -> String {
    let mean = |t: &TransferResult| {
        let mean_s = t.total_s / t.done.max(1) as f64;
        format!("{mean_s:.2} from {} KB", t.from_bytes / 1000)
    };
    let each: Vec<String> = variant.transfers.iter().map(mean).collect();
    each.join(", ")
}

/// The mean and the 95th percentile of the time to load a page.
pub(crate) fn pages(variant: &VariantResult) -> String {
    let pages = variant.pages.as_ref();
    pages.map_or(String::new(), |p| {
        format!("{:.2}, {:.2}", p.mean_s, p.p95_s)
    })
}

fn periods(variant: &VariantResult) -> String {
    let least = |figure| variant.period_least(figure).unwrap_or(f64::INFINITY);
    let (used, jain) = (least(|p| p.link_utilisation), least(|p| p.jain));
    format!("{used:.3}, {jain:.4}")
}

pub(crate) fn goodputs(variant: &VariantResult) -> String {
    let flows = &variant.flows;
    if flows.is_empty() {
        return String::new();
    }
    let mbps = flows.iter().map(|flow| flow.goodput_bps / 1e6);
    if flows.len() <= FLOWS_IN_FULL {
        let each: Vec<String> = mbps.map(|rate| format!("{rate:.2}")).collect();
        return each.join(" ");
    }
    let least = mbps.clone().fold(f64::INFINITY, f64::min);
    let most = mbps.fold(0.0, f64::max);
    format!("{least:.2} to {most:.2} ({} flows)", flows.len())
}
