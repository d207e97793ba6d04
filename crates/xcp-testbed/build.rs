// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tells the crate where xcp-datapath has put the compiled programs of bpf/.

use std::env;

fn main() {
    let objects = env::var("DEP_XCP_BPF_OBJECTS").expect("xcp-datapath tells it");
    println!("cargo:rustc-env=XCP_BPF_OBJECTS={objects}");
    println!("cargo:rerun-if-changed=build.rs");
}
