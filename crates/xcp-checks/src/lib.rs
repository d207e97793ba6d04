// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The tasks of the lab's machine other than experiments: check the data path,
//! count its costs, and run user programs. They have a separate guest program, so that
//! changes here do not invalidate the results of experiments.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

pub mod check;
pub mod cost;
pub mod exec;
pub mod programs;
pub mod qdisc;

use serde::{Deserialize, Serialize};
use xcp_player::guest::Channel;
use xcp_player::{Error, Result};

use check::Check;
use cost::{Cost, Subject};
use exec::{Program, Stream};
use programs::Loaded;

/// A task for the machine.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Check the queue discipline: among other checks, install, change and delete it
    /// `cycles` times under load.
    CheckQdisc { cycles: u32 },
    /// Load every program for several numbers of processors, and send traffic through
    /// them.
    CheckPrograms,
    /// Count the cost of a part of the data path.
    Bench(Subject),
    /// Run a user program.
    Exec(Program),
}

/// A message from the machine about its task.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Loaded(Vec<Loaded>),
    Checks(Vec<Check>),
    Costs(Vec<Cost>),
    /// Output of the program of [`Task::Exec`], see [`exec::text_of`].
    Output(Stream, String),
    /// The exit status of this program, or 128 + the number of the signal that ended it.
    Exited(u8),
}

/// Runs a task in the machine.
///
/// # Errors
/// A requirement of the task is missing, or the task fails.
pub fn run(task: Task, channel: &Channel) -> Result<()> {
    let mut progress = |done| channel.progress(done);
    match task {
        Task::CheckQdisc { cycles } => {
            channel.answer(Answer::Checks(qdisc::check(cycles, &mut progress)?));
        }
        Task::CheckPrograms => {
            channel.answer(Answer::Loaded(programs::load()?));
            channel.answer(Answer::Checks(programs::check(&mut progress)?));
        }
        Task::Bench(subject) => {
            channel.answer(Answer::Costs(cost::count(subject, &mut progress)?));
        }
        Task::Exec(program) => {
            let mut write = |stream, text| channel.answer(Answer::Output(stream, text));
            let status = exec::run(&program, &mut write)?;
            channel.answer(Answer::Exited(status));
        }
    }
    Ok(())
}
