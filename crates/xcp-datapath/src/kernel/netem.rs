// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Changes the delay of an emulated path (tc-netem) while packets are in flight.

use std::time::Duration;

use crate::rtnl::{self, attribute, Device, Setting};
use crate::Result;

const TCA_NETEM_LATENCY64: u16 = 10;

/// Changes the delay of the netem that is a device's root queue discipline. At most `limit`
/// packets may be in flight. Its rate does not change.
///
/// # Errors
/// The device or its netem does not exist.
pub fn set_delay(dev: &str, delay: Duration, limit: u32) -> Result<()> {
    // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
    let mut options: Vec<u8> = [0, limit, 0, 0, 0, 0]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    let delay_ns = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
    options.extend(attribute(TCA_NETEM_LATENCY64, &delay_ns.to_ne_bytes()));
    let setting = Setting {
        kind: "netem",
        major: 0,
        parent: None,
        options,
    };
    rtnl::set_qdisc(Device::find(dev)?.index, setting, true)
}
