// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Finds programs on the PATH.

use std::env;
use std::path::PathBuf;

/// Returns the path of a program: the first file with this name in the folders of PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
