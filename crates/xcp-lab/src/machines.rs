// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs all variants of an experiment, each in a separate virtual machine, as many at a
//! time as there are processors. Variants with a result from an earlier run are skipped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;

use crate::experiment::Experiment;
use crate::guest::Request;
use crate::machine::Played;
use crate::options::{Options, Progress, Tell};
use crate::test_machine::TestMachine;
use crate::Result;

/// A variant and its outcome, if it has ended.
struct Play<'a> {
    name: &'a str,
    request: Request,
    outcome: Option<Result<Played>>,
}

/// Runs all variants until one fails.
pub(crate) fn play_all(
    experiment: &Experiment,
    options: &Options,
    points: &[String],
    progress: Tell,
) -> Result<Vec<Played>> {
    let say = |step: &str| progress(Progress::Step(step));
    let rig = TestMachine::new(options.kernel.as_deref(), options.fresh, &say)?;
    let look_up = |name| {
        let request = Request::new(experiment, name, options.seed, points)?;
        let outcome = rig.find(&request)?.map(Ok);
        Ok(Play {
            name,
            request,
            outcome,
        })
    };
    let names = experiment.variants.iter().map(|v| v.name.as_str());
    let mut plays: Vec<Play> = names.map(look_up).collect::<Result<_>>()?;
    let found = plays.iter().filter(|p| p.outcome.is_some());
    let found: Vec<&str> = found.map(|p| p.name).collect();
    if !found.is_empty() {
        progress(Progress::Kept {
            names: &found,
            of: plays.len(),
        });
    }
    if found.len() < plays.len() {
        say(&format!("booting Linux {}", rig.release()));
        let failed = AtomicBool::new(false);
        let left = plays.iter_mut().filter(|p| p.outcome.is_none());
        run_parallel(left, |play| {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            let name = play.name;
            let on_progress = |done| progress(Progress::Variant { name, done });
            let outcome = rig.play(&play.request, &on_progress);
            failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            play.outcome = Some(outcome);
        });
    }
    plays.into_iter().filter_map(|p| p.outcome).collect()
}

/// Runs jobs in order, as many at a time as there are processors.
pub(crate) fn run_parallel<T>(jobs: impl Iterator<Item = T> + Send, each: impl Fn(T) + Sync) {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(jobs);
    let work_off = || loop {
        let next = left.lock().ok().and_then(|mut left| left.next());
        let Some(job) = next else { return };
        each(job);
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work_off);
        }
    });
}
