// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The command `xcp-lab`, which `xcp lab` executes: runs experiments in the virtual-time
//! machine.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

mod command;

use std::process::ExitCode;

use clap::Parser;
use xcp_cli::cli::Lab;
use xcp_cli::failure;
use xcp_cli::out::Out;

fn main() -> ExitCode {
    let lab = match Lab::try_parse() {
        Ok(lab) => lab,
        Err(e) => return failure::usage(&e),
    };
    xcp_datapath::set_verbose(lab.output.verbose);
    let json = lab.output.json;
    command::act(lab.action, &Out::new(json)).unwrap_or_else(|failure| failure.report(json))
}
