// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP router on an output link: one program instance per device, pinned
//! in `router/NETNS-IFINDEX`. A device that moves to another network namespace
//! takes its router along; the folder gets its new name with the next command
//! that changes something.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, Object, OpenObject, ProgramMut};
use serde::Serialize;

use crate::bpffs::Access;
use crate::link::{Direction, Place};
use crate::rtnl::{self, Device};
use crate::shape::{self, Shape};
use crate::trace::{self, Trace, FLOW};
use crate::turn::Turn;
use crate::warning::{Surroundings, Warning};
use crate::{
    bpffs, device, ethtool, features, layout, link, monotonic_ns, object, pinned, qdisc, wire,
    Error, Result, Term,
};
use xcp_abi::{
    xcp_frame, xcp_router_config, xcp_router_counters, xcp_router_cpu, xcp_router_link,
    xcp_router_params, Record, XCP_SHARE_ONE, XCP_TICKS_PER_SEC,
};

/// The smallest and the largest capacity, bytes per second.
pub const CAPACITY_RANGE_BPS: std::ops::RangeInclusive<u64> = 1_000..=125_000_000_000;
/// The overhead per packet, bytes: negative where the link leaves out what
/// Linux counts.
pub const OVERHEAD_RANGE_B: std::ops::RangeInclusive<i32> = -64..=4096;

/// The longest RTT that may be believed.
pub const MAX_RTT_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(15);

/// From 10 Gb/s on, full packets under the one lock of the queue discipline `xcp`
/// keep a processor busy (docs/costs.md: some 2,000 instructions each), and
/// several queues (mq) bring more than two classes do.
const MQ_FROM_BPS: u64 = 1_250_000_000;

/// A folder that says that all of a router is there.
/// In it, which build they are of.
const COMPLETE: &str = "complete";
/// The folder of another build's parts, until they take the place of these.
const NEXT: &str = "next";
const PROGRAM: &str = "program";
/// Maps, and where they are pinned.
const MAPS: [(&str, &str); 4] = [
    ("cpus", "cpus"),
    (".data.config", "config"),
    (".data.link", "state"),
    ("trace", trace::PIN),
];

/// What commands read of them.
const RECORDS: [&str; 4] = ["cpus", "config", "link", "xcp_router_record"];

const MIN_INTERVAL_NS: u64 = 1_000_000;
pub(crate) const TICKS_PER_SEC: f64 = XCP_TICKS_PER_SEC as f64;

/// What a router hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Capacity of the link, bytes per second; 0 if only measuring tells.
    pub capacity_bytes_per_s: u64,
    /// Hand out less where the link is found to carry less.
    pub measure: bool,
    /// Left out of the law.
    pub without: Terms,
    /// RTTs in headers count at most this, of [`MAX_RTT_RANGE`].
    pub max_rtt: Duration,
    /// Percent of the link that is XCP's when other traffic wants it too; by
    /// the numbers of flows if not set.
    pub xcp_share_percent: Option<u8>,
    /// What the link adds to packets.
    pub framing: Framing,
    /// The device's queue discipline.
    pub queueing: Queueing,
    /// IP protocol of the wire formats `header` and `header-2004`.
    pub ip_proto: u8,
    /// Feedback in whole packets in the wire format `option-2005`: what it
    /// must not be (Zhang & Henderson 2005, II-E.2), for the lab.
    pub whole_feedback: bool,
}

/// Parts of the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms(u32);

impl Terms {
    /// What the published law does not have.
    #[must_use]
    pub fn all() -> Self {
        Self::from(Term::ALL)
    }
}

impl Terms {
    /// One by one.
    #[must_use]
    pub fn names(self) -> Vec<Term> {
        Term::of_bits(self.0)
    }
}

impl From<&[Term]> for Terms {
    fn from(terms: &[Term]) -> Self {
        Self(Term::bits(terms))
    }
}

/// Who queues a router's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// The queue discipline `xcp`, where the kernel can have it, shaping to
    /// the capacity; but fast devices with several queues keep theirs (mq).
    Auto(Limits),
    /// The same shaping to a rate of its own; where the kernel cannot have it,
    /// a token bucket (tbf) does that.
    Shape {
        rate_bytes_per_s: u64,
        /// Packets that may wait; 0 for twice what 100 ms at that rate hold.
        limit_packets: u32,
    },
    /// Whatever the device has.
    #[default]
    Keep,
}

/// Of the queue discipline `xcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes in each of its two queues; 0 for any number.
    pub bytes: u32,
    /// Most packets in each of its two queues; 0 for 1,000.
    pub packets: u32,
    /// Devices with the same number take turns on one medium; 0 for a medium
    /// of its own.
    pub medium: u32,
}

/// What a link adds to packets, in the terms of tc-cake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Framing {
    /// Bytes added to every packet.
    pub overhead_bytes: i32,
    /// Fewer bytes than that are filled up.
    pub mpu_bytes: u32,
    pub cells: Cells,
}

/// How a link cuts packets up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cells {
    #[default]
    None,
    /// 48 bytes in 53.
    Atm,
    /// 64 bytes in 65.
    Ptm,
}

impl Framing {
    pub(crate) fn of(frame: &xcp_frame) -> Self {
        Self {
            overhead_bytes: frame.overhead_B,
            mpu_bytes: frame.mpu_B,
            cells: match frame.cells {
                1 => Cells::Atm,
                2 => Cells::Ptm,
                _ => Cells::None,
            },
        }
    }

    pub(crate) fn record(self) -> xcp_frame {
        xcp_frame {
            overhead_B: self.overhead_bytes,
            mpu_B: self.mpu_bytes,
            cells: match self.cells {
                Cells::None => 0,
                Cells::Atm => 1,
                Cells::Ptm => 2,
            },
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity_bytes_per_s: 0,
            measure: true,
            without: Terms::default(),
            max_rtt: Duration::from_secs(1),
            xcp_share_percent: None,
            framing: Framing::default(),
            queueing: Queueing::default(),
            ip_proto: wire::IP_PROTO,
            whole_feedback: false,
        }
    }
}

/// A percentage in units of 2^-16, and back.
fn share(percent: u8) -> u32 {
    u32::from(percent) * XCP_SHARE_ONE / 100
}

fn percent(share: u32) -> Option<u8> {
    (share > 0).then_some(((share * 100 + XCP_SHARE_ONE / 2) / XCP_SHARE_ONE) as u8)
}

impl Options {
    /// How the queue discipline `xcp` works for it, if it is to be there.
    fn qdisc(self) -> Option<qdisc::Options> {
        match self.queueing {
            Queueing::Auto(limits) if features::has_qdisc() => Some(qdisc::Options {
                rate_bytes_per_s: self.capacity_bytes_per_s,
                limits,
                framing: self.framing,
            }),
            Queueing::Shape {
                rate_bytes_per_s,
                limit_packets,
            } if features::has_qdisc() => Some(qdisc::Options {
                rate_bytes_per_s,
                limits: Limits {
                    packets: limit_packets,
                    ..Limits::default()
                },
                framing: self.framing,
            }),
            _ => None,
        }
    }

    /// What the token bucket has to do, if it has to.
    fn shape(self) -> Option<Shape> {
        match self.queueing {
            Queueing::Shape {
                rate_bytes_per_s,
                limit_packets,
            } if !features::has_qdisc() => Some(Shape {
                rate_bytes_per_s,
                limit_packets,
                framing: self.framing,
            }),
            _ => None,
        }
    }

    /// What suits a device that has several queues, if it has.
    fn over(self, device: &Device) -> Self {
        let keeps = || rtnl::root_qdisc(device.index).is_some_and(|root| root.kind == "mq");
        let rate_Bps = match self.capacity_bytes_per_s {
            0 => ethtool::speed(&device.name).unwrap_or(0),
            set => set,
        };
        match self.queueing {
            Queueing::Auto(_) if rate_Bps >= MQ_FROM_BPS && keeps() => Self {
                queueing: Queueing::Keep,
                ..self
            },
            _ => self,
        }
    }

    /// The same, with what the device tells of itself.
    fn config(self, device: &Device) -> xcp_router_config {
        let mut config = self.record();
        // of a virtual device it is nothing that holds, so a capacity that was
        // given goes before it
        if self.capacity_bytes_per_s == 0 {
            config.params.most_Bps = ethtool::speed(&device.name).unwrap_or(0);
        }
        config
    }

    pub(crate) fn record(self) -> xcp_router_config {
        xcp_router_config {
            params: xcp_router_params {
                capacity_Bps: self.capacity_bytes_per_s,
                most_Bps: 0,
                min_interval_ns: MIN_INTERVAL_NS,
                without: self.without.0,
                max_rtt: (self.max_rtt.as_secs_f64() * TICKS_PER_SEC) as u32,
            },
            frame: self.framing.record(),
            measure: self.measure.into(),
            share: self.xcp_share_percent.map_or(0, share),
            ip_proto: self.ip_proto.into(),
            whole_feedback: self.whole_feedback.into(),
            ..Default::default()
        }
    }
}

/// The same with an address to write into last_xcp_router, or none.
#[must_use]
pub fn with_edge(config: xcp_router_config, address: Option<IpAddr>) -> xcp_router_config {
    let edge_address = match address {
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
        None => [0; 16],
    };
    xcp_router_config {
        edge: address.map_or(0, wire::router_id),
        edge_address,
        ..config
    }
}

/// What an `add` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Changed,
    Unchanged,
}

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
    pub without: Vec<Term>,
    /// Mean RTT of the traffic in the last control interval.
    pub average_rtt_ms: f64,
    /// RTTs count at most this.
    pub max_rtt_ms: f64,
    /// Aggregate feedback decided for the present interval, bits per second.
    pub feedback_bps: i64,
    /// Sum of all feedback that left in headers since the router was added,
    /// bytes per second.
    pub granted_bytes_per_s: i64,
    pub control_intervals: u64,
    pub xcp_packets: u64,
    pub other_packets: u64,
    pub malformed: u64,
    /// Packets with a forward header that fraglist GRO (ethtool's rx-gro-list)
    /// had chained on the device that they came in by: merged and edited.
    pub chained: u64,
    /// The same, but not edited: they left as they came.
    pub chained_unedited: u64,
    /// What an operator should know, and do.
    pub warnings: Vec<Warning>,
}

fn part(ifindex: u32) -> Result<String> {
    Ok(format!("router/{}-{ifindex}", rtnl::netns()?))
}

/// The folder of a device's router, whose name may be of where it was before.
fn find(device: &Device) -> Result<Option<PathBuf>> {
    let named = bpffs::dir(&part(device.index)?);
    let is_on = |dir: &PathBuf| pinned::is_on(dir, device.index, Direction::Egress);
    if is_on(&named) {
        return Ok(Some(named));
    }
    Ok(pinned::folders("router").find(is_on))
}

/// The routers of this network namespace: the numbers of their devices, and their
/// folders.
fn of_here() -> impl Iterator<Item = (u32, PathBuf)> {
    pinned::folders("router").filter_map(|dir| Some((pinned::here(&dir, Direction::Egress)?, dir)))
}

/// The same, where its records are laid out as in this build.
pub(crate) fn readable(device: &Device) -> Result<PathBuf> {
    let dir = find(device)?.ok_or_else(|| no_router(&device.name))?;
    ours(&dir, &device.name)?;
    Ok(dir)
}

/// Fails where a folder's records are laid out otherwise than in this build.
fn ours(dir: &Path, dev: &str) -> Result<()> {
    match layout::is_ours(dir, &object::ROUTER, &RECORDS)? {
        true => Ok(()),
        false => Err(object::other_version(dev)),
    }
}

/// Gives the folder of a device's router its name, if the device has moved. A
/// router that has that name and is not here any more is taken off.
fn settle(device: &Device) -> Result<()> {
    let part = part(device.index)?;
    let named = bpffs::dir(&part);
    let found = find(device)?;
    if found.as_ref() == Some(&named) {
        return Ok(());
    }
    if object::exists(&named.join("link")) {
        link::detach(link::open(&named.join("link"))?.as_fd());
        bpffs::remove(&part)?;
    }
    let Some(found) = found else {
        return Ok(());
    };
    // its queue discipline stayed behind, so `add` is to set all up anew
    let _ = fs::remove_dir(found.join(COMPLETE).join(object::ROUTER.build()));
    let _ = fs::remove_dir_all(&named);
    fs::rename(&found, &named).map_err(|e| Error::io(named.display().to_string(), &e))
}

fn no_router(dev: &str) -> Error {
    Error::new(
        dev,
        "no XCP router on this device",
        format!("add one: xcp router add {dev} --capacity 10mbit"),
    )
}

/// A router program, loaded but not attached, over no queue discipline.
pub(crate) fn load(l2_len: u32, options: Options) -> Result<Object> {
    load_for(object::cpus()?, l2_len, options)
}

/// The same for a machine of so many processors.
pub(crate) fn load_for(cpus: u32, l2_len: u32, options: Options) -> Result<Object> {
    load_over(cpus, l2_len, options.record(), None)
}

fn load_over(
    cpus: u32,
    l2_len: u32,
    config: xcp_router_config,
    queues: Option<&Path>,
) -> Result<Object> {
    let mut open = object::open(&object::ROUTER)?;
    if let Some(folder) = queues {
        object::reuse(&mut open, &[qdisc::RECORDS], folder)?;
    }
    let merge_chains = features::merges_chains().into();
    configure(&mut open, &[l2_len, cpus, merge_chains], config)?;
    object::load(&object::ROUTER, open)
}

/// Sets the constants of an opened router program, of which the second is the
/// number of processors, and its configuration.
pub(crate) fn configure(
    open: &mut OpenObject,
    constants: &[u32],
    config: xcp_router_config,
) -> Result<()> {
    object::open_map(open, "cpus")?
        .set_max_entries(constants[1])
        .map_err(|e| object::failure("map of CPUs", &e))?;
    let constants: Vec<u8> = constants.iter().flat_map(|v| v.to_ne_bytes()).collect();
    object::open_map(open, ".rodata")?
        .set_initial_value(&constants)
        .map_err(|e| object::failure("constants", &e))?;
    object::open_map(open, ".data.config")?
        .set_initial_value(config.bytes())
        .map_err(|e| object::failure("configuration", &e))
}

/// Makes a device an XCP router's output, or changes its options.
pub fn add(dev: &str, options: Options) -> Result<Change> {
    bpffs::require("xcp router add", Access::Change)?;
    let _turn = Turn::take()?;
    let device = Device::find(dev)?;
    pinned::sweep_if_free();
    let part = part(device.index)?;
    let dir = bpffs::dir(&part);
    refuse_unmeasurable(&device, options)?;
    settle(&device)?;
    let options = options.over(&device);
    if object::exists(&dir.join(COMPLETE)) {
        return match object::exists(&dir.join(COMPLETE).join(object::ROUTER.build())) {
            true => change(&device, options, &dir),
            false => renew(&device, options, &dir).map(|()| Change::Changed),
        };
    }
    if object::exists(&dir) {
        // what a command that was killed has left half done
        take_down(&device)?;
    }
    bpffs::create(&part)?;
    install(&device, options, &dir).inspect_err(|_| {
        let _ = qdisc::remove(&device.name);
        let _ = shape::remove(&device, &dir);
        let _ = bpffs::remove(&part);
    })?;
    Ok(Change::Added)
}

/// What [`add`] would have set with these options, in the form in which
/// [`options`] tells it: where two ways of asking come to the same on this device
/// and this kernel, one of them.
///
/// # Errors
/// There is no such device.
pub fn settled(dev: &str, asked: Options) -> Result<Options> {
    let asked = asked.over(&Device::find(dev)?);
    let max_rtt_ticks = asked.record().params.max_rtt;
    Ok(Options {
        queueing: queueing(asked.capacity_bytes_per_s, asked.qdisc(), asked.shape()),
        max_rtt: duration(max_rtt_ticks),
        ..asked
    })
}

/// What the router of a device is set to; None if it has none. One of another
/// build, whose records are laid out otherwise, has none that can be read.
///
/// # Errors
/// There is no such device, or its records cannot be read.
pub fn options(dev: &str) -> Result<Option<Options>> {
    bpffs::require("the configuration", Access::Read)?;
    let device = Device::find(dev)?;
    let Some(dir) = find(&device)?.filter(|dir| object::exists(&dir.join(COMPLETE))) else {
        return Ok(None);
    };
    ours(&dir, dev)?;
    let config: xcp_router_config =
        object::read_record(&object::pinned_map(&dir.join("config"))?, 0)?;
    let params = &config.params;
    let framing = Framing::of(&config.frame);
    let qdisc = match config.queue {
        0 => None,
        behind => Some(qdisc::options(behind - 1)?),
    };
    let shape = shape::set(&dir).map(|(rate_bytes_per_s, limit_packets)| Shape {
        rate_bytes_per_s,
        limit_packets,
        framing,
    });
    Ok(Some(Options {
        capacity_bytes_per_s: params.capacity_Bps,
        measure: config.measure != 0,
        without: Terms(params.without),
        max_rtt: duration(params.max_rtt),
        xcp_share_percent: percent(config.share),
        framing,
        queueing: queueing(params.capacity_Bps, qdisc, shape),
        ip_proto: config.ip_proto as u8,
        whole_feedback: config.whole_feedback != 0,
    }))
}

/// Ticks as a time, to the microsecond.
fn duration(ticks: u32) -> Duration {
    let us = f64::from(ticks) / TICKS_PER_SEC * 1e6;
    Duration::from_micros(us.round() as u64)
}

/// Who queues a router's packets, by what is there.
fn queueing(capacity_Bps: u64, qdisc: Option<qdisc::Options>, shape: Option<Shape>) -> Queueing {
    match (qdisc, shape) {
        (Some(qdisc), _) if qdisc.rate_bytes_per_s == capacity_Bps => Queueing::Auto(qdisc.limits),
        (Some(qdisc), _) => Queueing::Shape {
            rate_bytes_per_s: qdisc.rate_bytes_per_s,
            limit_packets: qdisc.limits.packets,
        },
        (None, Some(shape)) => {
            let limit_packets = shape.limit_packets();
            let default = Shape {
                limit_packets: 0,
                ..shape
            };
            Queueing::Shape {
                rate_bytes_per_s: shape.rate_bytes_per_s,
                limit_packets: match limit_packets == default.limit_packets() {
                    true => 0,
                    false => limit_packets,
                },
            }
        }
        (None, None) => Queueing::Keep,
    }
}

/// Whether all of a router is in a folder, laid out as in this build.
pub(crate) fn is_readable(dir: &Path) -> Result<bool> {
    Ok(object::exists(&dir.join(COMPLETE)) && layout::is_ours(dir, &object::ROUTER, &RECORDS)?)
}

/// The devices of this network namespace that are XCP routers, by name.
///
/// # Errors
/// This process may not see what is pinned.
pub fn devices() -> Result<Vec<String>> {
    bpffs::require("the configuration", Access::Read)?;
    let complete = of_here().filter(|(_, dir)| object::exists(&dir.join(COMPLETE)));
    let mut names: Vec<String> = complete.filter_map(|(i, _)| rtnl::name_of(i)).collect();
    names.sort();
    Ok(names)
}

/// Fails where only measuring is to tell the capacity, and nothing can be
/// measured.
fn refuse_unmeasurable(device: &Device, options: Options) -> Result<()> {
    let by_measuring = options.capacity_bytes_per_s == 0;
    let shaped = matches!(options.queueing, Queueing::Shape { .. });
    match by_measuring && !shaped {
        true => refuse_noqueue(device),
        false => Ok(()),
    }
}

/// Fails where the device never holds packets back.
pub(crate) fn refuse_noqueue(device: &Device) -> Result<()> {
    let root = rtnl::root_qdisc(device.index);
    if root.is_some_and(|root| root.kind == "noqueue") {
        return Err(Error::new(
            &device.name,
            "never holds packets back (noqueue), so its capacity cannot be measured",
            "give it: --capacity 10mbit",
        ));
    }
    Ok(())
}

/// Changes what a router hands out. One that gets a queue discipline, or loses
/// it, is renewed: its program holds the map of records.
fn change(device: &Device, options: Options, dir: &Path) -> Result<Change> {
    let map = object::pinned_map(&dir.join("config"))?;
    let present: xcp_router_config = object::read_record(&map, 0)?;
    let mut config = options.config(device);
    config.edge = present.edge;
    config.edge_address = present.edge_address;
    config.hint_Bps = present.hint_Bps;
    config.hint_until_ns = present.hint_until_ns;
    let mut queue_changed = false;
    match (options.qdisc(), present.queue) {
        (None, 0) => {}
        (Some(queue), 1..) => {
            let installed = qdisc::install(&device.name, queue)?;
            config.queue = installed.index + 1;
            queue_changed = installed.changed;
        }
        _ => return renew(device, options, dir).map(|()| Change::Changed),
    }
    queue_changed |= match options.shape() {
        Some(shape) => shape::install(device, shape, dir)?,
        None => shape::remove(device, dir)?,
    };
    if config.bytes() != present.bytes() {
        object::write_record(&map, &config)?;
    } else if !queue_changed {
        return Ok(Change::Unchanged);
    }
    Ok(Change::Changed)
}

/// Its program, loaded, and whether the queue discipline is to be there.
fn prepare(device: &Device, options: Options) -> Result<(Object, bool)> {
    let mut config = options.config(device);
    let mut queues = None;
    if let Some(queue) = options.qdisc() {
        config.queue = qdisc::prepare(&device.name, queue)?.index + 1;
        queues = Some(qdisc::folder());
    }
    let loaded = load_over(object::cpus()?, device.l2_len, config, queues.as_deref())?;
    Ok((loaded, config.queue != 0))
}

fn install(device: &Device, options: Options, dir: &Path) -> Result<()> {
    let (mut loaded, queue) = prepare(device, options)?;
    let program = pin_all(&mut loaded, dir)?;
    // behind the host's program, which puts headers in
    let host = device::egress(device);
    let place = host
        .as_ref()
        .map_or(Place::First, |link| Place::Behind(link.as_fd()));
    let attached = link::attach_tcx(program.as_fd(), device, Direction::Egress, place)?;
    link::pin(attached.as_fd(), &dir.join("link"))?;
    // last, and away first: a flow must not change queues on its way
    if queue {
        qdisc::place(&device.name)?;
    }
    if let Some(shape) = options.shape() {
        shape::install(device, shape, dir)?;
    }
    layout::mark(dir, &object::ROUTER, &RECORDS)?;
    bpffs::mark(&dir.join(COMPLETE).join(object::ROUTER.build()))
}

/// Pins its maps and its program in a folder.
fn pin_all<'a>(loaded: &'a mut Object, dir: &Path) -> Result<ProgramMut<'a>> {
    for (map, pin) in MAPS {
        object::pin_map(loaded, map, &dir.join(pin))?;
    }
    let program = object::program(loaded, "xcp_router")?;
    link::pin(program.as_fd(), &dir.join(PROGRAM))?;
    Ok(program)
}

/// Puts this build's program in the place of another's, newer or older, or of
/// one with other maps, under traffic: no packet passes without one, and flows
/// go on at their rates. What the other has learnt and counted is not kept: its
/// records may be different.
fn renew(device: &Device, options: Options, dir: &Path) -> Result<()> {
    let (mut loaded, queue) = prepare(device, options)?;
    // of no build until all is in place: the next `add` does this again
    let complete = dir.join(COMPLETE);
    let builds = fs::read_dir(&complete).into_iter().flatten().flatten();
    for build in builds.map(|entry| entry.path()).collect::<Vec<_>>() {
        let _ = fs::remove_dir(build);
    }
    let next = dir.join(NEXT);
    let _ = fs::remove_dir_all(&next);
    bpffs::mark(&next)?;
    let program = pin_all(&mut loaded, &next)?;
    link::replace(link::open(&dir.join("link"))?.as_fd(), program.as_fd())?;
    for pin in MAPS.map(|(_, pin)| pin).into_iter().chain([PROGRAM]) {
        let (from, to) = (next.join(pin), dir.join(pin));
        fs::rename(&from, &to).map_err(|e| Error::io(to.display().to_string(), &e))?;
    }
    let _ = fs::remove_dir_all(&next);
    match queue {
        true => qdisc::place(&device.name).map(drop)?,
        false => qdisc::remove(&device.name)?,
    }
    match options.shape() {
        Some(shape) => shape::install(device, shape, dir)?,
        None => shape::remove(device, dir)?,
    };
    layout::mark(dir, &object::ROUTER, &RECORDS)?;
    bpffs::mark(&complete.join(object::ROUTER.build()))
}

/// Takes the router off a device.
pub fn del(dev: &str) -> Result<()> {
    bpffs::require("xcp router del", Access::Change)?;
    let _turn = Turn::take()?;
    let device = Device::find(dev)?;
    pinned::sweep_if_free();
    settle(&device)?;
    if !object::exists(&bpffs::dir(&part(device.index)?)) {
        return Err(no_router(dev));
    }
    take_down(&device)
}

fn take_down(device: &Device) -> Result<()> {
    let part = part(device.index)?;
    let dir = bpffs::dir(&part);
    let taken = qdisc::remove(&device.name).and(shape::remove(device, &dir));
    if object::exists(&dir.join("link")) {
        link::detach(link::open(&dir.join("link"))?.as_fd());
    }
    bpffs::remove(&part)?;
    taken.map(|_| ())
}

/// Removes what devices that are gone have left pinned, and what readers of a
/// trace have left that were killed.
pub(crate) fn sweep() {
    for dir in pinned::folders("router") {
        trace::free_unread(&dir);
    }
    for dir in pinned::left("router") {
        let _ = bpffs::remove(&format!("router/{}", pinned::name_of(&dir)));
        let _ = qdisc::tidy();
    }
}

/// Has all routers of this network namespace write an address into last_xcp_router
/// ([`wire::router_id`]), for the next XCP router behind a cloud, or none. One that is
/// added later writes none.
///
/// # Errors
/// A router's records cannot be written.
pub fn set_edge(address: Option<IpAddr>) -> Result<()> {
    let _turn = Turn::take()?;
    for (_, dir) in of_here() {
        if !layout::is_ours(&dir, &object::ROUTER, &RECORDS)? {
            continue; // another build's
        }
        let map = object::pinned_map(&dir.join("config"))?;
        let config: xcp_router_config = object::read_record(&map, 0)?;
        let told = with_edge(config, address);
        if told.edge_address != config.edge_address {
            object::write_record(&map, &told)?;
        }
    }
    Ok(())
}

/// The router of a device.
pub fn show(dev: &str) -> Result<Status> {
    bpffs::require("xcp router show", Access::Read)?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    status(&device, &dir, &Surroundings::read()?)
}

/// For tests of [`renew`].
pub(crate) fn call_another_build(device: &Device) -> Result<()> {
    let complete = readable(device)?.join(COMPLETE);
    let _ = fs::remove_dir(complete.join(object::ROUTER.build()));
    bpffs::mark(&complete.join("another"))
}

/// For tests: its records are laid out in another way.
pub(crate) fn call_another_layout(device: &Device) -> Result<()> {
    let dir = readable(device)?;
    call_another_build(device)?;
    layout::mark(&dir, &object::ROUTER, &["config"])
}

/// For tests: a router's folder, and what is pinned there.
pub(crate) fn pins(device: &Device) -> Result<(PathBuf, Vec<&'static str>)> {
    let pins = MAPS.map(|(_, pin)| pin).into_iter().chain([PROGRAM]);
    Ok((readable(device)?, pins.collect()))
}

/// What the router of a device keeps of its link.
pub(crate) fn link(device: &Device) -> Result<xcp_router_link> {
    object::read_record(&object::pinned_map(&readable(device)?.join("state"))?, 0)
}

/// Reads the control intervals of a device's router from now on. Only one at
/// a time can.
pub fn trace(dev: &str) -> Result<Trace> {
    bpffs::require("xcp router trace", Access::Read)?;
    let _turn = Turn::take()?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    Trace::open(&device, dir)
}

/// All routers of this network namespace.
pub fn list() -> Result<Vec<Status>> {
    bpffs::require("xcp router show", Access::Read)?;
    let mut found: Vec<(u32, PathBuf)> = of_here()
        // one that is half there is told by no one, and `add` or `del` ends it
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
    let total = sum_counters(&object::pinned_map(&dir.join("cpus"))?)?;
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
        without: Term::of_bits(config.params.without),
        average_rtt_ms: ms(d_ticks),
        max_rtt_ms: ms(config.params.max_rtt.into()),
        feedback_bps: link.state.f_Bps * 8,
        granted_bytes_per_s: total.granted_Bps,
        control_intervals: link.state.intervals,
        xcp_packets: total.xcp_packets,
        other_packets: total.other_packets,
        malformed: total.malformed,
        chained: total.chained,
        chained_unedited: total.chained_unedited,
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
    if status.chained_unedited > 0 {
        found.push(Warning::new(
            format!(
                "{} packets left without feedback of this router: fraglist GRO had chained them",
                status.chained_unedited
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

/// The counters of all CPUs together.
pub(crate) fn sum_counters(cpus: &impl MapCore) -> Result<xcp_router_counters> {
    let mut total = xcp_router_counters::default();
    for key in 0..object::cpus()? {
        let cpu: xcp_router_cpu = object::read_record(cpus, key)?;
        total.xcp_packets += cpu.counters.xcp_packets;
        total.other_packets += cpu.counters.other_packets;
        total.malformed += cpu.counters.malformed;
        total.granted_Bps += cpu.counters.granted_Bps;
        total.chained += cpu.counters.chained;
        total.chained_unedited += cpu.counters.chained_unedited;
    }
    Ok(total)
}
