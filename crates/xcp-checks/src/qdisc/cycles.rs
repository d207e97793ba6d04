// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Installs and deletes the queue discipline under full load, and checks that packets stay
//! in order and nothing leaks.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use xcp_datapath::qdisc;
use xcp_datapath::router::{self, Limits, Queueing};

use super::frames::Class;
use super::load::{flow, Sink};
use super::tools::Pair;
use crate::check::Check;
use crate::{Error, Result};
use xcp_player::topology::tool;

/// 20 Mb/s: a fifth of the rate that the flows send.
const RATE_BYTES_PER_S: u64 = 2_500_000;
const PAUSE: Duration = Duration::from_micros(200);
/// Number of cycles until the kernel's caches have their final size.
const WARM_UP: u32 = 50;
/// Once in this many cycles, a router is also added and deleted.
const WHOLE_EVERY: u32 = 50;
/// Largest growth of memory use. Leaked packets would need more: a full queue has 90 KB.
const MEMORY_KB: i64 = 1024;
/// Time for deferred frees in the kernel.
pub const SETTLE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(3);

/// Runs this number of cycles and checks order, leaked objects and memory.
pub fn check(cycles: u32, progress: &mut dyn FnMut(f64)) -> Result<Vec<Check>> {
    sleep(SETTLE);
    let before = xcp_testbed::loaded()?;
    // one device keeps the queue discipline registered, since loading takes long
    let keeper = Pair::new("x")?;
    qdisc::install(&keeper.near, options(RATE_BYTES_PER_S))?;
    let pair = Pair::new("y")?;
    let sink = Sink::open(&pair.far)?;
    let dev = &pair.near;
    let loads = [
        flow(dev, 1, Class::Xcp, 1000, PAUSE)?,
        flow(dev, 2, Class::Other, 1500, PAUSE)?,
        flow(dev, 3, Class::Other, 100, PAUSE)?,
    ];
    let mut start_kb = 0;
    for cycle in 0..WARM_UP + cycles {
        if cycle == WARM_UP {
            start_kb = unreclaimable_kb()?;
        }
        if cycle % WHOLE_EVERY == 0 {
            whole(dev)?;
        } else {
            once(dev)?;
        }
        progress(f64::from(cycle) / f64::from(WARM_UP + cycles));
    }
    let end_kb = unreclaimable_kb()?;
    drop(loads);
    sleep(SETTLE);
    let seen = sink.seen();
    drop(sink);
    drop(pair);
    qdisc::remove(&keeper.near)?;
    sleep(SETTLE);
    let after = xcp_testbed::loaded()?;
    let packets: Vec<u64> = seen.values().map(|f| f.packets).collect();
    let sent: Vec<u64> = seen.values().map(|f| f.numbers()).collect();
    let late: u64 = seen.values().map(|f| f.late).sum();
    let check = |name: &str, ok, seen| Check {
        name: name.into(),
        ok,
        seen,
    };
    // each deleted queue loses its backlog: more losses than cycles show that there was one
    let changed = |(packets, sent): (&u64, &u64)| sent - packets > u64::from(cycles);
    Ok(vec![
        check(
            "order under change",
            late == 0 && packets.len() == 3 && packets.iter().zip(&sent).all(changed),
            format!("{cycles} cycles, {packets:?} of {sent:?} packets, {late} out of order"),
        ),
        check(
            "programs and maps",
            before == after,
            format!("{before:?} before, {after:?} after"),
        ),
        check(
            "memory",
            end_kb - start_kb < MEMORY_KB,
            format!("{} kB more than before", end_kb - start_kb),
        ),
    ])
}

fn options(rate_bytes_per_s: u64) -> qdisc::Options {
    qdisc::Options {
        rate_bytes_per_s,
        ..Default::default()
    }
}

/// Installs the queue discipline, changes it, replaces it by pfifo and a new `xcp`, and
/// deletes it.
fn once(dev: &str) -> Result<()> {
    qdisc::install(dev, options(RATE_BYTES_PER_S))?;
    sleep(BETWEEN);
    qdisc::install(dev, options(RATE_BYTES_PER_S / 2))?;
    sleep(BETWEEN);
    let batch = ["pfifo", "xcp"].map(|kind| format!("qdisc replace dev {dev} root {kind}\n"));
    tool("tc", &["-batch", "-"], &batch.concat())?;
    sleep(BETWEEN);
    qdisc::remove(dev)
}

/// Adds, changes and deletes a router with the queue discipline.
fn whole(dev: &str) -> Result<()> {
    for rate in [RATE_BYTES_PER_S, RATE_BYTES_PER_S / 2] {
        router::add(
            dev,
            router::Options {
                capacity_bytes_per_s: rate,
                queueing: Queueing::Auto(Limits::default()),
                ..Default::default()
            },
        )?;
        sleep(BETWEEN);
    }
    router::del(dev)
}

/// Unavailable memory, kB, after time for deferred frees.
fn unreclaimable_kb() -> Result<i64> {
    sleep(SETTLE);
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, &e))?;
    let of = |key: &str| -> i64 {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
            .and_then(|kb| kb.parse().ok())
            .unwrap_or_default()
    };
    Ok(of("MemTotal:") - of("MemAvailable:"))
}
