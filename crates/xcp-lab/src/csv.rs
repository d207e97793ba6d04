// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The samples of a variant as a table, one row a moment; and what its router
//! decided, one row a control interval.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use xcp_datapath::trace::Interval;

use crate::result::Series;

/// Writes the samples; `flow_names` are those of the experiment, in order.
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

/// A column of a router's trace: the field's name, and its value.
pub type Column = (&'static str, fn(&Interval) -> String);

/// The columns of a router's trace.
pub const ROUTER: [Column; 13] = [
    ("time_s", |i| i.time_s.to_string()),
    ("interval_s", |i| i.interval_s.to_string()),
    ("average_rtt_s", |i| i.average_rtt_s.to_string()),
    ("capacity_bps", |i| i.capacity_bps.to_string()),
    ("link_bps", |i| known(i.link_bps)),
    ("input_rate_bps", |i| i.input_rate_bps.to_string()),
    ("other_rate_bps", |i| i.other_rate_bps.to_string()),
    ("queue_bytes", |i| i.queue_bytes.to_string()),
    ("persistent_queue_bytes", |i| {
        i.persistent_queue_bytes.to_string()
    }),
    ("feedback_bps", |i| i.feedback_bps.to_string()),
    ("increase_bps", |i| i.increase_bps.to_string()),
    ("decrease_bps", |i| i.decrease_bps.to_string()),
    ("xcp_share", |i| known(i.xcp_share)),
];

/// A value that may be missing is left empty.
fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

/// Writes what a router decided.
///
/// # Errors
/// The file cannot be written.
pub fn write_router(path: &Path, intervals: &[Interval]) -> io::Result<()> {
    let mut out = ROUTER.map(|(name, _)| name).join(",") + "\n";
    for interval in intervals {
        out += &ROUTER.map(|(_, value)| value(interval)).join(",");
        out.push('\n');
    }
    fs::write(path, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FlowSample, Sample};

    #[test]
    fn one_row_a_moment() {
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
