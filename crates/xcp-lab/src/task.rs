// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tasks for the machine other than experiments.

use crate::guest::{Task, Word};
use crate::machine::{self, Setup};
use crate::qdisc::{Check, Cost};
use crate::{initramfs, interrupt, kernel, Error, Progress, Result};

type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Replaces, changes and deletes the queue discipline `xcp` so often under
/// load, and tells what held.
pub fn check_qdisc(kernel: Option<&str>, cycles: u32, progress: Tell) -> Result<Vec<Check>> {
    run(
        kernel,
        &Task::CheckQdisc { cycles },
        progress,
        |word| match word {
            Word::Checks(checks) => Some(checks),
            _ => None,
        },
    )
}

/// What a packet costs in the queue discipline `xcp` and in others, in the
/// same machine.
pub fn bench_qdisc(kernel: Option<&str>, progress: Tell) -> Result<Vec<Cost>> {
    run(kernel, &Task::BenchQdisc, progress, |word| match word {
        Word::Costs(costs) => Some(costs),
        _ => None,
    })
}

fn run<T>(
    kernel: Option<&str>,
    task: &Task,
    progress: Tell,
    wanted: impl Fn(Word) -> Option<T>,
) -> Result<T> {
    interrupt::watch();
    let kernel = kernel::find(kernel, &|step| progress(Progress::Step(step)))?;
    progress(Progress::Step(&format!("booting Linux {}", kernel.release)));
    let base = initramfs::base(&kernel)?.finish();
    let work = tempfile::Builder::new()
        .prefix("xcp-lab-")
        .tempdir()
        .map_err(|e| Error::io("temporary folder", &e))?;
    machine::converse(
        &kernel,
        &base,
        task,
        Setup::default(),
        work.path(),
        &mut |word| {
            if let Word::Done(done) = word {
                progress(Progress::Variant {
                    name: "qdisc",
                    done,
                });
                return Ok(None);
            }
            Ok(wanted(word))
        },
    )
}
