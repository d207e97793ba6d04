// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compiles csrc/core.c: core/ with C linkage. A debug build, or any build with
//! XCP_CORE_TRAP_UB=1, stops at undefined behaviour (signed overflow, bad
//! shifts, misaligned or null access) instead of going on.

use std::env;
use std::path::Path;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let core = Path::new(&here).join("../../core");
    println!("cargo:rerun-if-changed=csrc");
    println!("cargo:rerun-if-changed={}", core.display());
    println!("cargo:rerun-if-env-changed=XCP_CORE_TRAP_UB");

    let mut build = cc::Build::new();
    build
        .file("csrc/core.c")
        .include(core)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-std=c11")
        .flag("-ffreestanding")
        .flag("-pedantic")
        .flag("-Werror");
    let debug = env::var("PROFILE").is_ok_and(|p| p == "debug");
    let asked = env::var("XCP_CORE_TRAP_UB").is_ok_and(|v| v == "1");
    if debug || asked {
        build.flag("-fsanitize=undefined");
        build.flag(if build.get_compiler().is_like_clang() {
            "-fsanitize-trap=undefined"
        } else {
            "-fsanitize-undefined-trap-on-error"
        });
    }
    build.compile("xcp_core");
}
