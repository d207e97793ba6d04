// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The program that runs in the lab's machine: its bytes are in the key of kept
//! results, so they may change with what it does only.

use std::fs;
use std::path::Path;
use std::process::Command;

use xcp_datapath::testing::skipped;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SOURCES: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "bpf",
    "core",
    "crates",
    "docs",
    "experiments",
    "testdata",
];

/// Comments of the programs in BPF and of the protocol's core do not count,
/// nor does the folder.
#[test]
fn the_same_source_in_another_folder_gives_the_same_program() {
    let test = "the same program from another folder";
    if cfg!(debug_assertions) {
        return skipped(test, "only the release profile is: cargo test --release");
    }
    let built = Path::new(env!("CARGO_BIN_EXE_xcp-guest"));
    let folder = tempfile::tempdir().unwrap();
    for name in SOURCES {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(Path::new(ROOT).join(name))
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success(), "{name}");
    }
    for name in ["bpf/interval.h", "core/xcp_router.h"] {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("/* another comment */\n\n{text}")).unwrap();
    }
    let first = fs::read(built).unwrap();
    // the libraries are there already
    let target = built.ancestors().nth(2).unwrap();
    let out = Command::new(env!("CARGO"))
        .current_dir(folder.path())
        .args(["build", "--release", "--locked", "--bin", "xcp-guest"])
        .arg("--target-dir")
        .arg(target)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("Compiling xcp-player"), "{said}");
    assert!(fs::read(built).unwrap() == first, "the programs differ");
}
