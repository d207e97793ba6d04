// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What this kernel supports. Features are probed, never assumed from a version.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::is_root;
pub use crate::probes::kernel_release;
use crate::probes::{has_marked_routes, has_tcx};
pub use crate::qdisc::is_supported as has_qdisc;
use crate::{
    cgroup, error, host, load_error, mounts, object, policy_routing, router, socket, Error,
};

/// One feature that XCP needs or can use.
#[derive(Clone, Debug, Serialize)]
pub struct Feature {
    pub name: &'static str,
    pub present: bool,
    /// XCP does not work without it.
    pub required: bool,
    /// What the probe found; if the feature is missing, the reason.
    pub detail: String,
    /// What does not work without the feature, or the remedy.
    pub cost: String,
}

const NEEDS_QDISC: &str = "6.16 and later with CONFIG_NET_SCH_BPF";

/// Probes all features. Without root, most of them are reported as missing.
pub fn probe() -> Vec<Feature> {
    let root = is_root();
    vec![
        Feature {
            name: "root",
            present: root,
            required: true,
            detail: if root { "yes" } else { "no" }.into(),
            cost: "hosts and routers need root (the lab does not): use sudo".into(),
        },
        Feature {
            name: "kernel type information (BTF)",
            present: Path::new("/sys/kernel/btf/vmlinux").exists(),
            required: true,
            detail: "/sys/kernel/btf/vmlinux".into(),
            cost: "programs cannot be loaded: use a kernel with CONFIG_DEBUG_INFO_BTF".into(),
        },
        loads(
            &object::CC,
            object::open(&object::CC).and_then(host::load_control),
            "XCP cannot be used by senders",
            "needs 6.6 or later with CONFIG_BPF_JIT",
        ),
        loads(
            &object::OPTION,
            object::open(&object::OPTION).and_then(|o| object::load(&object::OPTION, o)),
            "XCP cannot be used by hosts",
            "needs 6.6 or later with CONFIG_CGROUP_BPF",
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
            "this machine cannot be an XCP router",
            "needs 6.6 or later",
        ),
        headers(),
        pins(),
        control_groups(),
        Feature {
            name: "tcx links",
            present: has_tcx(),
            required: true,
            detail: "6.6 and later".into(),
            cost: "routers and `xcp host on --dev` do not work: use Linux 6.6 or later".into(),
        },
        queue_disciplines(),
        sockets_by_number(),
        gateways(),
        forwarding(),
        receive_memory(),
    ]
}

/// Reports whether an object loads. `lost` says what does not work without it, `needs` what
/// it requires.
fn loads<T>(image: &object::Image, result: crate::Result<T>, lost: &str, needs: &str) -> Feature {
    let what_to_do = match &result {
        Err(e) if [load_error::REPORT, error::FORBIDDEN].contains(&e.remedy.as_str()) => &e.remedy,
        _ => needs,
    };
    let cost = if what_to_do.is_empty() {
        lost.into()
    } else {
        format!("{lost}: {what_to_do}")
    };
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

fn queue_disciplines() -> Feature {
    let result = if has_qdisc() {
        object::open(&object::QDISC).and_then(|o| object::load(&object::QDISC, o))
    } else {
        Err(Error::new("", NEEDS_QDISC, ""))
    };
    let row = loads(
        &object::QDISC,
        result,
        "routers use the qdisc that the device already has",
        "",
    );
    Feature {
        required: false,
        detail: if row.present {
            NEEDS_QDISC.into()
        } else {
            row.detail
        },
        ..row
    }
}

/// The number of possible CPUs, which sets the size of the programs' maps.
pub fn processors() -> Option<u32> {
    object::cpus().ok()
}

fn headers() -> Feature {
    let result = object::open(&object::DEVICE).and_then(|o| object::load(&object::DEVICE, o));
    Feature {
        required: false,
        ..loads(
            &object::DEVICE,
            result,
            "the wire formats header and header-2004 are not available",
            "",
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
        cost: "programs choose XCP by setsockopt(TCP_CONGESTION, \"xcp\") instead".into(),
    }
}

fn gateways() -> Feature {
    const NEEDS: &str = "6.10 and later with CONFIG_IP_MULTIPLE_TABLES";
    let result = match has_marked_routes() && policy_routing::has_rules() {
        true => object::open(&object::GATEWAY).and_then(|o| object::load(&object::GATEWAY, o)),
        false => Err(Error::new("", NEEDS, "")),
    };
    let lost = "`xcp gateway` does not work";
    Feature {
        required: false,
        ..loads(&object::GATEWAY, result, lost, "")
    }
}

fn forwarding() -> Feature {
    let is_on = |file: &&str| fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
    let files = [
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/net/ipv6/conf/all/forwarding",
    ];
    let on: Vec<&str> = files.into_iter().filter(is_on).collect();
    Feature {
        name: "forwarding",
        present: !on.is_empty(),
        required: false,
        detail: match on.is_empty() {
            true => "net.ipv4.ip_forward is 0".into(),
            false => on.join(", "),
        },
        cost: "routers and gateways get no packets of others: sysctl net.ipv4.ip_forward=1".into(),
    }
}

fn pins() -> Feature {
    let bpffs = mounts::require_bpffs("").and_then(|()| mounts::require_writable_bpffs());
    Feature {
        name: "pinned programs (bpffs)",
        present: bpffs.is_ok(),
        required: true,
        detail: match &bpffs {
            Ok(()) => mounts::BPFFS.into(),
            Err(e) => e.reason.clone(),
        },
        cost: bpffs.map_or_else(|e| e.remedy, |()| String::new()),
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
        cost: mounts::require_bpffs("").map_or_else(
            |hidden| hidden.remedy, // what hides bpffs hides control groups, too
            |()| "no socket can use XCP: mount -t cgroup2 none /sys/fs/cgroup".into(),
        ),
    }
}

/// The bandwidth-delay product of the papers' long fat path: 10 Mb/s at 500 ms.
const LONG_PATH_BYTES: u64 = 625_000;

fn receive_memory() -> Feature {
    let path = "/proc/sys/net/ipv4/tcp_rmem";
    let largest: u64 = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.split_whitespace().nth(2)?.parse().ok())
        .unwrap_or(0);
    Feature {
        name: "receive buffers for long paths",
        present: largest >= 3 * LONG_PATH_BYTES,
        required: false,
        detail: format!("net.ipv4.tcp_rmem allows {largest} bytes"),
        cost: "windows are limited to a third of that: `xcp doctor --path` shows what a path needs"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_error_asks_for_a_bug_report() {
        let row = |remedy| {
            let refused: crate::Result<()> = Err(Error::new("router", "refused", remedy));
            loads(&object::ROUTER, refused, "no router", "needs 6.6")
        };
        assert_eq!(row("").cost, "no router: needs 6.6");
        assert!(row(error::FORBIDDEN).cost.contains("forbids"));
        let row = row(load_error::REPORT);
        assert!(!row.present && row.cost.contains("`xcp doctor --json`"));
        assert_eq!(row.detail, "refused");
    }
}
