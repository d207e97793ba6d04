// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab`: executes `xcp-lab`, a program of its own with all that experiments
//! need, which does not run as root.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use xcp_cli::failure::{Failure, NOT_FOUND};

/// The program that does it.
pub const PROGRAM: &str = "xcp-lab";

/// The program beside this one, or on the PATH, if it is installed.
pub fn program() -> Option<PathBuf> {
    let here = env::current_exe().ok();
    let beside = here.and_then(|path| Some(path.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&path));
    folders.map(|dir| dir.join(PROGRAM)).find(|p| p.is_file())
}

/// Becomes that program, with the rest of the command line. Returns only if that
/// fails.
pub fn execute() -> Failure {
    let Some(program) = program() else {
        return Failure::new(
            PROGRAM,
            "not installed, neither beside xcp nor on the PATH",
            "install the package xcp-lab, or build it: ./x build",
        )
        .with_status(NOT_FOUND);
    };
    let e: io::Error = Command::new(&program).args(arguments()).exec();
    Failure::not_started(program.as_os_str(), &e)
}

/// Those of this program without its own name and the first `lab`, before which
/// there are only options without values.
fn arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = env::args_os().skip(1).collect();
    if let Some(lab) = all.iter().position(|word| word == "lab") {
        all.remove(lab);
    }
    all
}
