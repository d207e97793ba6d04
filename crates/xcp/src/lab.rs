// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab`: executes the separate program `xcp-lab`, which runs experiments and does
//! not need root.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use xcp_cli::failure::{Failure, NOT_FOUND};
use xcp_cli::programs;

/// The name of the program.
pub const PROGRAM: &str = "xcp-lab";

/// Finds the program in the folder of this one or on the PATH.
pub fn program() -> Option<PathBuf> {
    let here = env::current_exe().ok();
    let own = here.and_then(|path| Some(path.parent()?.join(PROGRAM)));
    own.filter(|path| path.is_file())
        .or_else(|| programs::on_path(PROGRAM))
}

/// Executes the program in this process with the rest of the command line. Returns only
/// on failure.
pub fn execute() -> Failure {
    let Some(program) = program() else {
        return Failure::new(
            PROGRAM,
            "not installed, neither in the folder of xcp nor on the PATH",
            "install the package xcp-lab, or build it: ./x build",
        )
        .with_status(NOT_FOUND);
    };
    let e: io::Error = Command::new(&program).args(arguments()).exec();
    Failure::not_started(program.as_os_str(), &e)
}

/// The arguments of this program without its own name and the first `lab`. Before `lab`
/// there are only options without values.
fn arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = env::args_os().skip(1).collect();
    if let Some(lab) = all.iter().position(|word| word == "lab") {
        all.remove(lab);
    }
    all
}
