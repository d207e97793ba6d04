// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Version and firmware of QEMU. Both can change a result, since the clock also counts the
//! firmware's instructions.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::architecture::Architecture;
use crate::machine::missing;
use crate::Result;

/// The installed QEMU.
#[derive(Clone, Debug, Default)]
pub struct Emulator {
    /// The first line of `--version`.
    pub version: String,
    /// The content of each firmware file that was found.
    pub firmware: Vec<Vec<u8>>,
}

/// Queries the QEMU of an architecture.
///
/// # Errors
/// QEMU is not installed.
pub fn installed(architecture: &Architecture) -> Result<Emulator> {
    let version = ask(architecture, &["--version"])?;
    let folders = ask(architecture, &["-L", "help"])?;
    Ok(Emulator {
        version: version.lines().next().unwrap_or_default().to_owned(),
        firmware: firmware(architecture.firmware, &folders),
    })
}

fn ask(architecture: &Architecture, arguments: &[&str]) -> Result<String> {
    let out = Command::new(architecture.qemu)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| missing(architecture, &e))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Reads each file from the first folder that has it, in QEMU's search order.
fn firmware(names: &[&str], folders: &str) -> Vec<Vec<u8>> {
    let find = |name: &&str| {
        let mut paths = folders.lines().map(|folder| Path::new(folder).join(name));
        paths.find_map(|path| fs::read(path).ok())
    };
    names.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_is_read_from_the_first_folder_that_has_it() {
        let dir = tempfile::tempdir().expect("temporary folder");
        for (folder, name) in [("b", "bios"), ("c", "bios"), ("c", "boot")] {
            let folder_path = dir.path().join(folder);
            fs::create_dir_all(&folder_path).expect("folder");
            fs::write(folder_path.join(name), format!("{folder} {name}")).expect("file");
        }
        let folders = ["a", "b", "c"].map(|f| dir.path().join(f).display().to_string());
        let found = firmware(&["bios", "boot", "none"], &folders.join("\n"));
        assert_eq!(found, [b"b bios", b"c boot"]);
    }
}
