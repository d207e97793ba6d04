// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tasks for the machine other than experiments. What it said in an earlier run
//! is kept, as the results of experiments are. On several processors another run
//! may differ in what it measures, not in what it must show.

use xcp_player::cost::Subject;
use xcp_player::qdisc::Check;

use crate::bill::Bill;
use crate::guest::{Task, Word};
use crate::kept::Label;
use crate::machine::{self, Setup};
use crate::machines::workplace;
use crate::rig::Rig;
use crate::verified::Report;
use crate::{interrupt, Error, Progress, Result};

type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// How to do a task.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// `6.12`, `6.18`, `newest`, or the path of a kernel image.
    pub kernel: Option<String>,
    /// Even if the result of an earlier run is kept.
    pub fresh: bool,
}

/// Replaces, changes and deletes the queue discipline `xcp` so often under
/// load, and tells what held.
pub fn check_qdisc(options: &TaskOptions, cycles: u32, progress: Tell) -> Result<Vec<Check>> {
    let task = Task::CheckQdisc { cycles };
    let (_, words) = run(options, "qdisc", &task, Setup::default(), progress)?;
    find(words, |word| match word {
        Word::Checks(checks) => Some(checks),
        _ => None,
    })
}

/// Loads every program, and sends traffic through them, on a machine of so
/// many processors.
pub fn check_programs(options: &TaskOptions, processors: u32, progress: Tell) -> Result<Report> {
    let setup = Setup {
        processors,
        ..Setup::default()
    };
    let (release, words) = run(options, "programs", &Task::CheckPrograms, setup, progress)?;
    let mut loaded = Vec::new();
    let checks = find(words, |word| match word {
        Word::Loaded(programs) => {
            loaded = programs;
            None
        }
        Word::Checks(checks) => Some(checks),
        _ => None,
    })?;
    Report::new(release, processors, loaded, checks)
}

/// Counts the instructions that a part of the data path costs, and holds them
/// against the limits.
pub fn bench(what: Subject, options: &TaskOptions, progress: Tell) -> Result<Bill> {
    let task = Task::Bench(what);
    let (release, words) = run(options, what.name(), &task, Setup::default(), progress)?;
    let costs = find(words, |word| match word {
        Word::Costs(costs) => Some(costs),
        _ => None,
    })?;
    Bill::new(what, release, costs)
}

fn find<T>(words: Vec<Word>, wanted: impl FnMut(Word) -> Option<T>) -> Result<T> {
    let mut found = words.into_iter().filter_map(wanted);
    found
        .next()
        .ok_or_else(|| Error::new("the machine", "did not say what came of it", "report this"))
}

/// The kernel's release, and all that the machine says until it is done.
fn run(
    options: &TaskOptions,
    name: &str,
    task: &Task,
    setup: Setup,
    progress: Tell,
) -> Result<(String, Vec<Word>)> {
    interrupt::watch();
    let say = |step: &str| progress(Progress::Step(step));
    let rig = Rig::new(options.kernel.as_deref(), options.fresh, &say)?;
    let release = rig.release().to_owned();
    let machine = rig.equipment(task.has_edges())?;
    if let Some(words) = machine.kept.find(setup, task)? {
        progress(Progress::Kept {
            names: &[name],
            of: 1,
        });
        return Ok((release, words));
    }
    say(&format!("booting Linux {release}"));
    let work = workplace()?;
    let mut words = Vec::new();
    machine::converse(
        &rig.kernel,
        &machine.base,
        task,
        setup,
        work.path(),
        &mut |word| {
            match word {
                Word::Done(done) => progress(Progress::Variant { name, done }),
                Word::Finished => return Ok(Some(())),
                word => words.push(word),
            }
            Ok(None)
        },
    )?;
    let label = Label {
        experiment: "task".into(),
        variant: name.into(),
        seed: setup.seed,
        kernel: release.clone(),
    };
    machine.kept.keep(setup, task, &label, &words);
    Ok((release, words))
}
