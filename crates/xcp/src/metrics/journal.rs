// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Logs important changes to the journal of the unit: each once, and for each device at
//! most once a minute.

#![allow(non_snake_case)] // units in names: Bps are bytes per second

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use xcp_cli::units;
use xcp_datapath::meter::Reading;

use super::families::Snapshot;
use crate::router::upstream;

/// Minimum time between two log lines of the same kind for one device.
const SELDOM: Duration = Duration::from_secs(60);
/// The usual rate decays by 1/512 at each check, so that the rate of a link that stays
/// slow becomes the usual one.
const FORGOTTEN_PARTS: u64 = 512;

/// The times of the last log lines, and the previous state for comparison.
#[derive(Debug, Default)]
pub struct Journal {
    routers: BTreeMap<String, Known>,
    /// Device and upstream edge; None before the first check.
    edges: Option<BTreeSet<(String, String)>>,
}

#[derive(Debug, Default)]
struct Known {
    usual_Bps: u64,
    fall_told: Option<Duration>,
    qdisc_replaced: bool,
    replacement_told: Option<Duration>,
}

impl Journal {
    /// Returns a line for each change since the last check; `now` is the time since any
    /// fixed moment.
    pub fn changes_to_log(&mut self, now: Duration, snapshot: &Snapshot) -> Vec<String> {
        let mut lines = Vec::new();
        self.routers
            .retain(|name, _| snapshot.routers.iter().any(|r| r.device == *name));
        for router in &snapshot.routers {
            let known = self.routers.entry(router.device.clone()).or_default();
            lines.extend(known.fall(now, router));
            lines.extend(known.replacement(now, router));
        }
        let edges: BTreeSet<(String, String)> = snapshot
            .clouds
            .iter()
            .map(|cloud| (cloud.device.clone(), upstream(cloud)))
            .collect();
        if let Some(before) = self.edges.replace(edges.clone()) {
            for (device, upstream) in edges.difference(&before) {
                lines.push(format!("{device}: the edge {upstream} has appeared"));
            }
            for (device, upstream) in before.difference(&edges) {
                lines.push(format!("{device}: the edge {upstream} has disappeared"));
            }
        }
        lines
    }
}

/// Returns whether a line may be logged again now, and if so records the time.
fn may_log(told: &mut Option<Duration>, now: Duration) -> bool {
    let may = told.is_none_or(|then| now.saturating_sub(then) >= SELDOM);
    if may {
        *told = Some(now);
    }
    may
}

impl Known {
    /// Reports a link that carries less than half of its usual rate.
    fn fall(&mut self, now: Duration, router: &Reading) -> Option<String> {
        let measured_Bps = router.measured_Bps?;
        let before_Bps = self.usual_Bps;
        self.usual_Bps -= self.usual_Bps / FORGOTTEN_PARTS;
        self.usual_Bps = self.usual_Bps.max(measured_Bps);
        if measured_Bps >= before_Bps / 2 {
            return None;
        }
        self.usual_Bps = measured_Bps;
        may_log(&mut self.fall_told, now).then(|| {
            format!(
                "{}: the link carries {}, less than half of the {} before",
                router.device,
                units::rate(measured_Bps as f64 * 8.0),
                units::rate(before_Bps as f64 * 8.0)
            )
        })
    }

    fn replacement(&mut self, now: Duration, router: &Reading) -> Option<String> {
        let before = std::mem::replace(&mut self.qdisc_replaced, router.qdisc_replaced);
        if !router.qdisc_replaced || before || !may_log(&mut self.replacement_told, now) {
            return None;
        }
        Some(format!(
            "{}: the queue discipline xcp was replaced: XCP and other traffic share one queue",
            router.device
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(measured_Bps: u64, qdisc_replaced: bool) -> Snapshot {
        Snapshot {
            routers: vec![Reading {
                device: "eth1".into(),
                measured_Bps: Some(measured_Bps),
                qdisc_replaced,
                ..Reading::default()
            }],
            ..Snapshot::default()
        }
    }

    /// The lines of checks at these times, s.
    fn told(looks: &[(u64, Snapshot)]) -> Vec<(u64, String)> {
        let mut journal = Journal::default();
        let mut lines = Vec::new();
        for (at_s, snapshot) in looks {
            let new = journal.changes_to_log(Duration::from_secs(*at_s), snapshot);
            lines.extend(new.into_iter().map(|line| (*at_s, line)));
        }
        lines
    }

    #[test]
    fn fall_of_rate_by_more_than_half_is_logged_once() {
        let looks = [
            (0, router(1_250_000, false)),
            (5, router(700_000, false)),
            (10, router(500_000, false)),
            (15, router(480_000, false)),
            // recovers and falls again, within a minute and after a minute
            (20, router(1_250_000, false)),
            (25, router(500_000, false)),
            (80, router(1_250_000, false)),
            (85, router(500_000, false)),
        ];
        let lines = told(&looks);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0].0, 10);
        assert_eq!(
            lines[0].1,
            "eth1: the link carries 4.0 Mb/s, less than half of the 10.0 Mb/s before"
        );
        assert_eq!(lines[1].0, 85);
    }

    #[test]
    fn replaced_queue_discipline_is_logged_once() {
        let looks = [
            (0, router(1, false)),
            (5, router(1, true)),
            (10, router(1, true)),
            (15, router(1, false)),
            (20, router(1, true)),
            (90, router(1, false)),
            (95, router(1, true)),
        ];
        let at: Vec<u64> = told(&looks).into_iter().map(|(at_s, _)| at_s).collect();
        assert_eq!(at, [5, 95]);
    }
}
