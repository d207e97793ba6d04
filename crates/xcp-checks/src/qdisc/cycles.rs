// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The queue discipline comes and goes under full load: nothing overtakes,
//! nothing is left.

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

/// 20 Mb/s: a fifth of what the flows send.
const RATE_BYTES_PER_S: u64 = 2_500_000;
const PAUSE: Duration = Duration::from_micros(200);
/// Cycles until the kernel's caches have what they keep.
const WARM_UP: u32 = 50;
/// Each so many cycles a router comes and goes too.
const WHOLE_EVERY: u32 = 50;
/// Packets that are left behind would take more: a queue full is 90 KB.
const MEMORY_KB: i64 = 1024;
/// Until the kernel has freed what it frees later.
pub const SETTLE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(3);

/// Goes through so many cycles.
pub fn check(cycles: u32, progress: &mut dyn FnMut(f64)) -> Result<Vec<Check>> {
    sleep(SETTLE);
    let before = xcp_testbed::loaded()?;
    // one device keeps the registration: loading takes long
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
    // a queue that is removed loses its backlog: so there was one
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

/// Installed, changed, replaced by others and by itself, deleted.
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

/// Installed, changed and deleted with a router.
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

/// Memory that the kernel has and cannot give back, after it had time to
/// free.
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
