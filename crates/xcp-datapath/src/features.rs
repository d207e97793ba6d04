// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What this kernel can do: probed, never assumed from a version.

use std::fs;
use std::path::Path;

use libbpf_rs::Btf;
use serde::Serialize;

use crate::{cgroup, object, qdisc, router, socket};

/// One thing that XCP builds on.
#[derive(Clone, Debug, Serialize)]
pub struct Feature {
    pub name: &'static str,
    pub present: bool,
    /// Nothing works without it.
    pub required: bool,
    /// What was seen; the reason where it is missing.
    pub detail: String,
    /// What it costs to be without, or what to do.
    pub cost: &'static str,
}

/// Whether programs can be attached as tcx links (6.6 and later).
pub(crate) fn has_tcx() -> bool {
    const LOOPBACK: i32 = 1;
    // SAFETY: the record is zeroed but for its size.
    unsafe {
        let mut opts: libbpf_sys::bpf_prog_query_opts = std::mem::zeroed();
        opts.sz = std::mem::size_of_val(&opts) as _;
        libbpf_sys::bpf_prog_query_opts(LOOPBACK, libbpf_sys::BPF_TCX_EGRESS, &mut opts) == 0
    }
}

/// Set to anything, makes [`has_qdisc`] say no.
const NO_QDISC: &str = "XCP_NO_QDISC";

/// Whether queue disciplines can be written in BPF (6.16 and later, where
/// CONFIG_NET_SCH_BPF is set).
pub fn has_qdisc() -> bool {
    if std::env::var_os(NO_QDISC).is_some() {
        return false;
    }
    qdisc::is_registered()
        || Btf::from_vmlinux().is_ok_and(|btf| {
            btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("bpf_struct_ops_Qdisc_ops")
                .is_some()
        })
}

/// Probes everything. Needs root; without it most answers are no.
pub fn probe() -> Vec<Feature> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    vec![
        Feature {
            name: "root",
            present: root,
            required: true,
            detail: if root { "yes" } else { "no" }.into(),
            cost: "hosts and routers need root (the lab does not): use sudo",
        },
        Feature {
            name: "kernel type information (BTF)",
            present: Path::new("/sys/kernel/btf/vmlinux").exists(),
            required: true,
            detail: "/sys/kernel/btf/vmlinux".into(),
            cost: "programs cannot be loaded: use a kernel with CONFIG_DEBUG_INFO_BTF",
        },
        loads(
            &object::CC,
            object::open(&object::CC).and_then(|o| object::load(&object::CC, o)),
            "no sender here: needs 6.6 or later with CONFIG_BPF_JIT",
        ),
        loads(
            &object::OPTION,
            object::open(&object::OPTION).and_then(|o| object::load(&object::OPTION, o)),
            "no host here: needs 6.6 or later with CONFIG_CGROUP_BPF",
        ),
        loads(
            &object::ROUTER,
            router::load(
                14,
                router::Options {
                    capacity_bytes_per_s: 1_250_000,
                    ..Default::default()
                },
            ),
            "no router here: needs 6.6 or later",
        ),
        headers(),
        control_groups(),
        Feature {
            name: "tcx links",
            present: has_tcx(),
            required: true,
            detail: "6.6 and later".into(),
            cost: "no router here, and no `xcp host on --dev`: use Linux 6.6 or later",
        },
        Feature {
            name: "queue disciplines in BPF",
            present: has_qdisc(),
            required: false,
            detail: "6.16 and later with CONFIG_NET_SCH_BPF".into(),
            cost: "routers work on whatever qdisc the device has",
        },
        sockets_by_number(),
        receive_memory(),
    ]
}

fn loads<T>(image: &object::Image, result: crate::Result<T>, cost: &'static str) -> Feature {
    Feature {
        name: image.feature,
        present: result.is_ok(),
        required: true,
        detail: match result {
            Ok(_) => "loads".into(),
            Err(e) => e.reason,
        },
        cost,
    }
}

fn headers() -> Feature {
    let result = object::open(&object::DEVICE).and_then(|o| object::load(&object::DEVICE, o));
    Feature {
        required: false,
        ..loads(
            &object::DEVICE,
            result,
            "the wire formats header and header-2004 are not possible here",
        )
    }
}

fn sockets_by_number() -> Feature {
    let result = socket::probe();
    Feature {
        name: object::SOCKET.feature,
        present: result.is_ok(),
        required: false,
        detail: match result {
            Ok(()) => "loads".into(),
            Err(e) => e.reason,
        },
        cost: "programs choose XCP by setsockopt(TCP_CONGESTION, \"xcp\") instead",
    }
}

fn control_groups() -> Feature {
    let mount = cgroup::mount_point();
    Feature {
        name: "control groups (cgroup2)",
        present: mount.is_ok(),
        required: true,
        detail: match mount {
            Ok(path) => path.display().to_string(),
            Err(e) => e.reason,
        },
        cost: "no socket can speak XCP: mount -t cgroup2 none /sys/fs/cgroup",
    }
}

/// 10 Mb/s at 500 ms: what the papers' long fat path needs in one RTT.
const LONG_PATH_BYTES: u64 = 625_000;

fn receive_memory() -> Feature {
    let path = "/proc/sys/net/ipv4/tcp_rmem";
    let largest: u64 = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.split_whitespace().nth(2)?.parse().ok())
        .unwrap_or(0);
    Feature {
        name: "receive buffers for long paths",
        present: largest >= 4 * LONG_PATH_BYTES,
        required: false,
        detail: format!("net.ipv4.tcp_rmem allows {largest} bytes"),
        cost: "windows stop at half of that per RTT: raise it on long fat paths",
    }
}
