// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What has to be changed on a device that carries headers, and back.
//!
//! The kernel cannot cut a super-packet with an unknown protocol in it, so
//! TCP must make none (`gso_max_segs` 1). And it cannot let hardware compute a
//! checksum behind a header that the hardware does not know, so hardware that
//! looks for TCP by itself must leave it alone (`tx-checksum-ipv4`, `-ipv6`).

use crate::ethtool::Features;
use crate::rtnl::{self, Device};
use crate::Result;
use xcp_abi::xcp_device_record;

/// Checksums that hardware computes only where it finds TCP by itself.
const CHECKSUMS: [(&str, u32); 2] = [("tx-checksum-ipv4", 1), ("tx-checksum-ipv6", 2)];

/// What a device has: its `gso_max_segs`, and the checksums to stop.
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

/// Stops what headers do not bear.
pub fn stop(device: &Device, checksums: u32) -> Result<()> {
    rtnl::set_gso_max_segs(device.index, 1)?;
    switch_checksums(&device.name, checksums, false)
}

/// Everything as it was, if it was changed.
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
