// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Virtual routers (core/xcp_cloud.h): each represents a cloud without XCP, at the place where
//! the packets of one upstream XCP router leave the cloud. There is one program instance for
//! each device and upstream router, pinned in `cloud/NETNS-IFINDEX-UPSTREAM`.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, Object};
use serde::{Deserialize, Serialize};

use crate::bpf_link::{Direction, Place};
use crate::bpffs::Access;
use crate::command_lock::CommandLock;
use crate::pinned::folders::{device_of, is_on, name_of};
use crate::router::{self, TICKS_PER_SEC};
use crate::rtnl::{self, Device};
pub use crate::wire::router_id as id;
use crate::{bpf_link, bpffs, clock, folders, layout, netns, object, trace, wire, Error, Result};
use xcp_abi::{
    xcp_cloud, xcp_cloud_backoff, xcp_router_config, xcp_router_link, xcp_router_options,
    XCP_CLOUD_NO_DELTA_LIMIT, XCP_CLOUD_PATIENCE_NS,
};

/// A folder that marks a virtual router as completely installed. A folder in it names the
/// build.
const COMPLETE: &str = "complete";
/// A folder for the address of the upstream router, because packets contain only four bytes of
/// it. The address is the name of a folder in it.
const UPSTREAM: &str = "upstream";
/// The maps, and the names of their pins.
const MAPS: [(&str, &str); 6] = [
    ("cpus", "cpus"),
    (".data.config", "config"),
    (".data.link", "state"),
    (".data.cloud", "cloud"),
    (".data.backoff", "backoff"),
    ("trace", trace::PIN),
];
/// The maps and records whose layout commands must know.
const RECORDS: [&str; 4] = ["cpus", "link", "cloud", "backoff"];
/// The shortest control interval. Some probes must arrive in each interval, and they are sent
/// every 16 ms if little is granted.
const MIN_INTERVAL_NS: u64 = 40_000_000;

/// The state of a cloud, as measured by probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When the last probe arrived, ns on the monotonic clock.
    pub now_ns: u64,
    /// How long this probe waited in the cloud's queues, ns.
    pub wait_ns: u64,
    /// The free capacity measured by trains, bytes per second; 0 if not known.
    pub free_bytes_per_s: u64,
    /// The standard error of the free capacity.
    pub error_bytes_per_s: u64,
    /// When the last train arrived, ns on the monotonic clock.
    pub free_at_ns: u64,
    /// When a probe that met no queue was sent and received, ns on the sender's and the
    /// receiver's clock.
    pub base_probe: (u64, u64),
    /// The number of routers in the cloud.
    pub routers: u8,
    /// For experiments: while suspended, the virtual router lowers no deltas.
    pub no_delta_limit: bool,
}

/// An installed virtual router. It is not removed when this is dropped.
#[derive(Debug)]
pub struct Virtual {
    dir: PathBuf,
    /// The index of the device on which the upstream router's packets arrive.
    pub ifindex: u32,
    map: MapHandle,
}

impl Virtual {
    /// Adds a virtual router for packets of an upstream router that arrive on this device, or
    /// takes over the existing one. Does not wait: returns None while another command holds
    /// the lock.
    ///
    /// # Errors
    /// The device does not exist, or the kernel rejects the program.
    pub fn add(dev: &str, upstream: IpAddr) -> Result<Option<Self>> {
        require_root()?;
        let Some(_lock) = CommandLock::try_take()? else {
            return Ok(None);
        };
        sweep();
        let device = Device::find(dev)?;
        let part = part(device.index, upstream)?;
        let dir = bpffs::dir(&part);
        let complete = dir.join(COMPLETE).join(object::CLOUD.build());
        if !object::exists(&complete) || !is_on(&dir, device.index, Direction::Ingress) {
            // it is of another build, incomplete, or its device has moved away
            remove_all(&dir)?;
            bpffs::create(&part)?;
            install(&device, upstream, &dir).inspect_err(|_| {
                let _ = remove_all(&dir);
            })?;
        }
        Ok(Some(Self {
            map: object::pinned_map(&dir.join("cloud"))?,
            ifindex: device.index,
            dir,
        }))
    }

    /// Passes it the results of a probe.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn update(&self, reading: Reading) -> Result<()> {
        let record = xcp_cloud {
            last_probe_ns: reading.now_ns,
            wait_ns: reading.wait_ns,
            free_Bps: reading.free_bytes_per_s,
            error_Bps: reading.error_bytes_per_s,
            free_ns: reading.free_at_ns,
            base_sent_ns: reading.base_probe.0,
            base_received_ns: reading.base_probe.1,
            routers: reading.routers.into(),
            flags: if reading.no_delta_limit {
                XCP_CLOUD_NO_DELTA_LIMIT
            } else {
                0
            },
        };
        object::write_record(&self.map, &record)
    }

    /// Removes it. While another command holds the lock, it stays, and [`clear_old`] removes it
    /// later.
    ///
    /// # Errors
    /// Pinned objects cannot be removed.
    pub fn del(self) -> Result<()> {
        match CommandLock::try_take()? {
            Some(_lock) => remove_all(&self.dir),
            None => Ok(()),
        }
    }
}

/// The last [`Reading::base_probe`] and the number of routers for this upstream router, if the
/// virtual router of a killed daemon still exists.
#[must_use]
pub fn base_probe(upstream: IpAddr) -> Option<((u64, u64), u8)> {
    let name = format!("-{:08x}", id(upstream));
    let here = folders::folders("cloud")
        .filter(|dir| name_of(dir).ends_with(&name))
        .filter(|dir| folders::here(dir, Direction::Ingress).is_some());
    let cloud = here
        .filter_map(|dir| known(&dir))
        .max_by_key(|cloud| cloud.last_probe_ns)?;
    let probe = (cloud.base_sent_ns, cloud.base_received_ns);
    (probe.0 > 0).then_some((probe, u8::try_from(cloud.routers).ok()?))
}

/// The record of a virtual router, if its layout is that of this build.
fn known(dir: &Path) -> Option<xcp_cloud> {
    if !layout::is_ours(dir, &object::CLOUD, &RECORDS).ok()? {
        return None;
    }
    object::read_record(&object::pinned_map(&dir.join("cloud")).ok()?, 0).ok()
}

/// Makes the routers of this network namespace write an address into last_xcp_router. Does not
/// wait: returns false while another command holds the lock.
///
/// # Errors
/// See [`router::set_edge`].
pub fn set_edge_address(address: IpAddr) -> Result<bool> {
    let Some(_lock) = CommandLock::try_take()? else {
        return Ok(false);
    };
    router::set_edge(Some(address)).map(|()| true)
}

fn part(ifindex: u32, upstream: IpAddr) -> Result<String> {
    let netns = netns::inode()?;
    Ok(format!("cloud/{netns}-{ifindex}-{:08x}", id(upstream)))
}

fn config() -> xcp_router_config {
    let mut config = router::Options::default().record();
    config.params.min_interval_ns = MIN_INTERVAL_NS;
    config
}

/// Loads the program for a machine with this number of CPUs.
#[doc(hidden)]
pub fn load_for(cpus: u32, l2_len: u32, upstream: u32) -> Result<Object> {
    let mut open = object::open(&object::CLOUD)?;
    let constants = xcp_router_options {
        upstream,
        ..router::constants(cpus, l2_len)
    };
    router::configure(&mut open, constants, config())?;
    object::load(&object::CLOUD, open)
}

fn install(device: &Device, upstream: IpAddr, dir: &Path) -> Result<()> {
    let mut loaded = load_for(object::cpus()?, device.l2_len, id(upstream))?;
    for (map, pin) in MAPS {
        object::pin_map(&mut loaded, map, &dir.join(pin))?;
    }
    let program = object::program(&loaded, "xcp_virtual")?;
    let attached = bpf_link::attach_tcx(program.as_fd(), device, Direction::Ingress, Place::First)?;
    bpf_link::pin(attached.as_fd(), &dir.join("link"))?;
    layout::mark(dir, &object::CLOUD, &RECORDS)?;
    bpffs::mark(&dir.join(UPSTREAM).join(name_of_address(upstream)))?;
    bpffs::mark(&dir.join(COMPLETE).join(object::CLOUD.build()))
}

/// Encodes an address in hexadecimal digits, because names in bpffs must not contain dots.
fn name_of_address(address: IpAddr) -> String {
    format!("{:032x}", wire::mapped(address).to_bits())
}

fn upstream_of(dir: &Path) -> Option<IpAddr> {
    let mut names = std::fs::read_dir(dir.join(UPSTREAM)).ok()?.flatten();
    let name = names.next()?.file_name();
    let bits = u128::from_str_radix(name.to_str()?, 16).ok()?;
    Some(Ipv6Addr::from_bits(bits).to_canonical())
}

fn remove_all(dir: &Path) -> Result<()> {
    if object::exists(&dir.join("link")) {
        bpf_link::detach(bpf_link::open(&dir.join("link"))?.as_fd());
    }
    bpffs::remove(&format!("cloud/{}", name_of(dir)))
}

/// Whether there are virtual routers on this system.
pub fn any_exist() -> bool {
    folders::folders("cloud").next().is_some()
}

/// Removes the virtual routers of devices that no longer exist.
pub(crate) fn sweep() {
    for dir in folders::left("cloud") {
        let _ = remove_all(&dir);
    }
}

/// The state of a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It grants deltas.
    Granting,
    /// There is no recent probe of the cloud: packets pass unchanged.
    Unknown,
    /// It is suspended, because other traffic fills the cloud's queue.
    Suspended,
}

/// The state and counters of a virtual router.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The device on which packets arrive from the cloud.
    pub device: String,
    /// The upstream router's address, if known.
    pub upstream: Option<IpAddr>,
    /// The number of routers in the cloud.
    pub routers: u32,
    /// Whether it grants deltas, or why not.
    pub state: State,
    /// The time since the last probe, ms.
    pub age_ms: Option<f64>,
    /// How long the last probe waited in the cloud's queues, ms.
    pub queue_delay_ms: f64,
    /// The free capacity measured by trains, bits per second.
    pub free_bps: u64,
    /// The standard error of the free capacity.
    pub error_bps: u64,
    /// The time since the last train, ms.
    pub free_age_ms: Option<f64>,
    /// The measured capacity of the cloud for these packets, bits per second.
    pub link_bps: u64,
    /// Input traffic of the last control interval, bits per second.
    pub input_rate_bps: u64,
    /// The mean RTT of these packets.
    pub average_rtt_ms: f64,
    /// The aggregate feedback of the present control interval, bits per second.
    pub feedback_bps: i64,
    /// Packets on the wire to which it granted a delta.
    pub xcp_packets: u64,
}

/// Removes all virtual routers that daemons of this network namespace have added, including
/// those of killed daemons and of devices that have moved to another namespace.
///
/// # Errors
/// Pinned objects cannot be removed.
pub fn clear() -> Result<()> {
    let _lock = CommandLock::take()?;
    let here = format!("{}-", netns::inode()?);
    let mut ours = folders::folders("cloud").filter(|dir| name_of(dir).starts_with(&here));
    ours.try_for_each(|dir| remove_all(&dir))
}

/// Removes virtual routers without a reading since `since_ns` on the monotonic clock: those of a
/// killed daemon that no other daemon has taken over. Some may stay while another command holds
/// the lock.
///
/// # Errors
/// Pinned objects cannot be removed.
pub fn clear_old(since_ns: u64) -> Result<()> {
    let here = format!("{}-", netns::inode()?);
    let ours = folders::folders("cloud").filter(|dir| name_of(dir).starts_with(&here));
    let is_old = |dir: &PathBuf| known(dir).is_some_and(|cloud| cloud.last_probe_ns < since_ns);
    for dir in ours.filter(is_old).collect::<Vec<_>>() {
        let Some(_lock) = CommandLock::try_take()? else {
            break;
        };
        remove_all(&dir)?;
    }
    Ok(())
}

/// Fails unless this process may add virtual routers.
///
/// # Errors
/// This process is not root, or cannot write to the system's bpffs.
pub fn require_root() -> Result<()> {
    bpffs::require("xcp edged run", Access::Change)
}

/// The status of all virtual routers of this network namespace.
///
/// # Errors
/// This process is not root, or another build laid out the records of one differently.
pub fn list() -> Result<Vec<Status>> {
    bpffs::require("xcp router show", Access::Read)?;
    let mut found: Vec<PathBuf> = folders::folders("cloud")
        .filter(|dir| folders::here(dir, Direction::Ingress).is_some())
        .filter(|dir| object::exists(&dir.join(COMPLETE)))
        .collect();
    found.sort();
    found.iter().map(|dir| status(dir)).collect()
}

fn status(dir: &Path) -> Result<Status> {
    let name = name_of(dir);
    if !layout::is_ours(dir, &object::CLOUD, &RECORDS)? {
        return Err(Error::new(
            name,
            "written by another version of xcp",
            "restart `xcp edged run` with this version",
        ));
    }
    let record = |pin: &str| object::pinned_map(&dir.join(pin));
    let cloud: xcp_cloud = object::read_record(&record("cloud")?, 0)?;
    let link: xcp_router_link = object::read_record(&record("state")?, 0)?;
    let total = router::sum_counters(&record("cpus")?)?;
    let index = device_of(dir).unwrap_or(0);
    let backoff: xcp_cloud_backoff = object::read_record(&record("backoff")?, 0)?;
    let now_ns = clock::monotonic_ns();
    let age_ns = now_ns.saturating_sub(cloud.last_probe_ns);
    let free_age_ns = now_ns.saturating_sub(cloud.free_ns);
    let d_ticks = link.state.d.m as f64 * f64::from(link.state.d.e).exp2();
    let patience_ns = (2 * link.state.interval_ns).max(u64::from(XCP_CLOUD_PATIENCE_NS));
    let known = cloud.last_probe_ns > 0;
    Ok(Status {
        device: rtnl::name_of(index).unwrap_or_default(),
        upstream: upstream_of(dir),
        routers: cloud.routers,
        state: match known && age_ns <= patience_ns {
            false => State::Unknown,
            true if now_ns < backoff.suspended_until_ns => State::Suspended,
            true => State::Granting,
        },
        age_ms: known.then_some(age_ns as f64 / 1e6),
        queue_delay_ms: cloud.wait_ns as f64 / 1e6,
        free_bps: cloud.free_Bps * 8,
        error_bps: cloud.error_Bps * 8,
        free_age_ms: (cloud.free_Bps > 0).then_some(free_age_ns as f64 / 1e6),
        link_bps: link.state.capacity.link_Bps * 8,
        input_rate_bps: link.state.y_Bps * 8,
        average_rtt_ms: d_ticks / TICKS_PER_SEC * 1e3,
        feedback_bps: link.state.f_Bps * 8,
        xcp_packets: total.xcp_packets,
    })
}
