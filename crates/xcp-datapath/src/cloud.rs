// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Virtual routers: what stands for a cloud without XCP where the packets of one
//! upstream XCP router leave it (core/xcp_cloud.h). A program instance for each
//! device and upstream router, pinned in `cloud/NETNS-IFINDEX-UPSTREAM`.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapHandle, Object};
use serde::{Deserialize, Serialize};

use crate::bpffs::Access;
use crate::command_lock::CommandLock;
use crate::link::{Direction, Place};
use crate::pinned::folders::{device_of, is_on, name_of};
use crate::router::{self, TICKS_PER_SEC};
use crate::rtnl::{self, Device};
pub use crate::wire::router_id as id;
use crate::{bpffs, clock, folders, layout, link, object, trace, Error, Result};
use xcp_abi::{
    xcp_cloud, xcp_cloud_backoff, xcp_router_config, xcp_router_link, xcp_router_options,
};

/// Says that all of it is there; in it, of which build.
const COMPLETE: &str = "complete";
/// In it, the address of the upstream router, of which packets have four bytes only.
const UPSTREAM: &str = "upstream";
/// Maps, and where they are pinned.
const MAPS: [(&str, &str); 6] = [
    ("cpus", "cpus"),
    (".data.config", "config"),
    (".data.link", "state"),
    (".data.cloud", "cloud"),
    (".data.backoff", "backoff"),
    ("trace", trace::PIN),
];
/// What commands read of them.
const RECORDS: [&str; 4] = ["cpus", "link", "cloud", "backoff"];
/// No control interval is shorter: some probes have to come in each, and where few
/// are granted they come every 16 ms.
const MIN_INTERVAL_NS: u64 = 40_000_000;
/// `enum xcp_cloud_flag` of core/xcp_cloud.h.
const NOT_HELD_BACK: u32 = 1;
/// XCP_CLOUD_PATIENCE_NS of core/xcp_cloud.h.
const PATIENCE_NS: u64 = 50_000_000;

/// What a probe has told of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When it came, ns on the monotonic clock.
    pub now_ns: u64,
    /// How long it has waited in the cloud, ns.
    pub wait_ns: u64,
    /// What trains have found free, bytes per second; 0 if that is not known.
    pub free_bytes_per_s: u64,
    /// The standard error of that.
    pub error_bytes_per_s: u64,
    /// When the last train came, ns on the monotonic clock.
    pub free_at_ns: u64,
    /// When a probe was sent and received that met no queue, by the two systems'
    /// clocks, ns.
    pub base_probe: (u64, u64),
    /// Routers in the cloud.
    pub routers: u8,
    /// While it is suspended, it lowers no delta: for experiments.
    pub not_held_back: bool,
}

/// A virtual router that is there; it stays when this is dropped.
#[derive(Debug)]
pub struct Virtual {
    dir: PathBuf,
    /// The number of the device that the upstream router's packets come in by.
    pub ifindex: u32,
    map: MapHandle,
}

impl Virtual {
    /// Adds the virtual router of an upstream router's packets that come in by this
    /// device, or takes over the one that is there. None while another command changes
    /// something: nothing is waited for.
    ///
    /// # Errors
    /// No such device, or the kernel refuses the program.
    pub fn add(dev: &str, upstream: IpAddr) -> Result<Option<Self>> {
        require_root()?;
        let Some(_turn) = CommandLock::at_once()? else {
            return Ok(None);
        };
        sweep();
        let device = Device::find(dev)?;
        let part = part(device.index, upstream)?;
        let dir = bpffs::dir(&part);
        let complete = dir.join(COMPLETE).join(object::CLOUD.build());
        if !object::exists(&complete) || !is_on(&dir, device.index, Direction::Ingress) {
            // another build's, half there, or of a device that has moved away
            take_down(&dir)?;
            bpffs::create(&part)?;
            install(&device, upstream, &dir).inspect_err(|_| {
                let _ = take_down(&dir);
            })?;
        }
        Ok(Some(Self {
            map: object::pinned_map(&dir.join("cloud"))?,
            ifindex: device.index,
            dir,
        }))
    }

    /// Tells it what a probe has found.
    ///
    /// # Errors
    /// Its map cannot be written.
    pub fn tell(&self, reading: Reading) -> Result<()> {
        let record = xcp_cloud {
            last_probe_ns: reading.now_ns,
            wait_ns: reading.wait_ns,
            free_Bps: reading.free_bytes_per_s,
            error_Bps: reading.error_bytes_per_s,
            free_ns: reading.free_at_ns,
            base_sent_ns: reading.base_probe.0,
            base_received_ns: reading.base_probe.1,
            routers: reading.routers.into(),
            flags: if reading.not_held_back {
                NOT_HELD_BACK
            } else {
                0
            },
        };
        object::write_record(&self.map, &record)
    }

    /// Takes it away; or leaves that to [`clear_old`], while another command changes
    /// something.
    ///
    /// # Errors
    /// What is pinned cannot be removed.
    pub fn del(self) -> Result<()> {
        match CommandLock::at_once()? {
            Some(_turn) => take_down(&self.dir),
            None => Ok(()),
        }
    }
}

/// The last [`Reading::base_probe`] of this upstream router and its routers, where the
/// virtual router of a daemon that was killed is still there.
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

/// What a virtual router of this build's knows.
fn known(dir: &Path) -> Option<xcp_cloud> {
    if !layout::is_ours(dir, &object::CLOUD, &RECORDS).ok()? {
        return None;
    }
    object::read_record(&object::pinned_map(&dir.join("cloud")).ok()?, 0).ok()
}

/// Has the routers of this network namespace write an address into last_xcp_router.
/// False if another command changes something just now: nothing is waited for.
///
/// # Errors
/// See [`router::set_edge`].
pub fn name_routers(address: IpAddr) -> Result<bool> {
    let Some(_turn) = CommandLock::at_once()? else {
        return Ok(false);
    };
    router::set_edge(Some(address)).map(|()| true)
}

fn part(ifindex: u32, upstream: IpAddr) -> Result<String> {
    let netns = rtnl::netns()?;
    Ok(format!("cloud/{netns}-{ifindex}-{:08x}", id(upstream)))
}

fn config() -> xcp_router_config {
    let mut config = router::Options::default().record();
    config.params.min_interval_ns = MIN_INTERVAL_NS;
    config
}

/// The program, loaded for a machine of so many processors.
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
    let attached = link::attach_tcx(program.as_fd(), device, Direction::Ingress, Place::First)?;
    link::pin(attached.as_fd(), &dir.join("link"))?;
    layout::mark(dir, &object::CLOUD, &RECORDS)?;
    bpffs::mark(&dir.join(UPSTREAM).join(name_of_address(upstream)))?;
    bpffs::mark(&dir.join(COMPLETE).join(object::CLOUD.build()))
}

/// In the file system of BPF names have no dots.
fn name_of_address(address: IpAddr) -> String {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    format!("{:032x}", v6.to_bits())
}

fn upstream_of(dir: &Path) -> Option<IpAddr> {
    let mut names = std::fs::read_dir(dir.join(UPSTREAM)).ok()?.flatten();
    let name = names.next()?.file_name();
    let bits = u128::from_str_radix(name.to_str()?, 16).ok()?;
    Some(Ipv6Addr::from_bits(bits).to_canonical())
}

fn take_down(dir: &Path) -> Result<()> {
    if object::exists(&dir.join("link")) {
        link::detach(link::open(&dir.join("link"))?.as_fd());
    }
    bpffs::remove(&format!("cloud/{}", name_of(dir)))
}

/// Whether any edge has virtual routers on this system.
pub fn are_there() -> bool {
    folders::folders("cloud").next().is_some()
}

/// Removes what devices that are gone have left pinned.
pub(crate) fn sweep() {
    for dir in folders::left("cloud") {
        let _ = take_down(&dir);
    }
}

/// How a virtual router stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It grants.
    Granting,
    /// Too little is known of the cloud now: packets pass untouched.
    Unknown,
    /// Other traffic fills the cloud's queue: it is suspended.
    Crowded,
}

/// What a virtual router knows and has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The device that packets come out of the cloud by.
    pub device: String,
    /// The upstream router's address, where it is known.
    pub upstream: Option<IpAddr>,
    /// Routers in the cloud.
    pub routers: u32,
    /// Whether it is at work, or why packets pass it untouched.
    pub state: State,
    /// Since the last probe, ms.
    pub age_ms: Option<f64>,
    /// What that has waited in the cloud, ms.
    pub wait_ms: f64,
    /// What trains have found free, bits per second.
    pub free_bps: u64,
    /// The standard error of that.
    pub error_bps: u64,
    /// Since the last train, ms.
    pub free_age_ms: Option<f64>,
    /// What the cloud was found to carry for these packets, bits per second.
    pub link_bps: u64,
    /// What came in the last control interval, bits per second.
    pub input_rate_bps: u64,
    /// Their mean RTT.
    pub average_rtt_ms: f64,
    /// Aggregate feedback decided for the present interval, bits per second.
    pub feedback_bps: i64,
    /// Wire packets that it has granted to.
    pub xcp_packets: u64,
}

/// Takes all virtual routers away that daemons of this network namespace have
/// added, those of one that was killed too, wherever their devices are now.
///
/// # Errors
/// What is pinned cannot be removed.
pub fn clear() -> Result<()> {
    let _turn = CommandLock::take()?;
    let here = format!("{}-", rtnl::netns()?);
    let mut ours = folders::folders("cloud").filter(|dir| name_of(dir).starts_with(&here));
    ours.try_for_each(|dir| take_down(&dir))
}

/// Removes those that have had no reading since then, ns on the monotonic clock: what a
/// daemon has left that was killed, and no daemon has taken over. Some stay while another
/// command changes something.
///
/// # Errors
/// What is pinned cannot be removed.
pub fn clear_old(since_ns: u64) -> Result<()> {
    let here = format!("{}-", rtnl::netns()?);
    let ours = folders::folders("cloud").filter(|dir| name_of(dir).starts_with(&here));
    let is_old = |dir: &PathBuf| known(dir).is_some_and(|cloud| cloud.last_probe_ns < since_ns);
    for dir in ours.filter(is_old).collect::<Vec<_>>() {
        let Some(_turn) = CommandLock::at_once()? else {
            break;
        };
        take_down(&dir)?;
    }
    Ok(())
}

/// Fails unless this process may add some.
///
/// # Errors
/// Not root.
pub fn require_root() -> Result<()> {
    bpffs::require("xcp edged run", Access::Change)
}

/// All virtual routers of this network namespace.
///
/// # Errors
/// Not root, or one is of a build with other records.
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
            "start `xcp edged run` again, of this version",
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
    let patience_ns = (2 * link.state.interval_ns).max(PATIENCE_NS);
    let known = cloud.last_probe_ns > 0;
    Ok(Status {
        device: rtnl::name_of(index).unwrap_or_default(),
        upstream: upstream_of(dir),
        routers: cloud.routers,
        state: match known && age_ns <= patience_ns {
            false => State::Unknown,
            true if now_ns < backoff.aside_ns => State::Crowded,
            true => State::Granting,
        },
        age_ms: known.then_some(age_ns as f64 / 1e6),
        wait_ms: cloud.wait_ns as f64 / 1e6,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_core() {
        let core = include_str!("../../../core/xcp_cloud.h");
        assert!(core.contains(&format!("XCP_CLOUD_PATIENCE_NS {PATIENCE_NS}ULL\n")));
        assert!(core.contains(&format!("XCP_CLOUD_NOT_HELD_BACK = {NOT_HELD_BACK},")));
    }
}
