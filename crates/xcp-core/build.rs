// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compiles csrc/core.c: core/ with C linkage, optimised in every profile. If the
//! compiler supports it, a debug build, as used by the tests, traps on undefined
//! behaviour (signed overflow, bad shifts, misaligned or null access).

use std::env;
use std::path::Path;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let core = Path::new(&here).join("../../core");
    println!("cargo:rerun-if-changed=csrc");
    println!("cargo:rerun-if-changed={}", core.display());

    let mut build = cc::Build::new();
    build
        .file("csrc/core.c")
        .include(core)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .define("XCP_INLINE", "")
        .flag("-std=c11")
        .flag("-ffreestanding")
        .flag("-pedantic");
    if env::var("PROFILE").is_ok_and(|p| p == "debug") {
        let trap = if build.get_compiler().is_like_clang() {
            "-fsanitize-trap=undefined"
        } else {
            "-fsanitize-undefined-trap-on-error"
        };
        build.flag_if_supported("-fsanitize=undefined");
        build.flag_if_supported(trap);
    }
    build.compile("xcp_core");
}
