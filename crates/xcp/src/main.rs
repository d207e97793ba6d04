// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The command `xcp`: XCP on this host, on its devices, and in the lab.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

mod capacity;
mod cli;
mod doctor;
mod edged;
mod failure;
mod feed;
mod host;
mod lab;
mod manual;
mod out;
mod path;
mod progress;
mod router;
mod run;
mod screen;
mod status;
mod summary;
mod table;
mod trace;
mod units;
mod value;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use cli::{Action, Cli};
use failure::Failure;
use out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return failure::usage(&e),
    };
    xcp_datapath::set_verbose(cli.verbose);
    let out = Out::new(cli.json);
    act(cli.action, &out).unwrap_or_else(|failure| failure.report(cli.json))
}

fn act(action: Action, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        Action::Host(action) => host::act(action, out),
        Action::Run { command } => run::act(&command),
        Action::Router(action) => router::act(action, out),
        Action::Edged(action) => edged::act(action, out),
        Action::Status => status::act(out),
        Action::Doctor { path } => doctor::act(path, out),
        Action::Lab(action) => lab::act(action, out),
        Action::Completions { shell } => manual::completions(shell, out),
        Action::Man { out: dir } => manual::man(dir.as_deref(), out),
    }
}
