// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The table of the routers' links, with their history.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use xcp_cli::units;
use xcp_datapath::meter::LinkReading;

use super::table::{Column, Key};

/// One step of the history, and the averaging time of rates.
pub const SECOND: Duration = Duration::from_secs(1);
/// Number of steps in the history.
const HISTORY: usize = 120;
/// The full height of a plot of queueing delays is the maximum in the history, but at
/// least this delay.
const LEAST_PLOT_DELAY_S: f64 = 0.01;
const LEAST_PLOT_FLOWS: f64 = 4.0;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A link and its last two minutes, one value for each second.
pub struct LinkRow {
    pub device: String,
    pub capacity_bps: Option<f64>,
    pub rate_bps: f64,
    pub queue_bytes: u64,
    pub flows: f64,
    /// XCP's share of the link, 0 to 1.
    pub share: Option<f64>,
    pub drops: u64,
    /// Packets were dropped in the last second.
    pub drops_lately: bool,
    utilisations: VecDeque<f64>,
    delays_s: VecDeque<f64>,
    flows_then: VecDeque<f64>,
    shares: VecDeque<f64>,
    /// Start of the present second, counters at that time, and the longest delay since.
    began: Duration,
    began_sent_bytes: u64,
    began_drops: u64,
    most_delay_s: f64,
    last_sent_bytes: u64,
}

impl LinkRow {
    fn new(now: Duration, reading: &LinkReading) -> Self {
        Self {
            device: reading.device.clone(),
            capacity_bps: None,
            rate_bps: 0.0,
            queue_bytes: 0,
            flows: 0.0,
            share: None,
            drops: 0,
            drops_lately: false,
            utilisations: VecDeque::new(),
            delays_s: VecDeque::new(),
            flows_then: VecDeque::new(),
            shares: VecDeque::new(),
            began: now,
            began_sent_bytes: reading.sent_B,
            began_drops: reading.root.dropped_packets.into(),
            most_delay_s: 0.0,
            last_sent_bytes: reading.sent_B,
        }
    }

    /// Updates the row with values read at this time.
    fn update(&mut self, now: Duration, reading: &LinkReading) {
        self.capacity_bps = reading.capacity_Bps.map(|rate| rate as f64 * 8.0);
        let is_idle = reading.sent_B == self.last_sent_bytes;
        self.queue_bytes = match is_idle {
            // the packets before the last one may have been dequeued since
            true => reading.queue_B.min(reading.root.backlog_B.into()),
            false => reading.queue_B,
        };
        self.last_sent_bytes = reading.sent_B;
        self.flows = reading.flows;
        self.share = reading.xcp_share;
        self.drops = reading.root.dropped_packets.into();
        self.most_delay_s = self.most_delay_s.max(self.delay_s().unwrap_or(0.0));
        let elapsed = now.saturating_sub(self.began);
        if elapsed >= SECOND {
            let sent_bytes = reading.sent_B.saturating_sub(self.began_sent_bytes);
            self.rate_bps = sent_bytes as f64 * 8.0 / elapsed.as_secs_f64();
            let utilisation = self.utilisation().unwrap_or(0.0);
            remember(&mut self.utilisations, utilisation);
            remember(&mut self.delays_s, self.most_delay_s);
            remember(&mut self.flows_then, self.flows);
            remember(&mut self.shares, self.share.unwrap_or(0.0));
            self.drops_lately = self.drops != self.began_drops;
            (self.began, self.began_sent_bytes) = (now, reading.sent_B);
            self.began_drops = self.drops;
            self.most_delay_s = 0.0;
        }
    }

    fn utilisation(&self) -> Option<f64> {
        self.capacity_bps.map(|capacity| self.rate_bps / capacity)
    }

    /// The queueing delay of a packet that arrives now.
    fn delay_s(&self) -> Option<f64> {
        let queue_b = self.queue_bytes as f64 * 8.0;
        self.capacity_bps.map(|capacity| queue_b / capacity)
    }
}

fn remember(history: &mut VecDeque<f64>, value: f64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

/// Updates the rows; each keeps its history.
pub fn update(rows: &mut Vec<LinkRow>, now: Duration, readings: &[LinkReading]) {
    let mut before: BTreeMap<String, LinkRow> = rows
        .drain(..)
        .map(|row| (row.device.clone(), row))
        .collect();
    rows.extend(readings.iter().map(|reading| {
        let known = before.remove(&reading.device);
        // the counters of a router that was added again start from 0
        let known = known.filter(|row| row.last_sent_bytes <= reading.sent_B);
        let mut row = known.unwrap_or_else(|| LinkRow::new(now, reading));
        row.update(now, reading);
        row
    }));
}

/// Draws a bar for each of the last seconds, as many as fit. `full` is the full height.
fn plot(history: &VecDeque<f64>, full: f64, width: usize) -> String {
    let steps = BARS.len() as f64;
    let bar = |value: &f64| BARS[((value / full * steps) as usize).min(BARS.len() - 1)];
    let bars: String = history
        .iter()
        .skip(history.len().saturating_sub(width))
        .map(bar)
        .collect();
    format!("{bars:>width$}")
}

fn most(history: &VecDeque<f64>, least: f64) -> f64 {
    history.iter().copied().fold(least, f64::max)
}

/// The text that the filter searches.
pub fn searched(row: &LinkRow) -> String {
    row.device.clone()
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |part| format!("{:.0}%", part * 100.0))
}

fn number(value: Option<f64>) -> Key {
    Key::Number(value.unwrap_or(-1.0))
}

const PLOT: Column<LinkRow> = Column {
    head: "",
    width: 8,
    grows: 1,
    wide: false,
    number: false,
    text: |_, _| String::new(),
    key: None,
};

const NUMBER: Column<LinkRow> = Column {
    head: "",
    width: 6,
    grows: 0,
    wide: false,
    number: true,
    text: |_, _| String::new(),
    key: None,
};

pub const COLUMNS: &[Column<LinkRow>] = &[
    Column {
        head: "DEVICE",
        width: 12,
        number: false,
        text: |row, _| row.device.clone(),
        key: Some(|row| Key::Text(row.device.clone())),
        ..NUMBER
    },
    Column {
        head: "CAPACITY",
        width: 10,
        text: |row, _| row.capacity_bps.map_or_else(|| "-".into(), units::rate),
        ..NUMBER
    },
    Column {
        head: "RATE",
        width: 10,
        wide: true,
        text: |row, _| units::rate(row.rate_bps),
        key: Some(|row| Key::Number(row.rate_bps)),
        ..NUMBER
    },
    Column {
        head: "USE",
        width: 5,
        text: |row, _| percent(row.utilisation()),
        key: Some(|row| number(row.utilisation())),
        ..NUMBER
    },
    Column {
        text: |row, width| plot(&row.utilisations, 1.0, width),
        ..PLOT
    },
    Column {
        head: "DELAY",
        width: 9,
        text: |row, _| {
            let delay = row.delay_s();
            delay.map_or_else(|| "-".into(), |s| units::milliseconds(s * 1e3))
        },
        key: Some(|row| number(row.delay_s())),
        ..NUMBER
    },
    Column {
        text: |row, width| {
            let full = most(&row.delays_s, LEAST_PLOT_DELAY_S);
            plot(&row.delays_s, full, width)
        },
        ..PLOT
    },
    Column {
        head: "QUEUE",
        width: 9,
        wide: true,
        text: |row, _| units::bytes(row.queue_bytes),
        ..NUMBER
    },
    Column {
        head: "FLOWS",
        text: |row, _| format!("{:.0}", row.flows),
        key: Some(|row| Key::Number(row.flows)),
        ..NUMBER
    },
    Column {
        wide: true,
        text: |row, width| {
            let full = most(&row.flows_then, LEAST_PLOT_FLOWS);
            plot(&row.flows_then, full, width)
        },
        ..PLOT
    },
    Column {
        head: "SHARE",
        text: |row, _| percent(row.share),
        key: Some(|row| number(row.share)),
        ..NUMBER
    },
    Column {
        wide: true,
        text: |row, width| plot(&row.shares, 1.0, width),
        ..PLOT
    },
    Column {
        head: "DROPS",
        width: 8,
        wide: true,
        text: |row, _| row.drops.to_string(),
        key: Some(|row| Key::Number(row.drops as f64)),
        ..NUMBER
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(sent_bytes: u64, queue_bytes: u64, root_bytes: u32) -> LinkReading {
        let mut reading = LinkReading {
            device: "eth0".into(),
            capacity_Bps: Some(1_250_000),
            sent_B: sent_bytes,
            queue_B: queue_bytes,
            ..LinkReading::default()
        };
        reading.root.backlog_B = root_bytes;
        reading
    }

    fn at(rows: &mut Vec<LinkRow>, ms: u64, reading: LinkReading) {
        update(rows, Duration::from_millis(ms), &[reading]);
    }

    #[test]
    fn rates_are_means_of_a_second_and_delays_are_maxima() {
        let mut rows = Vec::new();
        at(&mut rows, 0, reading(1_000_000, 0, 0));
        at(&mut rows, 200, reading(1_100_000, 25_000, 0));
        assert_eq!(rows[0].delay_s(), Some(0.02));
        at(&mut rows, 1000, reading(2_125_000, 12_500, 0));
        assert_eq!(rows[0].rate_bps, 9e6);
        assert_eq!(rows[0].utilisation(), Some(0.9));
        assert_eq!(rows[0].delays_s, [0.02]);
        assert_eq!(rows[0].utilisations, [0.9]);
    }

    #[test]
    fn queue_of_idle_link_is_that_of_its_queue_discipline() {
        let mut rows = Vec::new();
        at(&mut rows, 0, reading(1000, 0, 0));
        at(&mut rows, 200, reading(2000, 9000, 0));
        at(&mut rows, 400, reading(2000, 9000, 0));
        assert_eq!(rows[0].queue_bytes, 0, "it was dequeued");
        at(&mut rows, 600, reading(2000, 9000, 6000));
        assert_eq!(rows[0].queue_bytes, 6000, "the link has stopped");
    }

    #[test]
    fn history_of_router_added_again_is_empty() {
        let mut rows = Vec::new();
        at(&mut rows, 0, reading(1_000_000, 0, 0));
        at(&mut rows, 1000, reading(2_000_000, 0, 0));
        at(&mut rows, 1200, reading(0, 0, 0));
        assert_eq!((rows[0].rate_bps, rows[0].utilisations.len()), (0.0, 0));
        update(&mut rows, Duration::ZERO, &[]);
        assert!(rows.is_empty());
    }

    #[test]
    fn plots_are_as_wide_as_their_column() {
        let history = VecDeque::from([0.0, 0.5, 1.0, 2.0]);
        assert_eq!(plot(&history, 1.0, 6), "  ▁▅██");
        assert_eq!(plot(&history, 1.0, 2), "██");
    }
}
