// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Which QEMU this is: its version and its firmware. Both count into a
//! result, since the clock counts the firmware's instructions too.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::machine::{missing, QEMU};
use crate::Result;

/// The files that the machine loads, as `info roms` of QEMU's monitor lists
/// them. They may come from packages with versions of their own (SeaBIOS).
const FIRMWARE: &[&str] = &["bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin"];

/// QEMU as it is installed.
#[derive(Clone, Debug, Default)]
pub struct Emulator {
    /// The first line of `--version`.
    pub version: String,
    /// The content of each firmware file that was found.
    pub firmware: Vec<Vec<u8>>,
}

/// Asks QEMU once per process.
///
/// # Errors
/// There is no QEMU.
pub fn installed() -> Result<&'static Emulator> {
    static INSTALLED: OnceLock<Emulator> = OnceLock::new();
    if let Some(emulator) = INSTALLED.get() {
        return Ok(emulator);
    }
    let version = ask(&["--version"])?;
    let folders = ask(&["-L", "help"])?;
    let emulator = Emulator {
        version: version.lines().next().unwrap_or_default().to_owned(),
        firmware: firmware(&folders),
    };
    Ok(INSTALLED.get_or_init(|| emulator))
}

fn ask(arguments: &[&str]) -> Result<String> {
    let out = Command::new(QEMU)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| missing(&e))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Each file from the first folder that has it, as QEMU searches them.
fn firmware(folders: &str) -> Vec<Vec<u8>> {
    let find = |name: &&str| {
        let mut paths = folders.lines().map(|folder| Path::new(folder).join(name));
        paths.find_map(|path| fs::read(path).ok())
    };
    FIRMWARE.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_is_read_from_the_first_folder_that_has_it() {
        let dir = tempfile::tempdir().expect("temporary folder");
        for (folder, name) in [("b", FIRMWARE[0]), ("c", FIRMWARE[0]), ("c", FIRMWARE[1])] {
            let folder_path = dir.path().join(folder);
            fs::create_dir_all(&folder_path).expect("folder");
            fs::write(folder_path.join(name), format!("{folder} {name}")).expect("file");
        }
        let folders = ["a", "b", "c"].map(|f| dir.path().join(f).display().to_string());
        let found = firmware(&folders.join("\n"));
        let wanted = [format!("b {}", FIRMWARE[0]), format!("c {}", FIRMWARE[1])];
        assert_eq!(found, wanted.map(String::into_bytes));
    }
}
