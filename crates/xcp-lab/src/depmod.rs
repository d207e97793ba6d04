// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Generates modules.dep, the list of a kernel's modules and their dependencies.
//! Installing a kernel writes it; unpacking or building one does not.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::{Error, Result};

pub const LIST: &str = "modules.dep";
const DEPMOD: &str = "depmod";

/// Generates the text of modules.dep for a folder of modules without changing the folder.
pub fn list(modules: &Path, release: &str) -> Result<String> {
    list_by(DEPMOD, modules, release)
}

fn list_by(depmod: &str, modules: &Path, release: &str) -> Result<String> {
    let name = modules.display().to_string();
    let describe = |e| Error::io(&name, &e);
    // depmod accepts only folders named lib/modules/RELEASE below a root
    let root = tempfile::tempdir().map_err(|e| Error::io("temporary folder", &e))?;
    let place = root.path().join("usr/lib/modules");
    fs::create_dir_all(&place).map_err(describe)?;
    let modules = fs::canonicalize(modules).map_err(describe)?;
    symlink(modules, place.join(release)).map_err(describe)?;
    let text = run(depmod, root.path(), &["-n"], release)?;
    // modules.dep is followed by other lists, each starting with a comment
    let lines = text.lines().take_while(|line| !line.starts_with('#'));
    let list: String = lines.flat_map(|line| [line, "\n"]).collect();
    if list.is_empty() {
        return Err(Error::new(
            name,
            "no kernel modules in it",
            format!("give the folder of the kernel's modules: .../lib/modules/{release}"),
        ));
    }
    Ok(list)
}

/// Writes modules.dep and the other lists to an unpacked package.
pub fn write(root: &Path, release: &str) -> Result<()> {
    run(DEPMOD, root, &[], release).map(drop)
}

fn run(depmod: &str, root: &Path, options: &[&str], release: &str) -> Result<String> {
    let lib = root.join("lib");
    if !lib.exists() {
        symlink("usr/lib", &lib).map_err(|e| Error::io(lib.display().to_string(), &e))?;
    }
    let out = Command::new(depmod)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(options)
        .arg("-b")
        .arg(root)
        .arg(release)
        .output()
        .map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new(
                format!("modules of Linux {release}"),
                format!("without {LIST}, and the program {depmod}, which generates it, is missing"),
                "install it: apt-get install kmod",
            ),
            _ => Error::io(depmod, &e),
        })?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(Error::new(
        format!("modules of Linux {release} ({depmod})"),
        String::from_utf8_lossy(&out.stderr).trim().to_owned(),
        "check that the folder has the kernel's modules and that they are readable",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_depmod_is_reported_with_its_package() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let e = list_by("no-such-depmod", dir.path(), "6.18.5").expect_err("nothing to run");
        assert!(e.reason.contains("without modules.dep"), "{e}");
        assert!(e.remedy.contains("apt-get install kmod"), "{e:?}");
    }

    #[test]
    fn folder_without_modules_is_reported() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let e = list(dir.path(), "6.18.5").expect_err("it is empty");
        assert_eq!(e.thing, dir.path().display().to_string());
        assert_eq!(e.reason, "no kernel modules in it");
    }
}
