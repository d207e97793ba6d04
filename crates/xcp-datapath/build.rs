// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compiles bpf/*.bpf.c with clang >= 16 into OUT_DIR. xcp-testbed needs some of the
//! objects, so it gets the path of that folder.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const OLDEST_CLANG: u32 = 16;
const TARGET: [&str; 4] = ["-target", "bpf", "-mcpu=v3", "-ffreestanding"];
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let libbpf = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers");
    let clang = find_clang();
    let prefix = prefix();

    for dir in ["bpf", "core"] {
        println!("cargo:rerun-if-changed={}", root.join(dir).display());
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:objects={}", out.display());
    for source in fs::read_dir(root.join("bpf")).expect("the checkout has bpf/") {
        let source = source.expect("bpf/ is readable").path();
        let name = source.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(|name| name.strip_suffix(".bpf.c")) else {
            continue;
        };
        let text = out.join(format!("{name}.i"));
        let object = out.join(format!("{name}.bpf.o"));
        let clang = || {
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]).arg(&clang).args(TARGET);
            command
        };
        let from_source = || {
            let mut command = clang();
            command
                .arg(format!("-I{libbpf}"))
                .arg(format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH))
                .arg(&source);
            command
        };
        run(from_source().args(WARNINGS).arg("-fsyntax-only"));
        // BTF contains paths and line numbers. Compiling the preprocessed text without
        // line markers makes the object change only when the code changes.
        run(from_source().args(["-E", "-P", "-o"]).arg(&text));
        // a fixed folder and environment: their lengths change the addresses of clang's objects
        run(clang()
            .env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .current_dir("/")
            .args(["-g", "-O2", "-w", "-x", "cpp-output", "-c", "-", "-o", "-"])
            .stdin(File::open(&text).expect("clang wrote it"))
            .stdout(File::create(&object).expect("OUT_DIR is writable")));
    }
}

/// The command that starts clang without random addresses: clang 19 orders forward
/// declarations in BTF by the addresses of its own objects, so the same source would give
/// different bytes. Some containers forbid it; the programs are as good without.
fn prefix() -> &'static [&'static str] {
    const FIXED_ADDRESSES: &[&str] = &["setarch", "--addr-no-randomize"];
    let tried = Command::new(FIXED_ADDRESSES[0])
        .args(&FIXED_ADDRESSES[1..])
        .arg("true")
        .output();
    match tried {
        Ok(out) if out.status.success() => FIXED_ADDRESSES,
        _ => &["env"],
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("clang starts: find_clang ran it");
    assert!(status.success(), "{command:?} failed");
}

/// Returns $CLANG, `clang` or the newest `clang-N`: the first that is new enough.
fn find_clang() -> String {
    let mut names: Vec<String> = env::var("CLANG").into_iter().collect();
    names.push("clang".into());
    names.extend((OLDEST_CLANG..=30).rev().map(|v| format!("clang-{v}")));
    names
        .into_iter()
        .find(|name| version(name).is_some_and(|v| v >= OLDEST_CLANG))
        .unwrap_or_else(|| {
            panic!("no clang >= {OLDEST_CLANG} found: install one (apt-get install clang-19), or set CLANG")
        })
}

fn version(clang: &str) -> Option<u32> {
    let out = Command::new(clang).arg("-dumpversion").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    text.split('.').next()?.trim().parse().ok()
}
