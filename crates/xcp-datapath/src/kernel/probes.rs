// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Probes for single kernel features. [`crate::features`] reports on all of them.

use std::fs;

use libbpf_rs::Btf;

/// The kernel release, such as `6.18.15+deb13-cloud-amd64`.
pub fn kernel_release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Whether programs can be attached as tcx links (6.6 and later).
pub fn has_tcx() -> bool {
    const LOOPBACK: i32 = 1;
    // SAFETY: the record is zeroed except for its size.
    unsafe {
        let mut opts: libbpf_sys::bpf_prog_query_opts = std::mem::zeroed();
        opts.sz = std::mem::size_of_val(&opts) as _;
        libbpf_sys::bpf_prog_query_opts(LOOPBACK, libbpf_sys::BPF_TCX_EGRESS, &mut opts) == 0
    }
}

/// Whether the kernel segments a chain of packets (fraglist GRO) by its first header once
/// a program has pulled all data into that packet (6.12 and later). This is decided by the
/// version, because a probe would need traffic, and 6.10 may crash.
pub fn merges_chains() -> bool {
    let release = kernel_release();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    (number(), number()) >= (Some(6), Some(12))
}

/// Whether congestion controls have a separate hook for data after a pause (7.1 and later).
pub fn has_tx_start() -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| {
        btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("tcp_congestion_ops")
            .is_some_and(|ops| {
                let mut members = ops.iter();
                members.any(|m| m.name.is_some_and(|n| n == "cwnd_event_tx_start"))
            })
    })
}

/// Whether programs can look up the route of a packet with another mark (6.10 and later). The
/// kernel refuses unknown flags, but a lookup needs a packet, so this looks for the flag's name.
pub fn has_marked_routes() -> bool {
    const FLAG: &[u8] = b"\0BPF_FIB_LOOKUP_MARK\0";
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    types.windows(FLAG.len()).any(|name| name == FLAG)
}
