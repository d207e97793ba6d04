// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the lab's machine does besides experiments: it checks the data path,
//! counts its costs, and runs programs of the user's. In a guest of its own, so
//! that results of experiments stay valid while this changes.

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

/// What the machine is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Replaces, changes and deletes the queue discipline so often.
    CheckQdisc { cycles: u32 },
    /// Loads every program for several numbers of processors, and sends traffic
    /// through them.
    CheckPrograms,
    /// Counts what a part of the data path costs.
    Bench(Subject),
    /// Runs a program of the user's.
    Exec(Program),
}

/// What the machine answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Loaded(Vec<Loaded>),
    Checks(Vec<Check>),
    Costs(Vec<Cost>),
    /// What the program of [`Task::Exec`] wrote, see [`exec::text_of`].
    Output(Stream, String),
    /// Its exit status, or 128 + the number of the signal that ended it.
    Exited(u8),
}

/// Does a task in the machine.
///
/// # Errors
/// What the task needs is missing, or it cannot be done.
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
