// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs experiments in namespaces of this host, in real time. Needs root and the host
//! kernel's queue disciplines.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use crate::experiment::{Experiment, Link, Queue};
use crate::machine::Played;
use crate::options::Progress;
use crate::play;
use crate::{Error, Result};

const QDISCS: &[(&str, &str)] = &[
    ("netem", "netem delay 1ms"),
    ("tbf", "tbf rate 10mbit burst 1600 limit 10000"),
    ("fq", "fq nopacing"),
    ("red", "red limit 100000 min 10000 max 30000 avpkt 1500"),
    ("fq_codel", "fq_codel"),
];

/// The queue disciplines that native runs need, and whether the kernel has them. Each is
/// tried on the loopback device of a new namespace. None: only root can try them.
pub fn native_qdiscs() -> Option<Vec<(&'static str, bool)>> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let tried = QDISCS.iter().map(|(name, rest)| {
        let script = format!("tc qdisc add dev lo root {rest}");
        let ok = Command::new("unshare")
            .args(["--net", "sh", "-c", &script])
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success());
        (*name, ok)
    });
    Some(tried.collect())
}

/// Runs all variants one after the other.
pub fn play_all(
    experiment: &Experiment,
    seed: u64,
    points: &[String],
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Played>> {
    let qdiscs = native_qdiscs().ok_or_else(|| {
        Error::new(
            "--native",
            "only root can create network namespaces",
            "run it with sudo, or in the virtual machine (without --native)",
        )
    })?;
    for name in wanted(experiment) {
        if !qdiscs.contains(&(name, true)) {
            return Err(Error::new(
                format!("sch_{name}"),
                "this kernel does not have the queue discipline that the experiment needs",
                "run it in the virtual machine (without --native)",
            ));
        }
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(|e| Error::io("osrelease", &e))?
        .trim()
        .to_owned();
    let prefix = format!("xcp{}-", std::process::id());
    let mut played = Vec::new();
    for variant in &experiment.variants {
        let name = &variant.name;
        // needs a separate thread, since it moves between namespaces
        let outcome = thread::scope(|scope| {
            scope
                .spawn(|| {
                    play::play(experiment, variant, seed, points, &prefix, &mut |done| {
                        progress(Progress::Variant { name, done })
                    })
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        played.push(Played {
            kernel: kernel.clone(),
            result: outcome.result,
            series: outcome.series,
            recordings: outcome.recordings,
        });
    }
    Ok(played)
}

/// The queue disciplines that an experiment needs.
fn wanted(experiment: &Experiment) -> Vec<&'static str> {
    let mut wanted = vec!["tbf"];
    if experiment.links.iter().any(Link::needs_netem) {
        wanted.push("netem");
    }
    if experiment.links.iter().any(|l| l.half_duplex) {
        wanted.push("fq");
    }
    for variant in &experiment.variants {
        match variant.queue {
            Queue::Red | Queue::XcpRed => wanted.push("red"),
            Queue::FqCodel => wanted.push("fq_codel"),
            Queue::Fifo | Queue::Xcp | Queue::XcpFifo => {}
        }
    }
    wanted
}
