// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router trace`: prints every control interval of a router when it ends.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use xcp_datapath::interrupt;
use xcp_datapath::router;
use xcp_datapath::trace::Interval;

use xcp_cli::cli::RouterTrace;
use xcp_cli::failure::{Failure, INTERRUPTED};
use xcp_cli::out::Out;
use xcp_cli::units;

/// The longest time until the removal of the router or the end of `--duration` is
/// noticed.
const PATIENCE: Duration = Duration::from_millis(200);

pub fn act(asked: &RouterTrace, out: &Out) -> Result<ExitCode, Failure> {
    if asked.csv && out.is_json() {
        // the parser does not see it if --json comes before `trace`
        let failure = Failure::new("--csv", "cannot be used with --json", "give one of them");
        return Err(failure.bad_usage());
    }
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

/// Prints the head. Returns false if the reader has closed the pipe.
fn out_head(csv: bool) -> Result<bool, Failure> {
    let head = if csv { Interval::csv_head() } else { head() };
    xcp_cli::out::write(format!("{head}\n").as_bytes())
}

/// Columns of the table with units and widths: 80 characters, including the spaces
/// between them.
const COLUMNS: [(&str, &str, usize); 10] = [
    ("time", "s", 8),
    ("interval", "ms", 8),
    ("RTT", "ms", 7),
    ("capacity", "b/s", 8),
    ("input", "b/s", 7),
    ("queue", "B", 6),
    ("persist", "B", 7),
    ("feedback", "b/s", 8),
    ("incr.", "b/s", 6),
    ("decr.", "b/s", 6),
];

fn line(cells: [&str; COLUMNS.len()]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .zip(COLUMNS)
        .map(|(cell, (_, _, width))| format!("{cell:>width$}"))
        .collect();
    cells.join(" ")
}

fn head() -> String {
    let names = line(COLUMNS.map(|(name, _, _)| name));
    format!("{names}\n{}", line(COLUMNS.map(|(_, unit, _)| unit)))
}

fn row(i: &Interval, start_s: f64) -> String {
    let short = |n: u64| units::short(n as f64);
    let cells = [
        format!("{:.3}", i.time_s - start_s),
        format!("{:.1}", i.interval_s * 1e3),
        format!("{:.1}", i.average_rtt_s * 1e3),
        short(i.capacity_bps),
        short(i.input_rate_bps),
        short(i.queue_bytes),
        short(i.persistent_queue_bytes),
        units::signed_short(i.feedback_bps as f64),
        short(i.increase_bps),
        short(i.decrease_bps),
    ];
    line(cells.each_ref().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_80_columns() {
        let row = row(&xcp_testbed::interval(), 99.0);
        assert_eq!(
            format!("{}\n{row}", head()),
            "    time interval     RTT capacity   input  queue persist feedback  incr.  decr.\n       \
             s       ms      ms      b/s     b/s      B       B      b/s    b/s    b/s\n   \
             1.250    100.0   100.0    10.0M    9.5M   4.5k    1.5k  -120.0k 830.0k 950.0k"
        );
        assert!(row.len() <= 80, "{}", row.len());
    }
}
