// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router trace`: every control interval of a router, as it ends.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use xcp_datapath::router;
use xcp_datapath::trace::Interval;
use xcp_lab::interrupt;

use crate::cli::RouterTrace;
use crate::failure::{Failure, INTERRUPTED};
use crate::out::Out;
use crate::units;

/// How long the end of a router, or of the time asked for, may go unnoticed.
const PATIENCE: Duration = Duration::from_millis(200);

pub fn act(asked: &RouterTrace, out: &Out) -> Result<ExitCode, Failure> {
    let trace = router::trace(&asked.device)?;
    interrupt::watch();
    let end = asked.duration.map(|duration| Instant::now() + duration);
    let mut left = asked.count;
    let mut reader = out.is_json() || out_head(asked.csv)?;
    let mut start_s = None;
    while reader && left != Some(0) && end.is_none_or(|end| Instant::now() < end) {
        if interrupt::requested() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        match trace.next(patience(end))? {
            Some(interval) => {
                let start_s = *start_s.get_or_insert(interval.time_s - interval.interval_s);
                left = left.map(|n| n - 1);
                reader = out.next(&interval, |_| {
                    if asked.csv {
                        interval.csv()
                    } else {
                        row(&interval, start_s)
                    }
                })?;
            }
            None if trace.is_over() => {
                return Err(Failure::new(
                    &asked.device,
                    "its XCP router has been removed",
                    format!("add it again: xcp router add {}", asked.device),
                ))
            }
            None => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn patience(end: Option<Instant>) -> Duration {
    let left = end.map_or(PATIENCE, |end| end - Instant::now());
    left.clamp(Duration::from_millis(1), PATIENCE)
}

/// Whether somebody reads it.
fn out_head(csv: bool) -> Result<bool, Failure> {
    let head = if csv {
        Interval::csv_head()
    } else {
        line(&HEAD.map(String::from))
    };
    crate::out::write(format!("{head}\n").as_bytes())
}

/// Columns of the table, and how wide they are.
const HEAD: [&str; 10] = [
    "time", "interval", "RTT", "capacity", "input", "queue", "persist.", "feedback", "increase",
    "decrease",
];
const WIDTHS: [usize; 10] = [9, 9, 9, 11, 11, 9, 9, 12, 11, 11];

fn line(cells: &[String; 10]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .zip(WIDTHS)
        .map(|(cell, width)| format!("{cell:>width$}"))
        .collect();
    cells.join(" ")
}

fn row(i: &Interval, start_s: f64) -> String {
    line(&[
        format!("{:.3} s", i.time_s - start_s),
        units::milliseconds(i.interval_s * 1e3),
        units::milliseconds(i.average_rtt_s * 1e3),
        units::rate(i.capacity_bps as f64),
        units::rate(i.input_rate_bps as f64),
        units::bytes(i.queue_bytes),
        units::bytes(i.persistent_queue_bytes),
        units::signed_rate(i.feedback_bps as f64),
        units::rate(i.increase_bps as f64),
        units::rate(i.decrease_bps as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use xcp_datapath::testing;

    #[test]
    fn a_row_is_as_wide_as_the_head() {
        let row = row(&testing::interval(), 99.0);
        assert_eq!(
            row,
            "  1.250 s  100.0 ms  100.0 ms   10.0 Mb/s    9.5 Mb/s    4.5 kB    1.5 kB  \
             -120.0 kb/s  830.0 kb/s  950.0 kb/s"
        );
        assert_eq!(row.len(), line(&HEAD.map(String::from)).len());
    }
}
