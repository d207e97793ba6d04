// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab exec`: runs a program of this computer in a virtual machine.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use xcp_lab::{ExecOptions, Stream};

use super::interruptible;
use super::progress::Progress;
use xcp_cli::cli::LabExec;
use xcp_cli::failure::Failure;
use xcp_cli::out;
use xcp_cli::programs;

pub fn act(asked: LabExec) -> Result<ExitCode, Failure> {
    let mut command = asked.command.into_iter();
    let name = command.next().unwrap_or_default();
    let options = ExecOptions {
        kernel: asked.kernel.name,
        program: find(&name).map_err(|e| Failure::not_started(OsStr::new(&name), &e))?,
        arguments: command.collect(),
        files: asked.files,
    };
    let progress = Progress::new();
    let is_terminal = io::stderr().is_terminal();
    let on_progress = |news: xcp_lab::Progress| {
        // if it is not a terminal, only the program writes to standard error
        if is_terminal {
            progress.on_progress(news);
        }
    };
    let mut failure = None;
    let mut write = |stream, bytes: &[u8]| match stream {
        Stream::Error => {
            let _ = io::stderr().write_all(bytes); // write errors are ignored
            true
        }
        Stream::Output => out::write(bytes).unwrap_or_else(|e| {
            failure = Some(e);
            false
        }),
    };
    let status = xcp_lab::exec(&options, &mut write, &on_progress).map_err(interruptible)?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from)),
    }
}

/// Finds a program: a path, or a name on the PATH.
fn find(name: &str) -> io::Result<PathBuf> {
    let path = match name.contains('/') {
        true => Some(PathBuf::from(name)),
        false => programs::on_path(name),
    };
    let path = path.ok_or(io::ErrorKind::NotFound)?;
    if programs::is_executable(&path)? {
        Ok(path)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
