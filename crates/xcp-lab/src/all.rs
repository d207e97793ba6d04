// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs all built-in experiments. Each variant on each of its kernels is a case. Cases with
//! a result from an earlier run are skipped. The longest cases start first. A failing case
//! does not stop the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use crate::case::{Case, Judged, Row, State};
use crate::experiment::{Experiment, Link};
use crate::guest::Request;
use crate::kernel::DEFAULT_SERIES;
use crate::machine::Played;
use crate::machines::run_parallel;
use crate::options::{Progress, Tell};
use crate::results::Written;
use crate::test_machine::TestMachine;
use crate::{cache, catalog, figures, interrupt, metrics, results, Error, Result};

/// The seed of all runs, so that they can be compared.
const SEED: u64 = 1;

/// Options of `xcp lab all`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Run only quick variants; check the others only if they have a result from an earlier
    /// run.
    pub quick: bool,
    /// Run cases again that have a result from an earlier run.
    pub fresh: bool,
    /// The document to write the figures to. Figures quoted in the other documents of its
    /// folder, and in README.md of the folder above, are updated from it.
    pub results: Option<PathBuf>,
}

/// The results of all experiments.
#[derive(Debug, Serialize)]
pub struct All {
    pub rows: Vec<Row>,
    /// No row has failed.
    pub ok: bool,
    /// Why the figures of other documents could not be updated.
    #[serde(skip)]
    pub figures: Option<Error>,
}

/// A case that can be run.
pub(crate) struct Planned {
    pub case: Case,
    pub quick: bool,
    /// The experiment with only this variant.
    experiment: Experiment,
}

impl Planned {
    /// Duration in virtual seconds.
    pub fn duration_s(&self) -> f64 {
        self.experiment.duration_s
    }

    pub fn request(&self) -> Result<Request> {
        Request::new(&self.experiment, &self.case.variant, SEED, &[])
    }

    /// Runs the case and compares its figures with the experiment's checks.
    pub fn play(&self, rig: &TestMachine, on_progress: &dyn Fn(f64)) -> Result<Judged> {
        let played = rig.play(&self.request()?, on_progress)?;
        Ok(self.judge(self.key(rig)?, false, played))
    }

    /// The key of the case's row: a hash of the key of its result and of its checks.
    pub fn key(&self, rig: &TestMachine) -> Result<String> {
        let broken = |e: serde_json::Error| Error::new("checks", e.to_string(), "report this");
        let checks = serde_json::to_string(&self.experiment.checks).map_err(broken)?;
        let result = rig.key(&self.request()?)?;
        Ok(cache::digest(format!("{result}\n{checks}").as_bytes()).to_string())
    }

    /// Looks for the result of an earlier run, first among the kept results, then in the
    /// document's row.
    fn look_up(&self, rig: &TestMachine, written: Option<&Written>) -> Result<State> {
        let key = self.key(rig)?;
        Ok(match rig.find(&self.request()?)? {
            Some(played) => State::Judged(Box::new(self.judge(key, true, played))),
            None if written.is_some_and(|row| row.has_key(&key) && row.passes()) => {
                State::Written {
                    release: rig.release().to_owned(),
                }
            }
            None => State::Unchecked { key },
        })
    }

    fn judge(&self, key: String, kept: bool, played: Played) -> Judged {
        let mut result = played.result;
        result.checks = metrics::checks(&self.experiment, &result, &played.kernel);
        Judged {
            release: played.kernel,
            key,
            kept,
            varies: self.experiment.bottleneck_link().is_some_and(Link::varies),
            result,
        }
    }
}

/// Lists all cases in the order of the catalog.
pub(crate) fn plan() -> Result<Vec<Planned>> {
    let mut all = Vec::new();
    for experiment in catalog::all() {
        let experiment = experiment?;
        for variant in &experiment.variants {
            let name = || variant.name.clone();
            let mut kernels = variant.kernels.clone();
            if kernels.is_empty() {
                kernels.push(DEFAULT_SERIES.to_owned());
            }
            for (turn, kernel) in kernels.into_iter().enumerate() {
                all.push(Planned {
                    case: Case {
                        experiment: experiment.name.clone(),
                        variant: name(),
                        kernel,
                    },
                    // quick runs use only the first kernel
                    quick: variant.quick && turn == 0,
                    experiment: experiment.keep(&[name()])?,
                });
            }
        }
    }
    Ok(all)
}

/// Prepares a test machine for each kernel of these cases; a kernel that is not available
/// has an error instead.
///
/// # Errors
/// The user interrupts the command.
pub(crate) fn test_machines<'a>(
    cases: impl Iterator<Item = &'a Planned>,
    fresh: bool,
    say: &'a (dyn Fn(&str) + Sync),
) -> Result<BTreeMap<&'a str, Result<TestMachine<'a>>>> {
    let mut test_machines = BTreeMap::new();
    for planned in cases {
        let kernel = planned.case.kernel.as_str();
        test_machines
            .entry(kernel)
            .or_insert_with(|| TestMachine::new(Some(kernel), fresh, say));
        if interrupt::requested() {
            return Err(interrupt::error());
        }
    }
    Ok(test_machines)
}

/// A case to run.
struct Job<'a> {
    planned: &'a Planned,
    rig: &'a TestMachine<'a>,
    state: &'a mut State,
}

/// Runs all cases or looks up their results. If `options` names a document, writes it and
/// updates the figures in other documents that quote it. An interrupt ends the command after
/// the document was written with the cases that have ended.
///
/// # Errors
/// An experiment is invalid, a document cannot be read or written, or the user interrupts the
/// command. Failures of cases are in their rows.
pub fn run_all(options: &Options, progress: Tell) -> Result<All> {
    interrupt::watch();
    let say = |step: &str| progress(Progress::Step(step));
    let planned = plan()?;
    let before = match &options.results {
        Some(path) => results::before(path)?,
        None => String::new(),
    };
    let test_machines = test_machines(planned.iter(), options.fresh, &say)?;
    let written = results::read(&before);
    let written = |case: &Case| written.get(case).filter(|_| !options.fresh);
    let states = planned.iter().map(|one| {
        let rig = test_machines[one.case.kernel.as_str()].as_ref();
        match rig.map(|rig| one.look_up(rig, written(&one.case))) {
            Ok(Ok(state)) => state,
            Ok(Err(e)) => State::failed(&e),
            Err(e) => State::failed(e),
        }
    });
    let mut states: Vec<State> = states.collect();
    let mut jobs = Vec::new();
    for (planned, state) in planned.iter().zip(&mut states) {
        let rig = &test_machines[planned.case.kernel.as_str()];
        let wanted = planned.quick || !options.quick;
        if let (State::Unchecked { .. }, Ok(rig), true) = (&*state, rig, wanted) {
            jobs.push(Job {
                planned,
                rig,
                state,
            });
        }
    }
    let count = jobs.len();
    say(&format!("{count} of {} cases to run", planned.len()));
    run(jobs, progress);
    let rows = planned.into_iter().zip(states);
    let rows = rows.map(|(planned, state)| Row {
        case: planned.case,
        state,
    });
    let rows: Vec<Row> = rows.collect();
    let document = options.results.as_ref();
    let document = document.map(|path| (path, results::document(&rows, &before)));
    if let Some((path, text)) = &document {
        fs::write(path, text).map_err(|e| Error::io(path.display().to_string(), &e))?;
    }
    if interrupt::requested() {
        return Err(interrupt::error());
    }
    let figures = document.map_or(Ok(Vec::new()), |(path, text)| figures::fill(path, &text));
    for changed in figures.iter().flatten() {
        say(&format!("{}: figures changed", changed.display()));
    }
    Ok(All {
        ok: rows.iter().all(Row::ok),
        rows,
        figures: figures.err(),
    })
}

/// Runs jobs, starting with the longest.
fn run(mut jobs: Vec<Job>, progress: Tell) {
    let length_s = |job: &Job| job.planned.duration_s();
    jobs.sort_by(|a, b| length_s(b).total_cmp(&length_s(a)));
    let left = Mutex::new(RemainingTime::new(jobs.iter().map(length_s)));
    run_parallel(jobs.into_iter().enumerate(), |(turn, job)| {
        if interrupt::requested() {
            return;
        }
        let title = job.planned.case.title();
        let name = title.as_str();
        let note = |done| {
            left.lock()
                .unwrap_or_else(|e| e.into_inner())
                .note(turn, done)
        };
        let on_progress = |done| {
            note(done);
            progress(Progress::Variant { name, done });
        };
        let judged = job.planned.play(job.rig, &on_progress);
        if judged.is_err() && interrupt::requested() {
            return; // the row keeps its earlier figures
        }
        *job.state = judged.into();
        let count = note(1.0);
        let mark = if job.state.ok() { "ok" } else { "FAILED" };
        let said = &format!("{count}: {name}: {mark}");
        progress(Progress::Ended { name, said });
    });
}

/// The remaining work, in virtual seconds.
struct RemainingTime {
    began: Instant,
    lengths_s: Vec<f64>,
    /// Progress of each job, 0 to 1.
    done: Vec<f64>,
}

impl RemainingTime {
    fn new(lengths_s: impl Iterator<Item = f64>) -> Self {
        let lengths_s: Vec<f64> = lengths_s.collect();
        Self {
            began: Instant::now(),
            done: vec![0.0; lengths_s.len()],
            lengths_s,
        }
    }

    /// Records the progress of a job; returns a summary of all jobs.
    fn note(&mut self, job: usize, done: f64) -> String {
        self.done[job] = done;
        self.described(self.began.elapsed())
    }

    fn described(&self, elapsed: Duration) -> String {
        let over = self.done.iter().filter(|done| **done >= 1.0).count();
        let count = format!("{over} of {}", self.done.len());
        let of_s: f64 = self.lengths_s.iter().sum();
        let done = self.done.iter().zip(&self.lengths_s);
        let done_s: f64 = done.map(|(part, length_s)| part * length_s).sum();
        let left_s = elapsed.as_secs_f64() * (of_s - done_s) / done_s;
        if over == self.done.len() || !left_s.is_finite() {
            return count;
        }
        format!("{count}, about {} left", minutes(left_s))
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 60.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_unique_and_use_known_kernels() {
        let planned = plan().expect("all are valid");
        let mut cases: Vec<Case> = planned.iter().map(|p| p.case.clone()).collect();
        assert!(cases.iter().all(|c| crate::kernel::is_series(&c.kernel)));
        cases.sort();
        let count = cases.len();
        cases.dedup();
        assert_eq!(cases.len(), count);
        assert!(planned.iter().any(|p| p.quick));
        assert!(planned.iter().any(|p| !p.quick));
    }

    #[test]
    fn remaining_time_is_estimated_from_virtual_time() {
        let mut left = RemainingTime::new([100.0, 50.0, 50.0].into_iter());
        let after = |left: &RemainingTime, seconds| left.described(Duration::from_secs(seconds));
        assert_eq!(after(&left, 0), "0 of 3");
        left.done = vec![1.0, 0.0, 0.0];
        assert_eq!(after(&left, 30), "1 of 3, about 30 s left");
        left.done[1] = 0.5;
        assert_eq!(after(&left, 300), "1 of 3, about 3 min left");
        left.done = vec![1.0; 3];
        assert_eq!(after(&left, 60), "3 of 3");
    }
}
