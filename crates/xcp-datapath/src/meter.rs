// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The figures of many routers, read again and again: maps stay open between
//! readings, and the kernel is asked once for all devices. `router::list` tells more
//! of each, and takes ten times as long.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libbpf_rs::MapHandle;

use crate::intf::{RouterConfig, RouterLink};
use crate::link::Direction;
use crate::router::{self, TICKS_PER_SEC};
use crate::{bpffs, object, pinned, qdisc, rtnl, Result};

/// What a router knows and has done.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub device: String,
    /// That was set; None if it is only measured.
    pub configured_Bps: Option<u64>,
    /// What is handed out of; None before the first control interval has ended.
    pub capacity_Bps: Option<u64>,
    /// What the link was found to carry; None if it is not measured.
    pub measured_Bps: Option<u64>,
    pub input_Bps: u64,
    /// Backlog a moment before the last packet.
    pub queue_B: u64,
    /// Minimum backlog of the last estimation interval.
    pub persistent_queue_B: u64,
    pub flows: f64,
    pub average_rtt_s: f64,
    pub control_intervals: u64,
    pub xcp_packets: u64,
    pub other_packets: u64,
    pub malformed: u64,
    pub drops: u64,
    /// Somebody has replaced the queue discipline `xcp`.
    pub qdisc_replaced: bool,
}

/// A router's maps.
#[derive(Debug)]
struct Open {
    ifindex: u32,
    /// Of the pin, which another build of the router replaces.
    inode: u64,
    config: MapHandle,
    state: MapHandle,
    cpus: MapHandle,
}

/// Reads all routers of this thread's network namespace.
#[derive(Debug, Default)]
pub struct Meter {
    /// By folder.
    open: BTreeMap<String, Open>,
}

impl Meter {
    /// Fails unless this process may read them.
    pub fn new() -> Result<Self> {
        bpffs::require("xcp metrics", bpffs::Access::Read)?;
        Ok(Self::default())
    }

    /// The routers by device.
    pub fn read(&mut self) -> Result<Vec<Reading>> {
        self.look()?;
        let names: BTreeMap<u32, String> = rtnl::links()?
            .into_iter()
            .map(|link| (link.index, link.name))
            .collect();
        let drops = rtnl::root_drops()?;
        let mut readings = Vec::new();
        for open in self.open.values() {
            // the device may have gone meanwhile
            if let Some(name) = names.get(&open.ifindex) {
                let dropped = drops.get(&open.ifindex).copied().unwrap_or(0);
                readings.push(open.read(name, dropped)?);
            }
        }
        readings.sort_by(|a, b| a.device.cmp(&b.device));
        Ok(readings)
    }

    /// Opens what is new, and closes what is gone.
    fn look(&mut self) -> Result<()> {
        let mut before = std::mem::take(&mut self.open);
        for dir in pinned::folders("router") {
            let name = pinned::name_of(&dir);
            let Ok(pin) = fs::metadata(dir.join("config")) else {
                continue;
            };
            let known = before.remove(&name).filter(|o| o.inode == pin.ino());
            let open = match known {
                Some(open) => Some(open),
                None => Open::of(&dir, pin.ino())?,
            };
            self.open.extend(open.map(|open| (name, open)));
        }
        Ok(())
    }
}

impl Open {
    /// None if it is elsewhere, half there, or of another build that this one cannot
    /// read.
    fn of(dir: &Path, inode: u64) -> Result<Option<Self>> {
        let Some(ifindex) = pinned::here(dir, Direction::Egress) else {
            return Ok(None);
        };
        if !router::is_readable(dir)? {
            return Ok(None);
        }
        let map = |pin: &str| object::pinned_map(&dir.join(pin));
        Ok(Some(Self {
            ifindex,
            inode,
            config: map("config")?,
            state: map("state")?,
            cpus: map("cpus")?,
        }))
    }

    fn read(&self, device: &str, root_drops: u64) -> Result<Reading> {
        let config: RouterConfig = object::read_record(&self.config, 0)?;
        let link: RouterLink = object::read_record(&self.state, 0)?;
        let total = router::sum_counters(&self.cpus)?;
        let has_queue = config.queue > 0;
        let is_shared = has_queue && qdisc::is_present(config.queue - 1)?;
        let known = |value: u64| (value > 0).then_some(value);
        let d = &link.state.d;
        Ok(Reading {
            device: device.to_owned(),
            configured_Bps: known(config.params.capacity_Bps),
            capacity_Bps: known(link.state.capacity_Bps),
            measured_Bps: known(link.state.capacity.link_Bps).filter(|_| config.measure != 0),
            input_Bps: link.state.y_Bps,
            queue_B: link.seen.backlog_B,
            persistent_queue_B: link.state.queue_B,
            flows: f64::from(link.state.flows.mean) / crate::trace::FLOW,
            average_rtt_s: d.m as f64 * f64::from(d.e).exp2() / TICKS_PER_SEC,
            control_intervals: link.state.intervals,
            xcp_packets: total.xcp_packets,
            other_packets: total.other_packets,
            malformed: total.malformed,
            drops: match is_shared {
                true => qdisc::drops(config.queue - 1)?,
                false => root_drops,
            },
            qdisc_replaced: has_queue && !is_shared,
        })
    }
}
