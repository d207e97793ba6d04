// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Repeated readings of many routers: maps stay open between readings, and one request to
//! the kernel covers all devices. `router::list` returns more details, but takes ten times
//! as long.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libbpf_rs::MapHandle;

use super::counters::sum_counters;
use super::folder::is_readable;
use super::options::TICKS_PER_SEC;
use super::status::Sharing;
use crate::bpf_link::Direction;
use crate::rtnl::RootQueue;
use crate::{bpffs, folders, object, qdisc, rtnl, Result};
use xcp_abi::{xcp_router_config, xcp_router_link};

/// The state and counters of a router.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub device: String,
    /// The configured capacity; None if it is only measured.
    pub configured_Bps: Option<u64>,
    /// The capacity in use; None before the end of the first control interval.
    pub capacity_Bps: Option<u64>,
    /// The measured capacity; None if it is not measured.
    pub measured_Bps: Option<u64>,
    pub input_Bps: u64,
    /// The backlog just before the last packet.
    pub queue_B: u64,
    /// The minimum backlog of the last estimation interval.
    pub persistent_queue_B: u64,
    pub flows: f64,
    pub average_rtt_s: f64,
    pub control_intervals: u64,
    pub xcp_packets: u64,
    pub other_packets: u64,
    pub malformed: u64,
    pub drops: u64,
    /// The queue discipline `xcp` was replaced.
    pub qdisc_replaced: bool,
}

/// The part of a [`Reading`] that needs only one read of a map: for views that are refreshed
/// several times per second.
#[derive(Clone, Debug, Default)]
pub struct LinkReading {
    pub device: String,
    /// The minimum of the configured and the measured capacity; None if neither is known.
    pub capacity_Bps: Option<u64>,
    /// All bytes dequeued so far, counted as on the link.
    pub sent_B: u64,
    /// The backlog just before the last packet.
    pub queue_B: u64,
    pub flows: f64,
    /// XCP's share of the link, 0 to 1; None if all traffic shares one queue.
    pub xcp_share: Option<f64>,
    /// The device's root queue discipline, at the last [`Meter::refresh`].
    pub root: RootQueue,
}

/// The open maps of a router.
#[derive(Debug)]
struct Open {
    ifindex: u32,
    device: String,
    root: RootQueue,
    config: xcp_router_config,
    /// The inode of the pinned configuration; it changes if another build replaces the maps.
    inode: u64,
    config_map: MapHandle,
    state: MapHandle,
    cpus: MapHandle,
}

/// Reads all routers of this thread's network namespace.
#[derive(Debug, Default)]
pub struct Meter {
    /// The routers by folder name.
    open: BTreeMap<String, Open>,
}

impl Meter {
    /// Fails unless this process may read the routers' maps. Errors name the command.
    pub fn new(command: &str) -> Result<Self> {
        bpffs::require(command, bpffs::Access::Read)?;
        Ok(Self::default())
    }

    /// Reads all routers, sorted by device.
    pub fn read(&mut self) -> Result<Vec<Reading>> {
        self.refresh()?;
        self.by_device().map(Open::read).collect()
    }

    /// Finds routers that were added or removed, and reads their configurations and their
    /// devices' names and queues. It costs more than [`Self::links`], and can be called less
    /// often.
    pub fn refresh(&mut self) -> Result<()> {
        self.look()?;
        let roots = rtnl::root_queues()?;
        for open in self.open.values_mut() {
            open.config = object::read_record(&open.config_map, 0)?;
            open.root = roots.get(&open.ifindex).copied().unwrap_or_default();
            // empty if the device has been removed meanwhile
            open.device = rtnl::name_of(open.ifindex).unwrap_or_default();
        }
        self.open.retain(|_, open| !open.device.is_empty());
        Ok(())
    }

    /// Reads the links of the routers that the last [`Self::refresh`] found, sorted by device.
    pub fn links(&self) -> Result<Vec<LinkReading>> {
        self.by_device().map(Open::link).collect()
    }

    fn by_device(&self) -> impl Iterator<Item = &Open> {
        let mut all: Vec<&Open> = self.open.values().collect();
        all.sort_by(|a, b| a.device.cmp(&b.device));
        all.into_iter()
    }

    /// Opens the maps of new routers, and closes those of removed ones.
    fn look(&mut self) -> Result<()> {
        let mut before = std::mem::take(&mut self.open);
        for dir in folders::folders("router") {
            let name = folders::name_of(&dir);
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
    /// Opens a router's maps. None if the device is in another network namespace, the router
    /// is incomplete, or another build's records cannot be read.
    fn of(dir: &Path, inode: u64) -> Result<Option<Self>> {
        let Some(ifindex) = folders::here(dir, Direction::Egress) else {
            return Ok(None);
        };
        if !is_readable(dir)? {
            return Ok(None);
        }
        let map = |pin: &str| object::pinned_map(&dir.join(pin));
        Ok(Some(Self {
            ifindex,
            device: String::new(),
            root: RootQueue::default(),
            config: xcp_router_config::default(),
            inode,
            config_map: map("config")?,
            state: map("state")?,
            cpus: map("cpus")?,
        }))
    }

    fn link(&self) -> Result<LinkReading> {
        let config = &self.config;
        let link: xcp_router_link = object::read_record(&self.state, 0)?;
        let known = [config.params.capacity_Bps, measured_Bps(config, &link)];
        Ok(LinkReading {
            device: self.device.clone(),
            capacity_Bps: known.into_iter().filter(|Bps| *Bps > 0).min(),
            sent_B: link.seen.sent_B,
            queue_B: link.seen.backlog_B,
            flows: flows(&link),
            xcp_share: known_share(config, &link),
            root: self.root,
        })
    }

    fn read(&self) -> Result<Reading> {
        let config = &self.config;
        let link: xcp_router_link = object::read_record(&self.state, 0)?;
        let total = sum_counters(&self.cpus)?;
        let has_queue = config.queue > 0;
        let is_shared = has_queue && qdisc::is_present(config.queue - 1)?;
        let known = |value: u64| (value > 0).then_some(value);
        let d = &link.state.d;
        Ok(Reading {
            device: self.device.clone(),
            configured_Bps: known(config.params.capacity_Bps),
            capacity_Bps: known(link.state.capacity_Bps),
            measured_Bps: known(measured_Bps(config, &link)),
            input_Bps: link.state.y_Bps,
            queue_B: link.seen.backlog_B,
            persistent_queue_B: link.state.queue_B,
            flows: flows(&link),
            average_rtt_s: d.m as f64 * f64::from(d.e).exp2() / TICKS_PER_SEC,
            control_intervals: link.state.intervals,
            xcp_packets: total.xcp_packets,
            other_packets: total.other_packets,
            malformed: total.malformed,
            drops: match is_shared {
                true => qdisc::drops(config.queue - 1)?,
                false => self.root.dropped_packets.into(),
            },
            qdisc_replaced: has_queue && !is_shared,
        })
    }
}

/// The measured capacity of the link; 0 if it is not measured.
fn measured_Bps(config: &xcp_router_config, link: &xcp_router_link) -> u64 {
    match config.measure {
        0 => 0,
        _ => link.state.capacity.link_Bps,
    }
}

/// XCP's share of the link; None also before the end of the first control interval.
fn known_share(config: &xcp_router_config, link: &xcp_router_link) -> Option<f64> {
    let part = Sharing::of(link).xcp_share;
    (config.queue > 0 && part > 0.0).then_some(part)
}

fn flows(link: &xcp_router_link) -> f64 {
    f64::from(link.state.flows.mean) / crate::trace::FLOW
}
