// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The state, counters and warnings of a router.

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
use crate::bpf_link::Direction;
use crate::bpffs::Access;
use crate::rtnl::{self, Device};
use crate::trace::FLOW;
use crate::warning::{BypassRisks, Warning};
use crate::{bpf_link, bpffs, device, ethtool, monotonic_ns, object, LawTerm, Result};

/// XCP and other traffic on one link, in the last control interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sharing {
    /// XCP's share of the link, 0 to 1.
    pub xcp_share: f64,
    /// The number of other flows, estimated as if all sent alike.
    pub other_flows: f64,
    /// Input traffic of the other queue, bits per second.
    pub other_rate_bps: u64,
}

impl Sharing {
    pub(crate) fn of(link: &xcp_router_link) -> Self {
        Self {
            xcp_share: f64::from(link.state.sharing.share) / f64::from(XCP_SHARE_ONE),
            other_flows: f64::from(link.other.other_flows) / FLOW,
            other_rate_bps: link.state.sharing.other_Bps * 8,
        }
    }
}

/// The state, counters and warnings of a router.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub device: String,
    /// The configured capacity, bits per second; None if it is only measured.
    pub capacity_bps: Option<u64>,
    /// The last capacity hint of `xcp router feed`, bits per second; None if there is none or
    /// it has expired.
    pub hint_bps: Option<u64>,
    /// The device's speed when the router was added, bits per second, if the capacity is only
    /// measured. It is the upper limit of the capacity.
    pub speed_bps: Option<u64>,
    /// The device's present speed, if it has changed. The next [`add`] uses it.
    pub new_speed_bps: Option<u64>,
    /// The link is measured, and less is handed out if it carries less.
    pub measure: bool,
    /// The capacity in use in the present control interval, bits per second; None before the
    /// end of the first one.
    pub capacity_in_use_bps: Option<u64>,
    /// The measured capacity of the link, bits per second; None if it is not measured or not
    /// known yet.
    pub link_bps: Option<u64>,
    /// XCP's configured share of the link when other traffic competes for it.
    pub xcp_share_percent: Option<u8>,
    /// How the link is shared, if other traffic has a separate queue.
    pub sharing: Option<Sharing>,
    #[serde(flatten)]
    pub framing: Framing,
    /// The device's root queue discipline, if it has one.
    pub qdisc: Option<String>,
    /// The queue discipline `xcp` was replaced. The router continues to work, with one queue
    /// for all traffic.
    pub qdisc_replaced: bool,
    /// Other programs on the device that run before the router. One that ends the chain hides
    /// packets from the router.
    pub programs_before: Vec<String>,
    /// The rate to which the queue discipline `xcp` or the token bucket limits the device, bits
    /// per second.
    pub shape_bps: Option<u64>,
    /// Packets that the device's queues dropped.
    pub drops: u64,
    /// The IP protocol number of the formats `header` and `header-2004`.
    pub ip_proto: u8,
    /// The address that the router writes into last_xcp_router, if it is known as the last XCP
    /// router before a cloud.
    pub edge: Option<IpAddr>,
    /// The input traffic of the last control interval, bits per second.
    pub input_rate_bps: u64,
    /// The backlog of all queues of the device, just before the last packet.
    pub queue_bytes: u64,
    /// The minimum backlog of the last estimation interval.
    pub persistent_queue_bytes: u64,
    /// The number of XCP flows, computed from their headers.
    pub xcp_flows: f64,
    /// The terms that are left out of the control law. Without all terms, it is the published
    /// law.
    pub without: Vec<LawTerm>,
    /// The mean RTT of the traffic in the last control interval.
    pub average_rtt_ms: f64,
    /// The limit of RTTs in headers; longer ones count as this.
    pub max_rtt_ms: f64,
    /// The aggregate feedback of the present control interval, bits per second.
    pub feedback_bps: i64,
    pub control_intervals: u64,
    #[serde(flatten)]
    pub counters: Counters,
    /// Problems, with remedies.
    pub warnings: Vec<Warning>,
}

/// The status of a device's router.
pub fn show(dev: &str) -> Result<Status> {
    bpffs::require("xcp router show", Access::Read)?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    status(&device, &dir, &BypassRisks::read()?)
}

/// The status of all routers of this network namespace.
pub fn list() -> Result<Vec<Status>> {
    bpffs::require("xcp router show", Access::Read)?;
    let mut found: Vec<(u32, PathBuf)> = of_here()
        // incomplete installations are skipped; `add` completes and `del` removes them
        .filter(|(_, dir)| object::exists(&dir.join(COMPLETE)))
        .collect();
    found.sort();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let around = BypassRisks::read()?;
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

fn status(device: &Device, dir: &Path, around: &BypassRisks) -> Result<Status> {
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
        speed_bps: set(config.params.peak_Bps * 8),
        new_speed_bps: ethtool::speed(&device.name)
            .filter(|now_Bps| config.params.capacity_Bps == 0 && *now_Bps != config.params.peak_Bps)
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

/// Warnings that follow from the router's state.
fn warnings(status: &Status) -> Vec<Warning> {
    let name = &status.device;
    let mut found = Vec::new();
    if status.qdisc.as_deref() == Some("noqueue") {
        found.push(Warning::new(
            "has no queue (noqueue), and nothing limits it to the capacity: the router cannot see \
             when the link is full",
            format!("shape it: xcp router add {name} --capacity RATE --shape"),
        ));
    }
    if status.qdisc_replaced {
        found.push(Warning::new(
            "the queue discipline xcp was replaced: XCP and other traffic share one queue",
            format!("run tc qdisc del dev {name} root, and add the router again"),
        ));
    }
    if !status.programs_before.is_empty() {
        found.push(Warning::hiding(
            format!(
                "packets may not reach the router: {} runs before it",
                status.programs_before.join(", ")
            ),
            "attach that program after the router",
        ));
    }
    if status.new_speed_bps.is_some() {
        found.push(Warning::new(
            "the device's speed has changed",
            "add the router again",
        ));
    }
    if status.counters.chained_unedited > 0 {
        found.push(Warning::new(
            format!(
                "{} packets left without this router's feedback: fraglist GRO had chained them",
                status.counters.chained_unedited
            ),
            "run ethtool -K DEV rx-gro-list off on the input devices",
        ));
    }
    found
}

/// The names of the programs that run before the router and are not XCP's.
fn programs_before(index: u32, dir: &Path) -> Result<Vec<String>> {
    let ours = bpf_link::info(bpf_link::open(&dir.join("link"))?.as_fd())?.prog_id;
    let all = bpf_link::tcx_programs(index, Direction::Egress)?;
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
