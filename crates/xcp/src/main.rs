// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The command `xcp`: manages XCP on this host and on its devices.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

mod config;
mod device;
mod doctor;
mod edged;
mod feed;
mod gateway;
mod host;
mod lab;
mod metrics;
mod router;
mod run;
mod status;
mod top;
mod trace;
mod watch;
mod why;

use std::process::ExitCode;

use clap::Parser;
use xcp_cli::cli::{Action, Cli};
use xcp_cli::failure::{self, Failure};
use xcp_cli::manual;
use xcp_cli::out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return failure::usage(&e),
    };
    xcp_datapath::set_verbose(cli.output.verbose);
    let json = cli.output.json;
    act(cli.action, &Out::new(json)).unwrap_or_else(|failure| failure.report(json))
}

fn act(action: Action, out: &Out) -> Result<ExitCode, Failure> {
    if uses_pins(&action) {
        xcp_datapath::sweep_if_free();
    }
    match action {
        Action::Host(action) => host::act(action, out),
        Action::Run { command } => run::act(&command),
        Action::Router(action) => router::act(action, out),
        Action::Edged(action) => edged::act(action, out),
        Action::Gateway(action) => gateway::act(action, out),
        Action::Apply(asked) => config::apply(&asked, out),
        Action::Config(action) => config::act(&action, out),
        Action::Metrics(asked) => metrics::act(&asked, out),
        Action::Top(asked) => top::act(&asked, out),
        Action::Why { host } => why::act(&host, out),
        Action::Status => status::act(out),
        Action::Doctor { path } => doctor::act(path, out),
        Action::Lab(_) => Err(lab::execute()),
        Action::Completions { shell } => manual::completions(shell, out),
        Action::Man { out: dir } => manual::man(dir.as_deref(), &config::page(), out),
    }
}

/// Whether a command uses pinned BPF objects.
fn uses_pins(action: &Action) -> bool {
    !matches!(
        action,
        Action::Lab(_) | Action::Completions { .. } | Action::Man { .. }
    )
}
