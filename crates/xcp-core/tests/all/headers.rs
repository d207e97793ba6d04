// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every header of core/ compiles on its own without warnings, as C11 and as C++17, with gcc
//! and with clang. A compiler that is not installed is skipped, and its name is printed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STRICT: [&str; 7] = [
    "-ffreestanding",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wconversion",
    "-pedantic",
];

const LANGUAGES: [(&str, &str); 2] = [("c", "-std=c11"), ("c++", "-std=c++17")];

fn compile(compiler: &str, language: (&str, &str), more: &[&str]) -> std::io::Result<Output> {
    Command::new(compiler)
        .args(["-x", language.0, language.1])
        .args(STRICT)
        .args(more)
        .arg("/dev/null")
        .output()
}

fn headers() -> Vec<PathBuf> {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core");
    let headers: Vec<_> = std::fs::read_dir(core)
        .expect("core/ can be read")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "h"))
        .collect();
    assert!(headers.len() >= 5, "{headers:?}");
    headers
}

/// Compiles every header with the first of `compilers` that is installed.
fn every_header_compiles(test: &str, compilers: &[String]) {
    for language in LANGUAGES {
        let works = |c: &&String| {
            compile(c, language, &["-include", "stdint.h"]).is_ok_and(|o| o.status.success())
        };
        let Some(compiler) = compilers.iter().find(works) else {
            let (name, language) = (&compilers[0], language.0);
            // libtest would capture the output of eprintln!
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED {test}: no {name} that compiles {language} is installed"
            );
            continue;
        };
        for path in headers() {
            let include = ["-include", path.to_str().expect("UTF-8")];
            let out = compile(compiler, language, &include).expect("the compiler ran before");
            let errors = String::from_utf8_lossy(&out.stderr);
            assert!(
                out.status.success(),
                "{compiler} {language:?} {include:?}:\n{errors}"
            );
        }
    }
}

#[test]
fn every_header_compiles_with_gcc() {
    every_header_compiles("every_header_compiles_with_gcc", &["gcc".into()]);
}

#[test]
fn every_header_compiles_with_clang() {
    let versions = (16..=30).rev().map(|v| format!("clang-{v}"));
    let compilers: Vec<_> = std::iter::once("clang".into()).chain(versions).collect();
    every_header_compiles("every_header_compiles_with_clang", &compilers);
}
