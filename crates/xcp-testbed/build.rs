// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Sets the path of the compiled programs of bpf/, which xcp-datapath builds.

use std::env;

fn main() {
    let objects = env::var("DEP_XCP_BPF_OBJECTS").expect("xcp-datapath sets it");
    println!("cargo:rustc-env=XCP_BPF_OBJECTS={objects}");
    println!("cargo:rerun-if-changed=build.rs");
}
