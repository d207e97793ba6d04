// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The program that runs in the lab's virtual machine. Its bytes are part of the key of
//! kept results, so they must change only when its behaviour does.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use xcp_testbed::skipped;

use crate::command::XCP;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SOURCES: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "bpf",
    "core",
    "crates",
    "testdata",
];
/// The build of `x`, with the library features that all packages together enable, but
/// without the other programs.
const BUILD: [&str; 5] = ["build", "--release", "--locked", "--bin", "xcp-guest"];

/// Makes a target folder with the dependencies that are built in another one, so that
/// cargo compiles only this project. Builds there do not replace files that other tests
/// use.
fn target_beside(built: &Path) -> TempDir {
    let target = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = "mkdir release && cd \"$1\" && tar -c --format=posix --exclude='*xcp*' \
                  deps/lib* build .fingerprint | tar -x -C \"$OLDPWD/release\"";
    let copied = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(built.parent().unwrap())
        .current_dir(&target)
        .status();
    assert!(copied.unwrap().success(), "cannot copy the dependencies");
    target
}

/// Changes a file in a copy of the sources.
fn edit(folder: &Path, name: &str, change: impl FnOnce(&str) -> String) {
    let path = folder.join(name);
    let before = fs::read_to_string(&path).unwrap();
    let after = change(&before);
    assert_ne!(before, after, "{name}");
    fs::write(&path, after).unwrap();
}

/// Neither the folder nor comments in BPF programs and in the protocol's core change
/// the program.
#[test]
fn building_in_another_folder_gives_the_same_program() {
    let test = "the same program from another folder";
    if cfg!(debug_assertions) {
        return skipped(test, "needs the release profile: cargo test --release");
    }
    let built = Path::new(XCP).with_file_name("xcp-guest");
    let how = format!("cargo {}", BUILD.join(" "));
    assert!(built.exists(), "no {}: build it: {how}", built.display());
    let folder = tempfile::tempdir().unwrap();
    for name in SOURCES {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(Path::new(ROOT).join(name))
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success(), "{name}");
    }
    for name in ["bpf/control_interval.h", "core/xcp_router.h"] {
        edit(folder.path(), name, |text| {
            format!("/* another comment */\n\n{text}")
        });
    }
    let target = target_beside(&built);
    let out = Command::new(env!("CARGO"))
        // with this variable, libraries use unstable features
        .env_remove("RUSTC_BOOTSTRAP")
        .current_dir(folder.path())
        .args(BUILD)
        .arg("--target-dir")
        .arg(target.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("Compiling xcp-player"), "{said}");
    let again = fs::read(target.path().join("release/xcp-guest")).unwrap();
    assert!(
        fs::read(&built).unwrap() == again,
        "{} differs: if it was not built from exactly these sources, run {how}",
        built.display()
    );
}

/// The first rustc with a target's standard library: the one on the PATH, or Debian's.
fn compiler_for(target: &str) -> Option<&'static str> {
    let has = |rustc: &&str| {
        let mut ask = Command::new(rustc);
        let asked = ask.args(["--print", "target-libdir", "--target", target]);
        asked
            .output()
            .is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
    };
    ["rustc", "/usr/bin/rustc"].into_iter().find(has)
}

#[test]
fn the_workspace_compiles_for_aarch64() {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    const GCC: &str = "aarch64-linux-gnu-gcc";
    let test = "compiling for aarch64";
    let Some(rustc) = compiler_for(TARGET) else {
        return skipped(test, "no rustc here has a standard library for aarch64");
    };
    if Command::new(GCC).arg("--version").output().is_err() {
        return skipped(test, "no aarch64-linux-gnu-gcc");
    }
    let out = Command::new(env!("CARGO"))
        .env_remove("RUSTC_BOOTSTRAP")
        .env("RUSTC", rustc)
        .current_dir(ROOT)
        .args(["check", "--locked", "--workspace", "--target", TARGET])
        .args([
            "--target-dir",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/aarch64"),
        ])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
