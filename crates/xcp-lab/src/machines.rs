// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! All variants of a run, each in a machine of its own, as many at a time as
//! there are processors. Those kept from an earlier run are not run again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread;

use crate::experiment::Experiment;
use crate::guest::Request;
use crate::kept::{Label, Session};
use crate::kernel::Kernel;
use crate::machine::{self, Played, Setup};
use crate::run::{Options, Progress, Tell};
use crate::{initramfs, kernel, Error, Result};

/// A variant, and what came of it so far.
struct Play<'a> {
    name: &'a str,
    request: Request,
    outcome: Option<Result<Played>>,
}

/// Plays all variants.
pub fn play_all(
    experiment: &Experiment,
    options: &Options,
    points: &[String],
    progress: Tell,
) -> Result<Vec<Played>> {
    let say = |step: &str| progress(Progress::Step(step));
    let kernel = kernel::find(options.kernel.as_deref(), &say)?;
    let base = initramfs::base(&kernel)?.finish();
    let kept = Session::open(&kernel, &base, options.fresh, &say)?;
    let look_up = |name| {
        let request = Request::new(experiment, name, options.seed, points)?;
        let outcome = kept.find(Setup::of(&request), &request)?.map(Ok);
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
        say(&format!("booting Linux {}", kernel.release));
        let work = tempfile::Builder::new()
            .prefix("xcp-lab-")
            .tempdir()
            .map_err(|e| Error::io("temporary folder", &e))?;
        boot(&mut plays, &kernel, &base, &kept, work.path(), progress);
    }
    plays.into_iter().filter_map(|p| p.outcome).collect()
}

/// Plays those that have no outcome, until one fails.
fn boot(
    plays: &mut [Play],
    kernel: &Kernel,
    base: &[u8],
    kept: &Session,
    work: &Path,
    progress: Tell,
) {
    let left = plays.iter_mut().filter(|p| p.outcome.is_none());
    let left: Vec<&mut Play> = left.collect();
    let workers = thread::available_parallelism().map_or(1, |n| n.get().min(left.len()));
    let left = Mutex::new(left.into_iter().enumerate());
    let failed = AtomicBool::new(false);
    let work_off = || {
        while !failed.load(Ordering::Relaxed) {
            let next = left.lock().ok().and_then(|mut left| left.next());
            let Some((number, play)) = next else { return };
            let Play {
                name,
                request,
                outcome,
            } = play;
            let place = work.join(number.to_string());
            let tell = |done| progress(Progress::Variant { name, done });
            let run = || {
                fs::create_dir(&place).map_err(|e| Error::io(place.display().to_string(), &e))?;
                let played = machine::play(kernel, base, request, &place, &tell)?;
                let label = Label::of_play(request, &played);
                kept.keep(Setup::of(request), request, &label, &played);
                Ok(played)
            };
            let result = run();
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            *outcome = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work_off);
        }
    });
}
