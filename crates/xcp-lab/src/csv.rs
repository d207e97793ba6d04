// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Writes CSV files: the samples of a variant, one row per sample, and the decisions of
//! its router, one row per control interval.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use xcp_datapath::trace::Interval;

use crate::result::Series;

/// Writes the samples. `flow_names` has the names of the experiment's flows, in order.
///
/// # Errors
/// The file cannot be written.
pub fn write_csv(path: &Path, flow_names: &[String], series: &Series) -> io::Result<()> {
    fs::write(path, text(flow_names, series))
}

fn text(flow_names: &[String], series: &Series) -> String {
    let mut out = String::from("time_s,queue_packets,queue_bytes,sent_bytes,carried_bytes,drops");
    for name in flow_names {
        for column in [
            "received_bytes",
            "cwnd_packets",
            "rtt_us",
            "retransmissions",
        ] {
            // a name with a comma or a quote must not become two columns
            let name = name.replace([',', '"', '\n'], "_");
            let _ = write!(out, ",{name}_{column}");
        }
    }
    out.push('\n');
    for s in &series.samples {
        let _ = write!(
            out,
            "{:.3},{},{},{},{},{}",
            s.time_s, s.queue_packets, s.queue_bytes, s.sent_bytes, s.carried_bytes, s.drops
        );
        for f in &s.flows {
            let _ = write!(
                out,
                ",{},{},{},{}",
                f.received_bytes, f.cwnd_packets, f.rtt_us, f.retransmissions
            );
        }
        out.push('\n');
    }
    out
}

/// Writes the control intervals of a router.
///
/// # Errors
/// The file cannot be written.
pub fn write_router(path: &Path, intervals: &[Interval]) -> io::Result<()> {
    let mut out = Interval::csv_head() + "\n";
    for interval in intervals {
        out += &interval.csv();
        out.push('\n');
    }
    fs::write(path, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FlowSample, Sample};

    #[test]
    fn csv_has_one_row_per_sample() {
        let series = Series {
            samples: vec![Sample {
                time_s: 0.1,
                queue_packets: 2,
                queue_bytes: 3028,
                sent_bytes: 5000,
                carried_bytes: 5090,
                drops: 1,
                flows: vec![FlowSample {
                    received_bytes: 7,
                    cwnd_packets: 8,
                    rtt_us: 9,
                    retransmissions: 10,
                }],
            }],
            router: Vec::new(),
        };
        assert_eq!(
            text(&["a,b".to_owned()], &series),
            "time_s,queue_packets,queue_bytes,sent_bytes,carried_bytes,drops,a_b_received_bytes,a_b_cwnd_packets,a_b_rtt_us,a_b_retransmissions\n\
             0.100,2,3028,5000,5090,1,7,8,9,10\n"
        );
    }
}
