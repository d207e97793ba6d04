// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tasks of the machine other than experiments. Their answers are kept like the results of
//! experiments. On several processors, measured values may differ between runs, but the
//! outcomes of checks must not.

use xcp_checks::check::Check;
use xcp_checks::cost::Subject;
use xcp_checks::{Answer, Task};

use crate::cache::Label;
use crate::cost_report::CostReport;
use crate::guest::Message;
use crate::initramfs::Guest;
use crate::machine::{self, Setup};
use crate::options::Tell;
use crate::test_machine::TestMachine;
use crate::verifier_report::Report;
use crate::{interrupt, Error, Progress, Result};

/// Options of a task.
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    /// `6.12`, `6.18`, `newest`, or the path of a kernel image.
    pub kernel: Option<String>,
    /// Run again even if there is a result from an earlier run.
    pub fresh: bool,
}

/// Replaces, changes and deletes the queue discipline `xcp` under load `cycles` times, and
/// returns the checks.
pub fn check_qdisc(options: &TaskOptions, cycles: u32, progress: Tell) -> Result<Vec<Check>> {
    let task = Task::CheckQdisc { cycles };
    let (_, answers) = run(options, "qdisc", &task, Setup::default(), progress)?;
    find(answers, |answer| match answer {
        Answer::Checks(checks) => Some(checks),
        _ => None,
    })
}

/// Loads every program and sends traffic through them, on a machine with this number of
/// processors.
pub fn check_programs(options: &TaskOptions, processors: u32, progress: Tell) -> Result<Report> {
    let setup = Setup {
        processors,
        ..Setup::default()
    };
    let (release, answers) = run(options, "programs", &Task::CheckPrograms, setup, progress)?;
    let mut loaded = Vec::new();
    let checks = find(answers, |answer| match answer {
        Answer::Loaded(programs) => {
            loaded = programs;
            None
        }
        Answer::Checks(checks) => Some(checks),
        _ => None,
    })?;
    Report::new(release, processors, loaded, checks)
}

/// Counts the instructions of a part of the data path, and compares them with the limits.
pub fn bench(what: Subject, options: &TaskOptions, progress: Tell) -> Result<CostReport> {
    let task = Task::Bench(what);
    let (release, answers) = run(options, what.name(), &task, Setup::default(), progress)?;
    let costs = find(answers, |answer| match answer {
        Answer::Costs(costs) => Some(costs),
        _ => None,
    })?;
    CostReport::new(what, release, costs)
}

fn find<T>(answers: Vec<Answer>, wanted: impl FnMut(Answer) -> Option<T>) -> Result<T> {
    let mut found = answers.into_iter().filter_map(wanted);
    found
        .next()
        .ok_or_else(|| Error::new("the machine", "sent no result", "report this"))
}

/// Runs a task. Returns the kernel's release and all answers of the machine.
fn run(
    options: &TaskOptions,
    name: &str,
    task: &Task,
    setup: Setup,
    progress: Tell,
) -> Result<(String, Vec<Answer>)> {
    interrupt::watch();
    let say = |step: &str| progress(Progress::Step(step));
    let rig = TestMachine::new(options.kernel.as_deref(), options.fresh, &say)?;
    let release = rig.release().to_owned();
    let machine = rig.equipment(Guest::Checks)?;
    if let Some(answers) = machine.kept.find(setup, task)? {
        say(&format!("{name}: cached (--fresh runs it again)"));
        return Ok((release, answers));
    }
    say(&format!("booting Linux {release}"));
    let mut answers = Vec::new();
    machine::run_machine(&rig.kernel, &machine.base, task, setup, &mut |message| {
        match message {
            Message::Done(done) => progress(Progress::Variant { name, done }),
            Message::Answer(answer) => answers.push(answer),
            Message::Finished => return Ok(Some(())),
            _ => (),
        }
        Ok(None)
    })?;
    let label = Label {
        experiment: "task".into(),
        variant: name.into(),
        seed: setup.seed,
        kernel: release.clone(),
    };
    machine.kept.keep(setup, task, &label, &answers);
    Ok((release, answers))
}
