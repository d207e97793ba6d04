// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab trace`: plots and summarizes the trace of a link.

use std::fs;
use std::process::ExitCode;

use xcp_lab::{Error, TraceSummary};

use xcp_cli::cli::LabTrace;
use xcp_cli::failure::Failure;
use xcp_cli::out::Out;
use xcp_cli::units;

const COLUMNS: usize = 64;
const ROWS: usize = 8;
/// Bars of a row, in eighths of its height.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub fn act(asked: &LabTrace, out: &Out) -> Result<ExitCode, Failure> {
    let summary = TraceSummary::of(&asked.file, f64::from(asked.step_ms))?;
    if let Some(file) = &asked.svg {
        fs::write(file, summary.svg()?).map_err(|e| Error::io(file.display().to_string(), &e))?;
    }
    out.print(&summary, |_| describe(&summary))?;
    Ok(ExitCode::SUCCESS)
}

fn describe(summary: &TraceSummary) -> String {
    let rate = |mbit: f64| units::rate(mbit * 1e6);
    let stops = match &summary.stops_s[..] {
        [] => " none".to_owned(),
        stops => stops
            .iter()
            .map(|[from, to]| format!("\n  {from:.1} to {to:.1} s"))
            .collect(),
    };
    format!(
        "{}\nlasts {:.1} s; mean rate {}\n\
         rates of {} ms: {} to {}, median {}\n\
         stops (below 2 % of the mean):{stops}\n",
        plot(&means(summary), summary.duration_s),
        summary.duration_s,
        rate(summary.mean_mbit),
        summary.step_ms,
        rate(summary.least_mbit),
        rate(summary.most_mbit),
        rate(summary.median_mbit),
    )
}

/// The mean rate in each column, Mb/s.
fn means(summary: &TraceSummary) -> Vec<f64> {
    let width_s = summary.duration_s / COLUMNS as f64;
    let mut sums = vec![0.0; COLUMNS];
    for (from, to, mbit) in summary.spans() {
        let first = (from / width_s) as usize;
        for (column, sum) in sums.iter_mut().enumerate().skip(first) {
            let begin = column as f64 * width_s;
            if begin >= to {
                break;
            }
            *sum += mbit * (to.min(begin + width_s) - from.max(begin)).max(0.0) / width_s;
        }
    }
    sums
}

fn plot(means: &[f64], duration_s: f64) -> String {
    let top = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let label = match row + 1 {
            ROWS => units::rate(top * 1e6),
            _ => String::new(),
        };
        let bar = |mbit: &f64| {
            let eighths = (mbit / top * (ROWS * 8) as f64).round() as usize;
            BARS[eighths.saturating_sub(row * 8).min(8)]
        };
        let bars: String = means.iter().map(bar).collect();
        text += &format!("{label:>10} {}\n", bars.trim_end());
    }
    let end = format!("{duration_s:.0} s");
    text + &format!("{:>10} 0{end:>width$}\n", "", width = means.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_means_and_the_highest_fills_all_rows() {
        let summary = TraceSummary {
            duration_s: 64.0,
            mean_mbit: 1.5,
            step_ms: 100.0,
            least_mbit: 1.0,
            median_mbit: 1.0,
            most_mbit: 2.0,
            stops_s: vec![],
            rates: vec![[0.0, 2.0], [31.5, 1.0]],
        };
        let means = means(&summary);
        assert_eq!((means[0], means[31], means[63]), (2.0, 1.5, 1.0));
        let text = describe(&summary);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("{:>10} {}", "2.0 Mb/s", "█".repeat(31)));
        assert_eq!(lines[7].chars().filter(|c| *c == '█').count(), COLUMNS);
        assert!(lines.iter().all(|l| l.chars().count() <= 80), "{text}");
    }
}
