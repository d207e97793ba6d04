// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Shell completions and man pages, which `x install` installs with the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::out::Out;

pub fn completions(shell: Shell, out: &Out) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "xcp", &mut script);
    out.raw(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// A man page of a file format, with its file name.
pub type Page = (&'static str, Vec<u8>);

/// Prints the command's page, or writes the pages of all subcommands and `further` to
/// a folder.
pub fn man(dir: Option<&Path>, further: &Page, out: &Out) -> Result<ExitCode, Failure> {
    match dir {
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command().disable_help_subcommand(true))
                .render(&mut page)
                .map_err(|e| Failure::output(&e))?;
            out.raw(&page)?;
        }
        Some(dir) => {
            let paths =
                write_all(dir, further).map_err(|e| Failure::io(dir.display().to_string(), &e))?;
            out.print(&paths, |_| {
                let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
                names.join("\n")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_all(dir: &Path, (name, page): &Page) -> std::io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut todo = vec![root];
    let mut written = Vec::new();
    while let Some(command) = todo.pop() {
        todo.extend(command.get_subcommands().cloned());
        written.push(Man::new(command).generate_to(dir)?);
    }
    fs::write(dir.join(name), page)?;
    written.push(dir.join(name));
    written.sort();
    Ok(written)
}
