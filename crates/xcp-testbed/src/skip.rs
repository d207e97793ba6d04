// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Skips tests that cannot run on this system.

use std::io::Write;
use std::mem::size_of;

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys::bpf_map_create_opts;
use xcp_datapath::internal::is_root;

/// Reports that a test is skipped, and why. Writes to standard error directly, since the test
/// runner captures the output of passing tests.
pub fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether tests that load programs can run on this system; if not, reports the test as
/// skipped. A program that the kernel rejects is no reason to skip.
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
