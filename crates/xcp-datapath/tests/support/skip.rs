// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Why a test cannot run here.

use libbpf_rs::{libbpf_sys, MapHandle, MapType};

/// The reason why BPF programs cannot be loaded, if they cannot.
pub fn no_bpf() -> Option<String> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("BPF programs need root".into());
    }
    let options = libbpf_sys::bpf_map_create_opts {
        sz: std::mem::size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some("xcp_probe"), 4, 4, 1, &options)
        .err()
        .map(|e| format!("BPF is not permitted here: {e}"))
}

pub fn say(why: &str) {
    eprintln!("skipped: {why}");
}
