// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tasks for the machine other than experiments.

use crate::bill::Bill;
use crate::guest::{Task, Word};
use crate::kernel::{self, Kernel};
use crate::machine::{self, Setup};
use crate::verified::Report;
use xcp_player::cost::Subject;
use xcp_player::qdisc::Check;

use crate::{initramfs, interrupt, Error, Progress, Result};

type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Replaces, changes and deletes the queue discipline `xcp` so often under
/// load, and tells what held.
pub fn check_qdisc(kernel: Option<&str>, cycles: u32, progress: Tell) -> Result<Vec<Check>> {
    run(
        &find(kernel, progress)?,
        "qdisc",
        &Task::CheckQdisc { cycles },
        Setup::default(),
        progress,
        |word| match word {
            Word::Checks(checks) => Some(checks),
            _ => None,
        },
    )
}

/// Loads every program, and sends traffic through them, on a machine of so
/// many processors.
pub fn check_programs(kernel: Option<&str>, processors: u32, progress: Tell) -> Result<Report> {
    let kernel = find(kernel, progress)?;
    let setup = Setup {
        processors,
        ..Setup::default()
    };
    let mut loaded = Vec::new();
    let checks = run(
        &kernel,
        "programs",
        &Task::CheckPrograms,
        setup,
        progress,
        |word| match word {
            Word::Loaded(programs) => {
                loaded = programs;
                None
            }
            Word::Checks(checks) => Some(checks),
            _ => None,
        },
    )?;
    Report::new(kernel.release, processors, loaded, checks)
}

/// Counts the instructions that a part of the data path costs, and holds them
/// against the limits.
pub fn bench(what: Subject, kernel: Option<&str>, progress: Tell) -> Result<Bill> {
    let kernel = find(kernel, progress)?;
    let costs = run(
        &kernel,
        what.name(),
        &Task::Bench(what),
        Setup::default(),
        progress,
        |word| match word {
            Word::Costs(costs) => Some(costs),
            _ => None,
        },
    )?;
    Bill::new(what, kernel.release, costs)
}

fn find(wanted: Option<&str>, progress: Tell) -> Result<Kernel> {
    interrupt::watch();
    kernel::find(wanted, &|step| progress(Progress::Step(step)))
}

fn run<T>(
    kernel: &Kernel,
    name: &str,
    task: &Task,
    setup: Setup,
    progress: Tell,
    mut wanted: impl FnMut(Word) -> Option<T>,
) -> Result<T> {
    progress(Progress::Step(&format!("booting Linux {}", kernel.release)));
    let base = initramfs::base(kernel)?.finish();
    let work = tempfile::Builder::new()
        .prefix("xcp-lab-")
        .tempdir()
        .map_err(|e| Error::io("temporary folder", &e))?;
    machine::converse(kernel, &base, task, setup, work.path(), &mut |word| {
        if let Word::Done(done) = word {
            progress(Progress::Variant { name, done });
            return Ok(None);
        }
        Ok(wanted(word))
    })
}
