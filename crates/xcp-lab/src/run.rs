// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Running an experiment by name: the lab's front door.

use std::path::PathBuf;

use serde::Serialize;

use crate::result::RunResult;
use crate::Result;

/// An experiment that `xcp lab list` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub name: String,
    /// Paper and figure.
    pub source: String,
    pub about: String,
}

/// How to run an experiment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A name from the list, or the path of a TOML file.
    pub experiment: String,
    pub seed: u64,
    /// `6.12`, `6.18`, or the path of a kernel image (its modules beside it).
    pub kernel: Option<String>,
    /// In namespaces of this host, in real time, rather than in the machine.
    pub native: bool,
    /// Folder for the report and the CSV files.
    pub out: Option<PathBuf>,
}

/// What is going on, for people.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A step before the run, such as fetching a kernel.
    Step(&'a str),
    /// A variant has got this far, 0 to 1.
    Variant { name: &'a str, done: f64 },
}

/// What a run gave, and where its files are.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub result: RunResult,
    /// The HTML report.
    pub report: PathBuf,
}

/// All experiments of the house.
pub fn list() -> Vec<Entry> {
    Vec::new()
}

/// Runs one.
///
/// # Errors
/// Unknown experiment, broken file, no kernel, a machine that will not boot;
/// [`crate::Error::is_interrupted`]-like errors after Ctrl-C.
pub fn run(_options: &Options, _progress: &(dyn Fn(Progress) + Sync)) -> Result<Outcome> {
    todo!()
}

/// What `xcp` does as the first process of the machine. Never returns.
pub fn guest_main() -> ! {
    std::process::exit(1)
}

/// The queue disciplines that native runs want, and whether they are here.
pub fn native_qdiscs() -> Vec<(&'static str, bool)> {
    Vec::new()
}
