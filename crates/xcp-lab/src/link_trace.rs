// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads and summarizes trace files of links, plain or compressed with gzip.

mod made;

use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Serialize;
use xcp_player::trace_file::{self, LEAST_MBIT};

pub use made::all as made;

use crate::report::{Chart, Line};
use crate::{file, Error, Result};

/// A link that carries less than this part of its mean rate counts as stopped.
const STOPPED_PART: f64 = 0.02;

/// Maximum size of a trace; a trace of a day is smaller.
const MAX_BYTES: u64 = 1 << 28;

/// Reads the text of a file.
///
/// # Errors
/// The file does not exist, is damaged, is not text, or has more than 256 MB.
pub fn read(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    text(&name, &file::read(path, MAX_BYTES)?)
}

/// Returns the text of a file with these bytes; see [`read`].
pub fn text(name: &str, bytes: &[u8]) -> Result<String> {
    let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => unpack(name, bytes)?,
        false => bytes.to_vec(),
    };
    String::from_utf8(bytes)
        .map_err(|_| Error::new(name, "is not text", "a trace has a number in each line"))
}

fn unpack(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|e| Error::io(name, &e))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(file::too_large(name, MAX_BYTES));
    }
    Ok(text)
}

/// Returns each step with its end, which is the start of the next one.
fn spans(steps: &[[f64; 2]], end_s: f64) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
    let ends = steps.iter().skip(1).map(|[from, _]| *from);
    ends.chain([end_s])
        .zip(steps)
        .map(|(to, [from, value])| (*from, to, *value))
}

/// Summary of a trace in mahimahi's format.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub duration_s: f64,
    pub mean_mbit: f64,
    /// Averaging period of the rates.
    pub step_ms: f64,
    pub least_mbit: f64,
    pub median_mbit: f64,
    pub most_mbit: f64,
    /// Periods in which the link carries less than 1/50 of its mean rate: `[from, to]`.
    pub stops_s: Vec<[f64; 2]>,
    /// Steps of the rate: start (s) and rate (Mb/s).
    pub rates: Vec<[f64; 2]>,
}

impl Summary {
    /// Summarizes a file; see [`read`] for the errors.
    pub fn of(path: &Path, step_ms: f64) -> Result<Self> {
        let file = path.display().to_string();
        let trace = trace_file::rates(&file, &read(path)?, step_ms / 1e3)?;
        let spans: Vec<(f64, f64, f64)> = spans(&trace.steps, trace.period_s).collect();
        let mean = spans
            .iter()
            .map(|(from, to, r)| (to - from) * r)
            .sum::<f64>()
            / trace.period_s;
        let mut stops_s: Vec<[f64; 2]> = Vec::new();
        for (from, to, _) in spans.iter().filter(|(_, _, r)| *r < STOPPED_PART * mean) {
            match stops_s.last_mut() {
                Some(last) if last[1] == *from => last[1] = *to,
                _ => stops_s.push([*from, *to]),
            }
        }
        let mut by_rate = spans;
        by_rate.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut left_s = trace.period_s / 2.0;
        let median = by_rate.iter().find(|(from, to, _)| {
            left_s -= to - from;
            left_s <= 0.0
        });
        let rate = |span: Option<&(f64, f64, f64)>| span.map_or(LEAST_MBIT, |s| s.2);
        Ok(Self {
            duration_s: trace.period_s,
            mean_mbit: mean,
            step_ms,
            least_mbit: rate(by_rate.first()),
            median_mbit: rate(median),
            most_mbit: rate(by_rate.last()),
            stops_s,
            rates: trace.steps,
        })
    }

    /// Start (s), end (s) and rate (Mb/s) of each step.
    pub fn spans(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        spans(&self.rates, self.duration_s)
    }

    /// Plots the rate over time as an SVG file.
    pub fn svg(&self) -> Result<String> {
        let points = self
            .spans()
            .flat_map(|(from, to, mbit)| [(from, mbit), (to, mbit)]);
        let chart = Chart {
            title: "rate, Mb/s",
            seconds: self.duration_s,
            top: None,
            guide: None,
            lines: vec![Line {
                colour: 0,
                points: points.collect(),
            }],
        };
        chart
            .page()
            .map_err(|e| Error::new("chart", e, "report this"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use flate2::Compression;

    use std::fs;

    use super::*;

    #[test]
    fn stops_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.gz");
        let times = (10..=1000).step_by(10).chain((4000..=6000).step_by(10));
        let text: String = times.map(|ms| format!("{ms}\n")).collect();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).expect("packs");
        fs::write(&path, packed.finish().expect("packs")).expect("writes");
        let summary = Summary::of(&path, 100.0).expect("a trace");
        assert_eq!(summary.duration_s, 6.0);
        assert_eq!((summary.median_mbit, summary.most_mbit), (0.008, 1.2));
        assert_eq!(summary.stops_s, [[1.0, 4.0]]);
        assert!(summary.svg().expect("a chart").contains("xmlns"));
        fs::write(&path, [0x1f, 0x8b, 0, 1, 2]).expect("writes");
        assert!(Summary::of(&path, 100.0).is_err(), "damaged");
        fs::write(&path, [0xff, 0xfe]).expect("writes");
        assert!(Summary::of(&path, 100.0).is_err(), "not text");
    }
}
