// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! File transfers, each over its own connection and started at a random time,
//! and how long each takes.

use std::time::Duration;

use crate::experiment::{Experiment, Transfers, Variant};
use crate::random::{log_uniform, uniform};
use crate::result::TransferResult;
use crate::topology::Topology;
use crate::traffic::Running;
use crate::Result;

/// One transfer, as planned from the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct File {
    at: Duration,
    bytes: u64,
    /// The time from the start of its connection until its last byte was read.
    took: Option<Duration>,
}

/// All transfers of a run. Running transfers are served together with the
/// flows, and follow them in the order of `running`.
pub struct TransferRun {
    files: Vec<File>,
    begun: usize,
    /// The indices of the running transfers, and when they were started.
    running: Vec<(usize, Duration)>,
}

impl TransferRun {
    /// Plans Poisson arrivals; the logarithms of the sizes are uniformly
    /// distributed.
    pub fn plan(experiment: &Experiment, seed: u64) -> Self {
        let files = experiment.transfers.as_ref().map(|t| {
            let mut state = seed;
            let gap_s = t.mean_bytes() * 8.0 / (t.load * experiment.capacity_bps());
            let mut at_s = 0.0;
            let file = |_| {
                at_s -= (1.0 - uniform(&mut state)).ln() * gap_s;
                File {
                    at: Duration::from_secs_f64(at_s),
                    bytes: log_uniform(&mut state, t.bytes),
                    took: None,
                }
            };
            (0..t.count).map(file).collect()
        });
        Self {
            files: files.unwrap_or_default(),
            begun: 0,
            running: Vec::new(),
        }
    }

    /// Starts the transfers that are due by now.
    pub fn begin(
        &mut self,
        experiment: &Experiment,
        variant: &Variant,
        stage: &Topology,
        now: Duration,
        served: &mut Vec<Option<Running>>,
    ) -> Result<()> {
        let Some(transfers) = &experiment.transfers else {
            return Ok(());
        };
        while let Some(file) = self.files.get(self.begun).filter(|f| f.at <= now) {
            let port = experiment.flows.len() + self.begun;
            let bytes = file.bytes;
            let begun = Running::fetch(experiment, stage, transfers, port, variant, bytes)?;
            served.push(Some(begun));
            self.running.push((self.begun, now));
            self.begun += 1;
        }
        Ok(())
    }

    /// Removes the transfers whose last byte has been read; in `served` they
    /// follow `others`.
    pub fn finish(&mut self, now: Duration, others: usize, served: &mut Vec<Option<Running>>) {
        for i in (0..self.running.len()).rev() {
            let done = served[others + i].as_ref().is_none_or(Running::is_over);
            if done {
                let (file, begun) = self.running.swap_remove(i);
                served.swap_remove(others + i);
                self.files[file].took = Some(now.saturating_sub(begun));
            }
        }
    }

    /// The results by size, in half decades.
    pub fn results(&self, transfers: &Transfers) -> Vec<TransferResult> {
        let [least, most] = transfers.bytes;
        let steps = (0..19).flat_map(|decade| [1, 3].map(|step| step * 10u64.pow(decade)));
        let mut edges: Vec<u64> = steps.filter(|e| *e > least && *e < most).collect();
        edges.insert(0, least);
        edges.push(most + 1);
        let class = |edge: &[u64]| {
            let of = |f: &&File| (edge[0]..edge[1]).contains(&f.bytes);
            let count = self.files.iter().filter(of).count();
            let took: Vec<f64> = self
                .files
                .iter()
                .filter(of)
                .filter_map(|f| f.took)
                .map(|took| took.as_secs_f64())
                .collect();
            TransferResult {
                from_bytes: edge[0],
                to_bytes: edge[1],
                count,
                done: took.len(),
                total_s: took.iter().sum(),
            }
        };
        edges.windows(2).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_transfers_have_the_configured_load() {
        let text = include_str!("../../../experiments/short-flows.toml");
        let experiment = Experiment::parse("short-flows", text).expect("valid");
        let transfers = experiment.transfers.as_ref().expect("has some");
        let fetched = TransferRun::plan(&experiment, 1);
        assert_eq!(fetched.files, TransferRun::plan(&experiment, 1).files);
        assert_ne!(fetched.files, TransferRun::plan(&experiment, 2).files);
        assert_eq!(fetched.files.len(), transfers.count);
        let last = fetched.files.last().expect("some").at.as_secs_f64();
        let bytes: u64 = fetched.files.iter().map(|f| f.bytes).sum();
        let load = bytes as f64 * 8.0 / last / experiment.capacity_bps();
        assert!((load / transfers.load - 1.0).abs() < 0.1, "{load}");
        let classes = fetched.results(transfers);
        let edges: Vec<u64> = classes.iter().map(|c| c.from_bytes).collect();
        assert_eq!(edges, [10_000, 30_000, 100_000, 300_000]);
        let counted: usize = classes.iter().map(|c| c.count).sum();
        assert_eq!(counted, transfers.count);
    }
}
