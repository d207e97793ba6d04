// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Finds programs on the PATH.

use std::env;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of a program: the first executable file with this name in the folders of
/// PATH, or else the first file, as in a shell.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let files = || {
        let paths = env::split_paths(&folders).map(|folder| folder.join(name));
        paths.filter(|path| path.is_file())
    };
    files()
        .find(|path| matches!(is_executable(path), Ok(true)))
        .or_else(|| files().next())
}

/// Whether a path is a file that someone may execute.
pub fn is_executable(path: &Path) -> io::Result<bool> {
    let file = path.metadata()?;
    Ok(file.is_file() && file.permissions().mode() & 0o111 != 0)
}
