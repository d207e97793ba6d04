// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A device held to a rate by the kernel's token bucket (tc-tbf), with one
//! queue of packets: where the queue discipline `xcp` is not available.

use std::fs;
use std::path::{Path, PathBuf};

use super::framing::{Cells, Framing};
use crate::rtnl::{self, attribute, Device, Setting};
use crate::{bpffs, object, Error, Result};

const KIND: &str = "tbf";
/// The handle by which ours is known.
const MAJOR: u16 = 0x5843;
/// In the router's folder; what was set is the name of a folder in it.
const MARK: &str = "shape";

/// Room for this long at the full rate, and twice; at least so many packets.
const RTT_MS: u64 = 100;
const PACKET_B: u64 = 1500;
const LEAST_LIMIT_PACKETS: u64 = 100;
/// What may leave at once: timers are no finer; but two packets at least.
const BURST_MS: u64 = 1;

const LINKLAYER_ETHERNET: u8 = 1;
const LINKLAYER_ATM: u8 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// The rate that a device is held to, and what may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per second, framing included.
    pub rate_bytes_per_s: u64,
    /// Packets that may wait; 0 for twice what 100 ms at that rate hold.
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

    /// Fails for what a token bucket cannot do.
    fn check(&self, dev: &str) -> Result<()> {
        let framing = &self.framing;
        let reason = if framing.cells == Cells::Ptm {
            "a token bucket (tbf) knows no PTM"
        } else if framing.overhead_bytes < 0 {
            "a token bucket (tbf) knows no negative overhead"
        } else {
            return Ok(());
        };
        Err(Error::new(
            dev,
            reason,
            "shape the link by other means (cake, the modem), and leave --shape out",
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

    /// All of it as a name.
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
    /// What may leave at once, framing included.
    pub burst_bytes: u32,
    /// What may wait: bytes for a new one; on a change it goes to the queue
    /// behind, which takes it in packets.
    pub limit: u32,
    pub framing: Framing,
}

impl Bucket {
    /// TCA_OPTIONS of tbf.
    fn options(&self) -> Vec<u8> {
        let mut options = attribute(TCA_TBF_PARMS, &self.parameters());
        options.extend(attribute(TCA_TBF_BURST, &self.burst_bytes.to_ne_bytes()));
        options.extend(attribute(
            TCA_TBF_RATE64,
            &self.rate_bytes_per_s.to_ne_bytes(),
        ));
        options
    }

    /// `struct tc_tbf_qopt`: two of `struct tc_ratespec`, the limit, two
    /// buffers.
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

    /// Changes the token bucket that is a device's root, with this major
    /// number, while traffic flows.
    pub fn change(&self, dev: &str, major: u16) -> Result<()> {
        rtnl::set_qdisc(Device::find(dev)?.index, self.setting(major), true)
    }
}

/// Holds a device to a rate, or to another; whether anything is different
/// now. `dir` is the folder of the device's router.
///
/// # Errors
/// The device has a root queue discipline that somebody chose.
pub(crate) fn install(device: &Device, shape: Shape, dir: &Path) -> Result<bool> {
    shape.check(&device.name)?;
    let there = is_ours(device);
    let name = dir.join(MARK).join(shape.name());
    let before = mark(dir);
    if there && before.as_ref() == Some(&name) {
        return Ok(false);
    }
    if !there {
        rtnl::refuse_chosen(device, None, "without --shape")?;
    }
    let mtu_bytes = rtnl::mtu(device.index)? + device.l2_len;
    let bucket = shape.bucket(mtu_bytes).setting(MAJOR);
    let queue = Setting {
        kind: "pfifo",
        major: 0,
        parent: Some((MAJOR, 1)),
        options: shape.limit_packets().to_ne_bytes().to_vec(),
    };
    // The folder is there as long as a token bucket of ours. Without a name in
    // it, that may be half there: it is set up again, or taken away.
    bpffs::mark(&dir.join(MARK))?;
    if let Some(name) = before {
        fs::remove_dir(&name).map_err(|e| Error::io(name.display().to_string(), &e))?;
    }
    // its limit goes to the queue behind it, in the unit of that, which is set
    // right afterwards
    rtnl::set_qdisc(device.index, bucket, there)
        .and_then(|()| rtnl::set_qdisc(device.index, queue, false))
        .map_err(|e| Error::new(&device.name, format!("tbf: {}", e.reason), e.remedy))?;
    bpffs::mark(&name)?;
    Ok(true)
}

fn is_ours(device: &Device) -> bool {
    rtnl::root_qdisc(device.index).is_some_and(|root| root.kind == KIND && root.major == MAJOR)
}

/// Takes it off a device, whose default queue discipline comes back; whether
/// it was there.
pub(crate) fn remove(device: &Device, dir: &Path) -> Result<bool> {
    if !object::exists(&dir.join(MARK)) {
        return Ok(false);
    }
    if is_ours(device) {
        rtnl::delete_root_qdisc(device.index)?;
    }
    // what is not there need not go
    let _ = fs::remove_dir_all(dir.join(MARK));
    Ok(true)
}

/// The rate that a router's device is held to, bytes per second.
pub(crate) fn rate(device: &Device, dir: &Path) -> Option<u64> {
    if !is_ours(device) {
        return None;
    }
    set(dir).map(|(rate_Bps, _)| rate_Bps)
}

/// The rate, bytes per second, and the limit, packets, that were set for it.
pub(crate) fn set(dir: &Path) -> Option<(u64, u32)> {
    let name = mark(dir)?.file_name()?.to_str()?.to_owned();
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn mark(dir: &Path) -> Option<PathBuf> {
    let entry = fs::read_dir(dir.join(MARK)).ok()?.next()?;
    Some(entry.ok()?.path())
}
