// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Changes the offloads of a device that carries XCP headers between IP and TCP, and
//! restores them.
//!
//! The kernel cannot segment a GSO packet that contains an unknown protocol, so TCP must not
//! build any (`gso_max_segs` 1). Hardware that parses packets to find the TCP checksum cannot
//! do so behind an unknown header, so that offload must be off (`tx-checksum-ipv4`, `-ipv6`).

use crate::ethtool::Features;
use crate::rtnl::{self, Device};
use crate::Result;
use xcp_abi::xcp_device_record;

/// Checksum offloads for which the hardware must find the TCP header itself.
const CHECKSUMS: [(&str, u32); 2] = [("tx-checksum-ipv4", 1), ("tx-checksum-ipv6", 2)];

/// The present settings of a device: its `gso_max_segs`, and the checksum offloads to stop.
pub fn of(device: &Device) -> Result<(u32, u32)> {
    let features = Features::of(&device.name)?;
    let mut checksums = 0;
    for (name, bit) in CHECKSUMS {
        if features.is_on(name)? {
            checksums |= bit;
        }
    }
    Ok((rtnl::gso_max_segs(device.index)?, checksums))
}

/// Stops the offloads that do not work with XCP headers.
pub fn stop(device: &Device, checksums: u32) -> Result<()> {
    rtnl::set_gso_max_segs(device.index, 1)?;
    switch_checksums(&device.name, checksums, false)
}

/// Restores the recorded settings, if they were changed.
pub fn restore(device: &str, ifindex: u32, before: &xcp_device_record) -> Result<()> {
    if before.gso_max_segs == 0 {
        return Ok(());
    }
    let segments = rtnl::set_gso_max_segs(ifindex, before.gso_max_segs);
    segments.and(switch_checksums(device, before.tx_checksums, true))
}

fn switch_checksums(device: &str, which: u32, on: bool) -> Result<()> {
    if which == 0 {
        return Ok(());
    }
    let features = Features::of(device)?;
    for (name, bit) in CHECKSUMS {
        if which & bit != 0 {
            features.set(name, on)?;
        }
    }
    Ok(())
}
