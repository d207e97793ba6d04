// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! An example of a router's trace.

use xcp_datapath::trace::Interval;

/// Returns an example of a traced control interval.
#[must_use]
pub fn interval() -> Interval {
    Interval {
        time_s: 100.25,
        interval_s: 0.1,
        average_rtt_s: 0.1,
        capacity_bps: 10_000_000,
        link_bps: None,
        input_rate_bps: 9_500_000,
        other_rate_bps: 0,
        queue_bytes: 4_500,
        persistent_queue_bytes: 1_500,
        feedback_bps: -120_000,
        increase_bps: 830_000,
        decrease_bps: 950_000,
        xcp_share: Some(0.5),
        xcp_flows: 2.0,
    }
}
