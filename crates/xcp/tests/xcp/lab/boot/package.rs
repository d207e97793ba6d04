// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The Debian package is installed, upgraded, downgraded, removed and purged under
//! traffic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;
use xcp_testbed::skipped;

use super::{passes_on, shell, SOURCE};

const SCRIPT: &str = include_str!("package.sh");

/// A folder with the packages of this build; None if cargo-deb is missing.
static DEBS: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debs");
    let mut command = Command::new(format!("{SOURCE}/x"));
    let made = command
        .arg("debs")
        .arg(&folder)
        .arg("--fast")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    let missing = said.contains("cannot be installed");
    assert!(made.status.success() || missing, "{said}");
    made.status.success().then_some(folder)
});

/// Makes a package of another build: another version, another unit, and BPF objects
/// that differ only in the name of the compiler.
const ANOTHER: &str = "\
    dpkg-deb -R \"$1\" \"$2/tree\"
    cd \"$2/tree\"
    sed -i 's/^Version: .*/&.1/' DEBIAN/control
    sed -i 's/^Description=.*/Description=another build/' usr/lib/systemd/system/xcp.service
    sed -i 's/clang version/CLANG VERSION/' usr/bin/xcp
    dpkg-deb -Znone -b . \"$2/second.deb\"";

/// Returns the package `xcp` of this build; None if cargo-deb is missing.
pub fn xcp_package() -> Option<PathBuf> {
    let files = fs::read_dir(DEBS.as_deref()?).unwrap();
    let mut paths = files.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_string_lossy().contains("/xcp_"))
}

fn survives_on(version: &str) {
    let Some(first) = xcp_package() else {
        return skipped("package", "cargo-deb cannot be installed");
    };
    let dir = TempDir::new().unwrap();
    shell(ANOTHER, &[&first, dir.path()]);
    passes_on(version, SCRIPT, |root| {
        fs::copy(&first, root.join("first.deb")).unwrap();
        fs::copy(dir.path().join("second.deb"), root.join("second.deb")).unwrap();
    });
}

#[test]
#[ignore = "takes about ten minutes"]
fn upgrading_and_removing_the_package_breaks_no_connection_on_6_12() {
    survives_on("6.12");
}

#[test]
#[ignore = "takes about ten minutes"]
fn upgrading_and_removing_the_package_breaks_no_connection_on_6_18() {
    survives_on("6.18");
}

#[test]
fn lintian_reports_no_errors_or_warnings() {
    let Some(folder) = &*DEBS else {
        return skipped("package", "cargo-deb cannot be installed");
    };
    if Command::new("lintian").arg("--version").output().is_err() {
        return skipped("package", "lintian is not installed");
    }
    shell(
        "cd \"$1\" && lintian --fail-on error,warning --allow-root ./*.deb",
        &[folder],
    );
}
