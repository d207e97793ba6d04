// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Limits a device to a rate with the kernel's token bucket (tc-tbf) and a single queue, if
//! the queue discipline `xcp` is not available.

use std::fs;
use std::path::{Path, PathBuf};

use super::framing::{Cells, Framing};
use crate::rtnl::{self, attribute, Device, Setting};
use crate::{bpffs, object, Error, Result};

const KIND: &str = "tbf";
/// The handle that identifies our token bucket.
const MAJOR: u16 = 0x5843;
/// A folder in the router's folder. The name of a folder in it records the settings.
const MARK: &str = "shape";

/// The default queue limit is twice the packets of RTT_MS at the full rate, but at least
/// LEAST_LIMIT_PACKETS.
const RTT_MS: u64 = 100;
const PACKET_B: u64 = 1500;
const LEAST_LIMIT_PACKETS: u64 = 100;
/// The burst, because timers are no finer than this; at least two packets.
const BURST_MS: u64 = 1;

const LINKLAYER_ETHERNET: u8 = 1;
const LINKLAYER_ATM: u8 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// The rate to which a device is limited, and its queue limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per second, framing included.
    pub rate_bytes_per_s: u64,
    /// The queue limit, packets; 0 for twice the packets of 100 ms at that rate.
    pub limit_packets: u32,
    pub framing: Framing,
}

impl Shape {
    pub(crate) fn limit_packets(&self) -> u32 {
        if self.limit_packets > 0 {
            return self.limit_packets;
        }
        let held = 2 * self.rate_bytes_per_s * RTT_MS / 1000 / PACKET_B;
        held.clamp(LEAST_LIMIT_PACKETS, u32::MAX.into()) as u32
    }

    /// Fails if a token bucket does not support this framing.
    fn check(&self, dev: &str) -> Result<()> {
        let framing = &self.framing;
        let reason = if framing.cells == Cells::Ptm {
            "a token bucket (tbf) does not support PTM"
        } else if framing.overhead_bytes < 0 {
            "a token bucket (tbf) does not support negative overhead"
        } else {
            return Ok(());
        };
        Err(Error::new(
            dev,
            reason,
            "shape the link by other means (cake, the modem), and omit --shape",
        ))
    }

    fn bucket(&self, mtu_bytes: u32) -> Bucket {
        let burst = (self.rate_bytes_per_s * BURST_MS / 1000)
            .max(2 * u64::from(mtu_bytes))
            .min(u32::MAX.into());
        Bucket {
            rate_bytes_per_s: self.rate_bytes_per_s,
            burst_bytes: burst as u32,
            limit: self.limit_packets().saturating_mul(PACKET_B as u32),
            framing: self.framing,
        }
    }

    /// All settings, encoded in a folder name.
    fn name(&self) -> String {
        let framing = &self.framing;
        format!(
            "{}-{}-{}-{}-{}",
            self.rate_bytes_per_s,
            self.limit_packets(),
            framing.overhead_bytes,
            framing.mpu_bytes,
            framing.cells as u8
        )
    }
}

/// A token bucket, as it is configured in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub rate_bytes_per_s: u64,
    /// The burst, framing included.
    pub burst_bytes: u32,
    /// The queue limit: bytes for a new token bucket; on a change, it is passed to the inner
    /// queue, which interprets it in packets.
    pub limit: u32,
    pub framing: Framing,
}

impl Bucket {
    /// The attribute TCA_OPTIONS of tbf.
    fn options(&self) -> Vec<u8> {
        let mut options = attribute(TCA_TBF_PARMS, &self.parameters());
        options.extend(attribute(TCA_TBF_BURST, &self.burst_bytes.to_ne_bytes()));
        options.extend(attribute(
            TCA_TBF_RATE64,
            &self.rate_bytes_per_s.to_ne_bytes(),
        ));
        options
    }

    /// `struct tc_tbf_qopt`: two `struct tc_ratespec`, the limit, two buffer sizes.
    fn parameters(&self) -> Vec<u8> {
        let linklayer = match self.framing.cells {
            Cells::Atm => LINKLAYER_ATM,
            _ => LINKLAYER_ETHERNET,
        };
        let rate = u32::try_from(self.rate_bytes_per_s).unwrap_or(u32::MAX);
        let mut parameters = vec![0, linklayer];
        parameters.extend((self.framing.overhead_bytes as u16).to_ne_bytes());
        parameters.extend(0i16.to_ne_bytes());
        parameters.extend((self.framing.mpu_bytes as u16).to_ne_bytes());
        parameters.extend(rate.to_ne_bytes());
        parameters.extend([0; 12]);
        parameters.extend(self.limit.to_ne_bytes());
        parameters.extend([0; 8]);
        parameters
    }

    fn setting(&self, major: u16) -> Setting<'static> {
        Setting {
            kind: KIND,
            major,
            parent: None,
            options: self.options(),
        }
    }

    /// Changes the token bucket at a device's root, with this major number, while traffic
    /// flows.
    pub fn change(&self, dev: &str, major: u16) -> Result<()> {
        rtnl::set_qdisc(Device::find(dev)?.index, self.setting(major), true)
    }
}

/// Limits a device to a rate, or changes the rate. Returns whether this changed anything.
/// `dir` is the folder of the device's router.
///
/// # Errors
/// The device has another, configured root queue discipline.
pub(crate) fn install(device: &Device, shape: Shape, dir: &Path) -> Result<bool> {
    shape.check(&device.name)?;
    let there = is_ours(device);
    let name = dir.join(MARK).join(shape.name());
    let before = mark(dir);
    if there && before.as_ref() == Some(&name) {
        return Ok(false);
    }
    if !there {
        rtnl::refuse_configured_qdisc(device, None, "without --shape")?;
    }
    let mtu_bytes = rtnl::mtu(device.index)? + device.l2_len;
    let bucket = shape.bucket(mtu_bytes).setting(MAJOR);
    let queue = Setting {
        kind: "pfifo",
        major: 0,
        parent: Some((MAJOR, 1)),
        options: shape.limit_packets().to_ne_bytes().to_vec(),
    };
    // This folder exists as long as our token bucket. If no name is in it, the
    // token bucket may be incomplete: it is set up again or removed.
    bpffs::mark(&dir.join(MARK))?;
    if let Some(name) = before {
        fs::remove_dir(&name).map_err(|e| Error::io(name.display().to_string(), &e))?;
    }
    // a change passes the limit, in the wrong unit, to the inner queue, which
    // is configured right afterwards
    rtnl::set_qdisc(device.index, bucket, there)
        .and_then(|()| rtnl::set_qdisc(device.index, queue, false))
        .map_err(|e| Error::new(&device.name, format!("tbf: {}", e.reason), e.remedy))?;
    bpffs::mark(&name)?;
    Ok(true)
}

fn is_ours(device: &Device) -> bool {
    rtnl::root_qdisc(device.index).is_some_and(|root| root.kind == KIND && root.major == MAJOR)
}

/// Removes our token bucket from a device, which gets its default queue discipline back.
/// Returns whether there was one.
pub(crate) fn remove(device: &Device, dir: &Path) -> Result<bool> {
    if !object::exists(&dir.join(MARK)) {
        return Ok(false);
    }
    if is_ours(device) {
        rtnl::delete_root_qdisc(device.index)?;
    }
    // fails only if there is nothing to remove
    let _ = fs::remove_dir_all(dir.join(MARK));
    Ok(true)
}

/// The rate to which our token bucket limits a device, bytes per second.
pub(crate) fn rate(device: &Device, dir: &Path) -> Option<u64> {
    if !is_ours(device) {
        return None;
    }
    set(dir).map(|(rate_Bps, _)| rate_Bps)
}

/// The configured rate, bytes per second, and queue limit, packets.
pub(crate) fn set(dir: &Path) -> Option<(u64, u32)> {
    let name = mark(dir)?.file_name()?.to_str()?.to_owned();
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn mark(dir: &Path) -> Option<PathBuf> {
    let entry = fs::read_dir(dir.join(MARK)).ok()?.next()?;
    Some(entry.ok()?.path())
}
