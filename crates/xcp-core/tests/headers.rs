// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every header of core/ stands alone and compiles without a warning, as C11
//! and as C++17, with each compiler that is here.

use std::path::Path;
use std::process::{Command, Stdio};

const STRICT: [&str; 7] = [
    "-ffreestanding",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wconversion",
    "-pedantic",
];

fn runs(compiler: &str) -> bool {
    Command::new(compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

#[test]
fn every_header_compiles_alone() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core");
    let names = ["cc", "gcc", "clang"].map(String::from);
    let compilers: Vec<String> = names
        .into_iter()
        .chain((16..=30).map(|v| format!("clang-{v}")))
        .filter(|c| runs(c))
        .collect();
    assert!(
        !compilers.is_empty(),
        "no C compiler found: install gcc or clang"
    );
    let mut headers = 0;
    for entry in std::fs::read_dir(&core).expect("core/ is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|e| e != "h") {
            continue;
        }
        headers += 1;
        for compiler in &compilers {
            for (language, standard) in [("c", "-std=c11"), ("c++", "-std=c++17")] {
                let out = Command::new(compiler)
                    .args(["-x", language, standard])
                    .args(STRICT)
                    .args(["-include", path.to_str().expect("UTF-8"), "/dev/null"])
                    .output()
                    .expect("it ran before");
                let errors = String::from_utf8_lossy(&out.stderr);
                assert!(
                    out.status.success(),
                    "{compiler} {standard} {path:?}:\n{errors}"
                );
            }
        }
    }
    assert!(headers >= 5, "{headers} headers in {core:?}");
}
