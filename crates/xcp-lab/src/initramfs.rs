// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The machine's file system: the guest program as init, its libraries, ip and tc, the
//! kernel's modules, and the request. It is a cpio archive (newc) without compression, since
//! decompression costs virtual time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::architecture::Architecture;
use crate::guest::MODULE_DIR;
use crate::kernel::Kernel;
use crate::{Error, Result};

/// Modules that are loaded in this order, after their dependencies. Built-in ones are not in
/// modules.dep and are skipped.
const MODULES: &[&str] = &[
    "af_packet",
    "veth",
    "ifb",
    "dummy",
    "sch_netem",
    "sch_tbf",
    "sch_htb",
    "sch_red",
    "sch_fq",
    "sch_fq_codel",
    "sch_cake",
    "sch_ingress",
    "cls_matchall",
    "act_gact",
    "tcp_bbr",
];

/// The program that is the machine's init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// Runs experiments.
    Player,
    /// Runs other tasks.
    Checks,
}

impl Guest {
    /// The name of its file; `-ARCHITECTURE` is appended for a foreign architecture.
    fn name(self) -> &'static str {
        match self {
            Self::Player => "xcp-guest",
            Self::Checks => "xcp-guest-checks",
        }
    }
}

/// Folders of the guest program, relative to that of the command: as built, and as installed.
const GUEST_FOLDERS: &[&str] = &["", "../libexec/xcp"];
const TOOLS: &[&str] = &["ip", "tc"];
const MODE_DIR: u32 = 0o040_755;
const MODE_PROGRAM: u32 = 0o100_755;
const MODE_FILE: u32 = 0o100_644;

/// A cpio archive to which files are added one by one.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        self.entry(name, mode, content);
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let number = self.names.len();
        let header = format!(
            "070701{number:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{2:08x}{0:08x}{0:08x}{0:08x}{0:08x}{3:08x}{0:08x}",
            0,
            1,
            content.len(),
            name.len() + 1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds a file and its parent folders, unless the name exists.
    pub fn file(&mut self, name: &str, program: bool, content: &[u8]) {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.dir(folder);
        }
        let mode = if program { MODE_PROGRAM } else { MODE_FILE };
        self.add(name, mode, content);
    }

    /// Adds a folder and its parent folders.
    pub fn dir(&mut self, name: &str) {
        let mut folders: Vec<&Path> = Path::new(name).ancestors().collect();
        folders.reverse();
        for folder in folders {
            if !folder.as_os_str().is_empty() {
                self.add(&folder.to_string_lossy(), MODE_DIR, &[]);
            }
        }
    }

    /// Returns the complete archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// Creates the archive without the request. `more_modules` are loaded after the modules of
/// all machines.
pub fn base(kernel: &Kernel, guest: Guest, more_modules: &[&str]) -> Result<Archive> {
    let mut archive = Archive::default();
    for dir in ["dev", "proc", "sys", "run", "tmp", "etc"] {
        archive.dir(dir);
    }
    let init = find_guest(guest, kernel.architecture)?;
    program(&mut archive, kernel, &init, "init")?;
    for tool in TOOLS {
        let name = format!("sbin/{tool}");
        let path = match &kernel.tools {
            Some(folder) => folder.join(&name),
            None => which(tool).ok_or_else(|| {
                Error::new(*tool, "not found", "install it: apt-get install iproute2")
            })?,
        };
        program(&mut archive, kernel, &path, &name)?;
    }
    for (number, module) in modules(kernel, more_modules)?.iter().enumerate() {
        let name = format!("{MODULE_DIR}/{number:02}.ko");
        archive.file(&name, false, &decompressed(module)?);
    }
    Ok(archive)
}

/// The programs that run in the machine of this computer's architecture, with their names: for
/// experiments, and for other tasks.
pub fn guest_programs() -> [(&'static str, Result<PathBuf>); 2] {
    let native = Architecture::native();
    [Guest::Player, Guest::Checks].map(|guest| (guest.name(), find_guest(guest, native)))
}

fn find_guest(guest: Guest, architecture: &Architecture) -> Result<PathBuf> {
    let mut name = guest.name().to_owned();
    if !architecture.is_native() {
        name += &format!("-{}", architecture.name);
    }
    let me = std::env::current_exe().map_err(|e| Error::io("this program", &e))?;
    let here = me.parent().unwrap_or(Path::new("/"));
    let mut places = GUEST_FOLDERS.iter().map(|f| here.join(f).join(&name));
    places.find(|path| path.exists()).ok_or_else(|| {
        Error::new(
            &name,
            format!("not in the folder of {}", me.display()),
            "build or install all programs: ./x build, ./x install",
        )
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::io(path.display().to_string(), &e))
}

/// Finds a program in the usual folders.
pub fn which(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

/// Adds a program and its shared libraries.
pub fn program(archive: &mut Archive, kernel: &Kernel, path: &Path, name: &str) -> Result<()> {
    archive.file(name, true, &read(path)?);
    let libraries = match &kernel.tools {
        None => listed(path)?,
        Some(folder) => named(
            path,
            &folder.join(format!("lib/{}-linux-gnu", kernel.architecture.name)),
        )?,
    };
    for (target, library) in libraries {
        archive.file(&target, true, &read(&library)?);
    }
    Ok(())
}

/// The libraries that ldd lists, with their paths in the archive. ldd works only for
/// programs of this computer's architecture.
fn listed(program: &Path) -> Result<Vec<(String, PathBuf)>> {
    let out = Command::new("ldd")
        .arg(program)
        .env_remove("LD_LIBRARY_PATH") // it is not set in the machine
        .output()
        .map_err(|e| Error::io("ldd", &e))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let paths = text.split_whitespace().filter(|w| w.starts_with('/'));
    Ok(paths
        .map(|path| (path.trim_start_matches('/').to_owned(), path.into()))
        .collect())
}

/// The libraries in a folder whose names are strings in a program's file, and those that
/// these name in turn, with their paths in the archive.
fn named(program: &Path, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut others: Vec<String> = fs::read_dir(folder)
        .map_err(|e| Error::io(folder.display().to_string(), &e))?
        .flatten()
        .filter_map(|file| file.file_name().into_string().ok())
        .filter(|name| name.contains(".so."))
        .collect();
    others.sort();
    let mut found = Vec::new();
    let mut to_read = vec![program.to_owned()];
    while let Some(path) = to_read.pop() {
        let bytes = read(&path)?;
        let strings: Vec<&[u8]> = bytes.split(|b| *b == 0).collect();
        others.retain(|name| {
            let is_named = strings.iter().any(|s| s.ends_with(name.as_bytes()));
            if is_named {
                to_read.push(folder.join(name));
                found.push((format!("lib/{name}"), folder.join(name)));
            }
            !is_named
        });
    }
    Ok(found)
}

/// The files of [`MODULES`], of `more` and of their dependencies, in loading order.
pub fn modules(kernel: &Kernel, more: &[&str]) -> Result<Vec<PathBuf>> {
    let lines: Vec<(&str, Vec<&str>)> = kernel
        .dependencies
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(file, needs)| (file, needs.split_whitespace().collect()))
        .collect();
    let mut order: Vec<PathBuf> = Vec::new();
    for module in MODULES.iter().chain(more) {
        let found = lines.iter().find(|(file, _)| {
            Path::new(file)
                .file_name()
                .is_some_and(|n| n.to_string_lossy().split('.').next() == Some(module))
        });
        let Some((file, needs)) = found else { continue };
        for part in needs.iter().rev().chain([file]) {
            let path = kernel.modules.join(part);
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

fn decompressed(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read(path),
    };
    let out = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(|e| Error::new(tool, e.to_string(), format!("install {tool}")))?;
    if !out.status.success() {
        return Err(Error::new(
            path.display().to_string(),
            String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            "fetch the kernel again",
        ));
    }
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_their_names_in_programs_and_libraries() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("file");
            path
        };
        let program = write("program", "\x7fELF\0/lib/ld.so.1\0liba.so.2\0");
        write("ld.so.1", "");
        write("liba.so.2", "x\0libb.so.3\0liba.so.2\0");
        write("libb.so.3", "libc.so.6 is not ended");
        write("libc.so.6", "");
        let found = named(&program, dir.path()).expect("all can be read");
        let targets: Vec<&str> = found.iter().map(|(target, _)| target.as_str()).collect();
        assert_eq!(targets, ["lib/ld.so.1", "lib/liba.so.2", "lib/libb.so.3"]);
    }

    #[test]
    fn cpio_lists_all_added_files() {
        let mut archive = Archive::default();
        archive.file("a/b/c", true, b"hello");
        archive.file("a/d", false, b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let mut child = Command::new("cpio")
            .args(["-t", "--quiet"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("cpio starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("piped"), &bytes)
            .expect("cpio reads");
        let out = child.wait_with_output().expect("cpio ends");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "a\na/b\na/b/c\na/d\n");
    }
}
