// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs a program of this computer in the virtual machine. Its results are not kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use xcp_checks::exec::{self, Program, Stream};
use xcp_checks::{Answer, Task};

use crate::guest::Message;
use crate::initramfs::{self, Archive, Guest};
use crate::kernel::{self, Kernel};
use crate::machine::{self, Setup};
use crate::options::{Progress, Tell};
use crate::{interrupt, Error, Result};

/// Kernel modules that programs may use, in addition to those of all machines.
const MODULES: &[&str] = &[
    "bridge",
    "8021q",
    "bonding",
    "macvlan",
    "tun",
    "vxlan",
    "sch_prio",
    "sch_multiq",
    "sch_mqprio",
    "sch_sfq",
    "cls_u32",
    "cls_flower",
    "act_mirred",
    "act_skbedit",
    "tcp_diag",
    "mptcp_diag",
];

/// Tools that are copied to the machine if this computer has them.
const TOOLS: &[&str] = &[
    "sbin/bridge",
    "sbin/ethtool",
    "sbin/sysctl",
    "bin/cat",
    "bin/mount",
    "bin/nsenter",
    "bin/sh",
    "bin/sleep",
    "bin/ss",
    "bin/true",
    "bin/umount",
    "bin/unshare",
];

/// The largest file that is copied to the machine, whose memory holds it twice.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// The program to run.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// `6.12`, `6.18`, `newest`, or the path of a kernel image.
    pub kernel: Option<String>,
    /// A program of this computer, which gets the same absolute path in the machine.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Further files, which get the same absolute paths in the machine.
    pub files: Vec<PathBuf>,
}

/// Runs a program in the machine, and returns its exit status, or 128 + the number
/// of the signal that ended it. `write` receives its output. If `write` returns false, the
/// program is ended and the result is None.
///
/// # Errors
/// A file cannot be read, there is no kernel, the machine does not boot or stops, the
/// program does not start in it, or an interrupt: see [`crate::interrupted`].
pub fn exec(
    options: &ExecOptions,
    write: &mut dyn FnMut(Stream, &[u8]) -> bool,
    progress: Tell,
) -> Result<Option<u8>> {
    interrupt::watch();
    let say = |step: &str| progress(Progress::Step(step));
    options
        .files
        .iter()
        .try_for_each(|file| require_regular(file))?;
    let kernel = kernel::find(options.kernel.as_deref(), &say)?;
    let mut archive = initramfs::base(&kernel, Guest::Checks, MODULES)?;
    for folder in ["mnt", "root"] {
        archive.dir(folder);
    }
    let program = add(&mut archive, &kernel, &options.program)?;
    for file in &options.files {
        add(&mut archive, &kernel, file)?;
    }
    add_tools(&mut archive, &kernel)?;
    let directory = absolute(Path::new("."))?;
    archive.dir(directory.trim_start_matches('/'));
    let base = archive.finish();
    let task = Task::Exec(Program {
        program,
        arguments: options.arguments.clone(),
        path: search_path(),
        directory,
    });
    // memory for the archive and its unpacked files
    let mut setup = Setup::default();
    setup.memory_mb += ((2 * base.len()) >> 20) as u32;
    say(&format!("booting Linux {}", kernel.release));
    let mut hear = |message| match message {
        Message::Answer(Answer::Output(stream, text)) if !write(stream, &exec::bytes_of(&text)) => {
            Ok(Some(None))
        }
        Message::Answer(Answer::Exited(status)) => Ok(Some(Some(status))),
        _ => Ok(None),
    };
    machine::run_machine(&kernel, &base, &task, setup, &mut hear)
}

/// Returns an absolute path as text, which requests to the machine need.
fn absolute(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let absolute = std::path::absolute(path).map_err(|e| Error::io(&name, &e))?;
    let text = absolute.into_os_string().into_string();
    text.map_err(|_| Error::new(name, "its path is not UTF-8", "give it another name"))
}

/// Reading a device may never end, and opening a named pipe waits for a writer.
fn require_regular(file: &Path) -> Result<()> {
    let name = file.display().to_string();
    let about = fs::metadata(file).map_err(|e| Error::io(&name, &e))?;
    match about.is_file() {
        true => Ok(()),
        false => Err(Error::new(name, "is not a regular file", "give a file")),
    }
}

/// Adds a file at its absolute path, with its libraries if it is a program. Returns the
/// path.
fn add(archive: &mut Archive, kernel: &Kernel, file: &Path) -> Result<String> {
    let failed = |e| Error::io(file.display().to_string(), &e);
    let path = absolute(file)?;
    let name = path.trim_start_matches('/');
    let is_program = fs::metadata(file).map_err(failed)?.permissions().mode() & 0o111 != 0;
    if is_program {
        initramfs::program(archive, kernel, file, name)?;
    } else {
        archive.file(name, false, &crate::file::read(file, FILE_MAX_BYTES)?);
    }
    Ok(path)
}

/// Adds the tools, unless the machine has another architecture than this computer.
fn add_tools(archive: &mut Archive, kernel: &Kernel) -> Result<()> {
    for name in TOOLS.iter().filter(|_| kernel.tools.is_none()) {
        let tool = name.rsplit('/').next().unwrap_or(name);
        if let Some(path) = initramfs::which(tool) {
            initramfs::program(archive, kernel, &path, name)?;
        }
    }
    Ok(())
}

/// The PATH of the machine: the folders of the tools, and the PATH of this computer.
fn search_path() -> String {
    let here = std::env::var("PATH").unwrap_or_default();
    format!("/sbin:/bin:{here}")
}
