// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Failures: messages on standard error and exit statuses.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;

use crate::terminal;
use crate::value::BadValue;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NOT_EXECUTABLE: u8 = 126;
pub const NOT_FOUND: u8 = 127;
pub const INTERRUPTED: u8 = 130;

/// Why a command failed, with the remedy and the exit status.
#[derive(Debug, Serialize)]
pub struct Failure {
    thing: String,
    reason: String,
    remedy: String,
    #[serde(skip)]
    status: u8,
}

/// The JSON form of a failure.
#[derive(Serialize)]
struct Report<'a> {
    error: &'a Failure,
}

impl From<xcp_datapath::Error> for Failure {
    fn from(e: xcp_datapath::Error) -> Self {
        Self {
            thing: e.thing,
            reason: e.reason,
            remedy: e.remedy,
            status: FAILED,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.thing, self.reason)
    }
}

impl std::error::Error for Failure {}

impl miette::Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.remedy))
    }
}

impl Failure {
    pub fn new(
        thing: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        xcp_datapath::Error::new(thing, reason, remedy).into()
    }

    /// An operating system error with the thing that it concerns.
    pub fn io(thing: impl Into<String>, e: &io::Error) -> Self {
        xcp_datapath::Error::io(thing, e).into()
    }

    /// The failure of a program that cannot be executed.
    pub fn not_started(program: &OsStr, e: &io::Error) -> Self {
        let name = program.to_string_lossy();
        match e.kind() {
            // a name without a slash is searched in the PATH, not in the working directory
            io::ErrorKind::NotFound if name.contains('/') && Path::new(program).is_file() => {
                Self::new(
                    name,
                    "the interpreter that its first line names is missing",
                    "install it, or correct the line",
                )
                .with_status(NOT_FOUND)
            }
            io::ErrorKind::NotFound => Self::new(
                name,
                "no such command",
                "check the name, or give the path of the program",
            )
            .with_status(NOT_FOUND),
            io::ErrorKind::PermissionDenied => {
                Self::new(name, "not executable", "give a program, or chmod +x it")
                    .with_status(NOT_EXECUTABLE)
            }
            _ => Self::io(name, e).with_status(NOT_EXECUTABLE),
        }
    }

    /// Writing to standard output failed.
    pub fn output(e: &io::Error) -> Self {
        Self::new(
            "standard output",
            e.to_string(),
            "check where it is redirected to: is the disk full?",
        )
    }

    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// The user interrupted the command.
    pub fn interrupted(self) -> Self {
        self.with_status(INTERRUPTED)
    }

    /// The command line is wrong.
    pub fn bad_usage(self) -> Self {
        self.with_status(USAGE)
    }

    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// The failure with its remedy, as plain text.
    pub fn with_help(&self) -> String {
        format!("{self}\n  help: {}", self.remedy)
    }

    /// Prints the failure; returns the exit status.
    pub fn report(self, json: bool) -> ExitCode {
        let status = self.status;
        let text = if json {
            serde_json::to_string(&Report { error: &self }).unwrap_or_default()
        } else if terminal::wants_colour(&io::stderr()) {
            format!("{:?}", miette::Report::new(self))
        } else {
            format!("xcp: {}", self.with_help())
        };
        print_error(&text);
        ExitCode::from(status)
    }
}

/// Prints to standard error; ignores write errors.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}

/// Prints what the command waits for, if standard error is a terminal.
pub fn print_wait(text: &str) {
    if io::stderr().is_terminal() {
        print_error(text);
    }
}

/// Prints an error of the command line, or the help or version that was requested.
pub fn usage(e: &clap::Error) -> ExitCode {
    let json = std::env::args_os()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json");
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !json => {}
        _ => {
            if let Some(failure) = bad_value(e) {
                return failure.report(json);
            }
            if json {
                return bad_line(e).report(true);
            }
        }
    }
    let _ = e.print();
    ExitCode::from(USAGE)
}

/// The failure for a value that one of our own parsers rejected.
fn bad_value(e: &clap::Error) -> Option<Failure> {
    let bad = std::error::Error::source(e)?.downcast_ref::<BadValue>()?;
    let context = |kind| match e.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let option = context(ContextKind::InvalidArg);
    let option = option.split(' ').next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue);
    let thing = format!("{option} {value}");
    Some(Failure::new(thing.trim_end(), &bad.reason, &bad.remedy).with_status(USAGE))
}

/// The failure for any other command line error: clap's first paragraph.
fn bad_line(e: &clap::Error) -> Failure {
    let text = e.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let end = lines.iter().position(|line| line.is_empty());
    let told = match e.kind() {
        // clap's text is the help
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a subcommand or an argument is missing".into()
        }
        _ => lines[..end.unwrap_or(lines.len())].join(" "),
    };
    let reason = told.strip_prefix("error: ").unwrap_or(&told);
    Failure::new("command line", reason, "see xcp --help").with_status(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_the_working_directory_is_not_a_command_without_a_slash() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let reason = |name| Failure::not_started(OsStr::new(name), &missing).reason;
        assert_eq!(reason("Cargo.toml"), "no such command");
        assert!(reason("./Cargo.toml").contains("interpreter"));
        assert_eq!(reason("./src"), "no such command");
    }
}
