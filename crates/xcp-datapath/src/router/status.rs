// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a router knows and has done.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::query::ProgInfoIter;
use serde::Serialize;
use xcp_abi::{xcp_router_config, xcp_router_link, XCP_SHARE_ONE};

use super::counters::{sum_counters, Counters};
use super::folder::{of_here, ours, readable, COMPLETE};
use super::framing::Framing;
use super::options::{percent, TICKS_PER_SEC};
use super::{qdisc, shape};
use crate::bpffs::Access;
use crate::link::Direction;
use crate::rtnl::{self, Device};
use crate::trace::FLOW;
use crate::warning::{Surroundings, Warning};
use crate::{bpffs, device, ethtool, link, monotonic_ns, object, LawTerm, Result};

/// XCP and other traffic on one link, in the last control interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sharing {
    /// XCP's weight, 0 to 1.
    pub xcp_part: f64,
    /// As far as they send alike.
    pub other_flows: f64,
    /// What arrived at the other queue, bits per second.
    pub other_rate_bps: u64,
}

impl Sharing {
    pub(crate) fn of(link: &xcp_router_link) -> Self {
        Self {
            xcp_part: f64::from(link.state.sharing.share) / f64::from(XCP_SHARE_ONE),
            other_flows: f64::from(link.other.other_flows) / FLOW,
            other_rate_bps: link.state.sharing.other_Bps * 8,
        }
    }
}

/// What a router knows and has done.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub device: String,
    /// Capacity that was set, bits per second; none if it is only measured.
    pub capacity_bps: Option<u64>,
    /// The hint of the capacity that `xcp router feed` gave last, bits per second;
    /// none if there is none, or it has expired.
    pub hint_bps: Option<u64>,
    /// The device's speed when the router was added, bits per second, where only
    /// measuring tells the capacity, which is never more.
    pub speed_bps: Option<u64>,
    /// The device's speed now, where that is another: [`add`] goes by it.
    pub new_speed_bps: Option<u64>,
    /// Less is handed out where the link is found to carry less.
    pub measure: bool,
    /// What is handed out of in the present control interval, bits per second;
    /// none before the first has ended.
    pub capacity_in_use_bps: Option<u64>,
    /// What the link was found to carry, bits per second; none if it is not
    /// measured, or nothing was seen yet.
    pub link_bps: Option<u64>,
    /// XCP's part of the link when other traffic wants it too, if it is set.
    pub xcp_share_percent: Option<u8>,
    /// How the link is shared, where other traffic has a queue of its own.
    pub sharing: Option<Sharing>,
    #[serde(flatten)]
    pub framing: Framing,
    /// The device's root queue discipline, if it has one.
    pub qdisc: Option<String>,
    /// The queue discipline `xcp` was there, and somebody has replaced it: the
    /// router goes on over what is there now, with one queue for all traffic.
    pub qdisc_replaced: bool,
    /// Programs of others on the device that packets pass before the router's:
    /// one that ends the chain hides them from it.
    pub programs_before: Vec<String>,
    /// The rate that the router's queue discipline, or its token bucket, holds
    /// the device to, bits per second.
    pub shape_bps: Option<u64>,
    /// Packets that the device's queues have dropped.
    pub drops: u64,
    /// IP protocol by which the formats `header` and `header-2004` are known.
    pub ip_proto: u8,
    /// The address that it writes into last_xcp_router, if a router behind a cloud
    /// asks for this one.
    pub edge: Option<IpAddr>,
    /// Input traffic of the last control interval, bits per second.
    pub input_rate_bps: u64,
    /// Backlog of all the device's queues, a moment before the last packet.
    pub queue_bytes: u64,
    /// Minimum backlog of the last estimation interval.
    pub persistent_queue_bytes: u64,
    /// XCP's flows, by what their packets say.
    pub xcp_flows: f64,
    /// Left out of the law; all parts: the law as it was published.
    pub without: Vec<LawTerm>,
    /// Mean RTT of the traffic in the last control interval.
    pub average_rtt_ms: f64,
    /// RTTs count at most this.
    pub max_rtt_ms: f64,
    /// Aggregate feedback decided for the present interval, bits per second.
    pub feedback_bps: i64,
    pub control_intervals: u64,
    #[serde(flatten)]
    pub counters: Counters,
    /// What an operator should know, and do.
    pub warnings: Vec<Warning>,
}

/// The router of a device.
pub fn show(dev: &str) -> Result<Status> {
    bpffs::require("xcp router show", Access::Read)?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    status(&device, &dir, &Surroundings::read()?)
}

/// All routers of this network namespace.
pub fn list() -> Result<Vec<Status>> {
    bpffs::require("xcp router show", Access::Read)?;
    let mut found: Vec<(u32, PathBuf)> = of_here()
        // incomplete installations are skipped; `add` or `del` ends them
        .filter(|(_, dir)| object::exists(&dir.join(COMPLETE)))
        .collect();
    found.sort();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let around = Surroundings::read()?;
    let named = |(index, dir)| Some((rtnl::name_of(index)?, dir));
    found
        .into_iter()
        .filter_map(named)
        .map(|(name, dir)| {
            let device = Device::find(&name)?;
            ours(&dir, &name)?;
            status(&device, &dir, &around)
        })
        .collect()
}

fn status(device: &Device, dir: &Path, around: &Surroundings) -> Result<Status> {
    let index = device.index;
    let root = rtnl::root_qdisc(index);
    let config: xcp_router_config =
        object::read_record(&object::pinned_map(&dir.join("config"))?, 0)?;
    let link: xcp_router_link = object::read_record(&object::pinned_map(&dir.join("state"))?, 0)?;
    let d_ticks = link.state.d.m as f64 * f64::from(link.state.d.e).exp2();
    let ms = |ticks: f64| ticks / TICKS_PER_SEC * 1e3;
    let has_queue = config.queue > 0;
    let is_shared = has_queue && qdisc::is_present(config.queue - 1)?;
    let (shape_Bps, drops) = match is_shared {
        true => (
            qdisc::rate(config.queue - 1)?,
            qdisc::drops(config.queue - 1)?,
        ),
        false => (
            shape::rate(device, dir),
            root.as_ref().map_or(0, |root| root.drops.into()),
        ),
    };
    let mut status = Status {
        device: device.name.clone(),
        capacity_bps: set(config.params.capacity_Bps * 8),
        hint_bps: set(config.hint_Bps * 8).filter(|_| monotonic_ns() < config.hint_until_ns),
        speed_bps: set(config.params.most_Bps * 8),
        new_speed_bps: ethtool::speed(&device.name)
            .filter(|now_Bps| config.params.capacity_Bps == 0 && *now_Bps != config.params.most_Bps)
            .map(|now_Bps| now_Bps * 8),
        measure: config.measure != 0,
        capacity_in_use_bps: set(link.state.capacity_Bps * 8),
        link_bps: set(link.state.capacity.link_Bps * 8).filter(|_| config.measure != 0),
        xcp_share_percent: percent(config.share),
        sharing: is_shared.then(|| Sharing::of(&link)),
        framing: Framing::of(&config.frame),
        qdisc: root.map(|root| root.kind),
        qdisc_replaced: has_queue && !is_shared,
        programs_before: programs_before(index, dir)?,
        shape_bps: shape_Bps.map(|rate| rate * 8),
        drops,
        ip_proto: config.ip_proto as u8,
        edge: (config.edge != 0).then(|| Ipv6Addr::from(config.edge_address).to_canonical()),
        input_rate_bps: link.state.y_Bps * 8,
        queue_bytes: link.seen.backlog_B,
        persistent_queue_bytes: link.state.queue_B,
        xcp_flows: f64::from(link.state.flows.mean) / FLOW,
        without: LawTerm::of_bits(config.params.without),
        average_rtt_ms: ms(d_ticks),
        max_rtt_ms: ms(config.params.max_rtt.into()),
        feedback_bps: link.state.f_Bps * 8,
        control_intervals: link.state.intervals,
        counters: sum_counters(&object::pinned_map(&dir.join("cpus"))?)?.into(),
        warnings: around.warnings(device),
    };
    let own = warnings(&status);
    status.warnings.extend(own);
    Ok(status)
}

/// What a router's own state warns of.
fn warnings(status: &Status) -> Vec<Warning> {
    let name = &status.device;
    let mut found = Vec::new();
    if status.qdisc.as_deref() == Some("noqueue") {
        found.push(Warning::new(
            "has no queue (noqueue), and nothing holds it to the capacity: the router cannot see \
             when the link is full",
            format!("shape it: xcp router add {name} --capacity RATE --shape"),
        ));
    }
    if status.qdisc_replaced {
        found.push(Warning::new(
            "the queue discipline xcp was replaced: XCP and other traffic share one queue",
            format!("tc qdisc del dev {name} root, and add the router again"),
        ));
    }
    if !status.programs_before.is_empty() {
        found.push(Warning::hiding(
            format!(
                "packets may not reach the router: {} runs before it",
                status.programs_before.join(", ")
            ),
            "attach that program behind the router",
        ));
    }
    if status.new_speed_bps.is_some() {
        found.push(Warning::new(
            "the device has another speed now",
            "add the router again",
        ));
    }
    if status.counters.chained_unedited > 0 {
        found.push(Warning::new(
            format!(
                "{} packets left without feedback of this router: fraglist GRO had chained them",
                status.counters.chained_unedited
            ),
            "ethtool -K DEV rx-gro-list off, on the devices that packets come in by",
        ));
    }
    found
}

/// The names of those that are not XCP's.
fn programs_before(index: u32, dir: &Path) -> Result<Vec<String>> {
    let ours = link::info(link::open(&dir.join("link"))?.as_fd())?.prog_id;
    let all = link::tcx_programs(index, Direction::Egress)?;
    let all = all.into_iter().map(|attached| attached.program);
    let before: Vec<u32> = all.take_while(|id| *id != ours).collect();
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let names = ProgInfoIter::default()
        .filter(|program| before.contains(&program.id))
        .map(|program| program.name.to_string_lossy().into_owned())
        .filter(|name| name != device::EGRESS);
    Ok(names.collect())
}

fn set(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}
