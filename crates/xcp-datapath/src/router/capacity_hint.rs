// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Changes a router's capacity while traffic flows, or passes it hints of the capacity that
//! a modem knows. This only writes records; it loads no program.

use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::MapHandle;

use super::folder::{no_router, ours, readable};
use super::lifecycle::refuse_noqueue;
use super::options::CAPACITY_RANGE_BPS;
use crate::bpffs::{self, Access};
use crate::command_lock::CommandLock;
use crate::pinned::change::Change;
use crate::rtnl::Device;
use crate::{ethtool, monotonic_ns, object, qdisc, Error, Result};
use xcp_abi::xcp_router_config;

/// Sets a router's capacity, bytes per second; 0 if it is only measured. If the queue
/// discipline `xcp` shapes to the old capacity, it shapes to the new one from now on. The
/// next packet ends the control interval.
///
/// # Errors
/// The device has no router, or a token bucket (tbf) limits it to its capacity. Or the capacity
/// is to be measured, but the router or the device cannot measure it.
pub fn set_capacity(dev: &str, bytes_per_s: u64) -> Result<Change> {
    bpffs::require("xcp router set", Access::Change)?;
    let _lock = CommandLock::take()?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    let map = object::pinned_map(&dir.join("config"))?;
    let mut config: xcp_router_config = object::read_record(&map, 0)?;
    let before = config.params.capacity_Bps;
    if before == bytes_per_s {
        return Ok(Change::Unchanged);
    }
    if bytes_per_s == 0 {
        refuse_unmeasured(dev, &config)?;
        refuse_noqueue(&device)?;
    }
    if crate::shape::rate(&device, &dir) == Some(before) {
        return Err(Error::new(
            dev,
            "a token bucket (tbf) limits it to its capacity",
            format!("change both: xcp router add {dev} --capacity RATE --shape"),
        ));
    }
    config.params.capacity_Bps = bytes_per_s;
    config.params.peak_Bps = match bytes_per_s {
        0 => ethtool::speed(dev).unwrap_or(0),
        _ => 0,
    };
    if let Some(index) = config.queue.checked_sub(1) {
        if qdisc::rate(index)?.unwrap_or(0) == before {
            qdisc::set_rate(index, bytes_per_s)?;
        }
    }
    object::write_record(&map, &config)?;
    Ok(Change::Changed)
}

fn refuse_unmeasured(dev: &str, config: &xcp_router_config) -> Result<()> {
    if config.measure != 0 {
        return Ok(());
    }
    Err(Error::new(
        dev,
        "its router does not measure the link's capacity",
        format!("enable measuring: xcp router add {dev} --capacity RATE, without --no-measure"),
    ))
}

/// Passes hints of the capacity to a router. The last hint is valid until it expires or this
/// is dropped.
pub struct Feed {
    device: String,
    dir: PathBuf,
}

impl Feed {
    /// # Errors
    /// The device has no router, or one that does not measure.
    pub fn open(dev: &str) -> Result<Self> {
        bpffs::require("xcp router feed", Access::Change)?;
        let _lock = CommandLock::take()?;
        let feed = Self {
            device: dev.to_owned(),
            dir: readable(&Device::find(dev)?)?,
        };
        feed.map()?;
        Ok(feed)
    }

    /// The map of the router, which may have been added again meanwhile. The caller has the lock,
    /// and may be in another network namespace than the device.
    fn map(&self) -> Result<MapHandle> {
        if !object::exists(&self.dir) {
            return Err(no_router(&self.device));
        }
        ours(&self.dir, &self.device)?;
        let map = object::pinned_map(&self.dir.join("config"))?;
        refuse_unmeasured(&self.device, &object::read_record(&map, 0)?)?;
        Ok(map)
    }

    /// Sets the hint, bytes per second. It expires after the given time.
    pub fn set_hint(&self, bytes_per_s: u64, expires: Duration) -> Result<()> {
        let expires_ns = u64::try_from(expires.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = monotonic_ns().saturating_add(expires_ns);
        let (least, most) = (CAPACITY_RANGE_BPS.start(), CAPACITY_RANGE_BPS.end());
        self.write(bytes_per_s.clamp(*least, *most), until_ns)
    }

    fn write(&self, hint_Bps: u64, hint_until_ns: u64) -> Result<()> {
        let _lock = CommandLock::take()?;
        let map = self.map()?;
        let config: xcp_router_config = object::read_record(&map, 0)?;
        let config = xcp_router_config {
            hint_Bps,
            hint_until_ns,
            ..config
        };
        object::write_record(&map, &config)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // if this fails, the hint still expires
        let _ = self.write(0, 0);
    }
}
