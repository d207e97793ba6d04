// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests that cannot run here.

use std::io::Write;
use std::mem::size_of;

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys::bpf_map_create_opts;
use xcp_datapath::internal::is_root;

/// Says that a test does not run here, and why, past the test runner's
/// capture of what passing tests print.
pub fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether the tests that load programs can run here; says so if not. A
/// program that the kernel turns down is no reason to skip.
pub fn can_run(test: &str) -> bool {
    if !is_root() {
        skipped(test, "not root: run `sudo ./x test`");
        return false;
    }
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let probe = MapHandle::create(MapType::Array, Some("xcp_probe"), 4, 4, 1, &options);
    if let Err(e) = &probe {
        skipped(test, &format!("BPF is not permitted here: {e}"));
    }
    probe.is_ok()
}
