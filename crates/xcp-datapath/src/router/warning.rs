// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Warnings: packets may bypass a router, or it cannot detect that its link is full.

use serde::Serialize;

use crate::ethtool::Features;
use crate::rtnl::{self, Device, DeviceInfo};
use crate::Result;

/// A problem that an operator may not expect, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What was found on the router's device.
    pub reason: String,
    /// What to do.
    pub remedy: String,
    /// Packets may bypass the router.
    pub hides_packets: bool,
}

impl Warning {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: remedy.into(),
            hides_packets: false,
        }
    }

    /// A warning that packets may bypass the router.
    pub(crate) fn hiding(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            hides_packets: true,
            ..Self::new(reason, remedy)
        }
    }
}

/// The devices of a network namespace that may let packets bypass its routers. Read once for
/// all routers.
#[derive(Debug, Default)]
pub(crate) struct BypassRisks {
    /// The indexes of the devices that are bridges.
    bridges: Vec<u32>,
    /// The names of the devices that have an XDP program.
    xdp: Vec<String>,
    /// The names of the devices whose hardware may forward packets.
    offload: Vec<String>,
}

impl BypassRisks {
    /// Reads the devices of this thread's network namespace.
    pub fn read() -> Result<Self> {
        let links = rtnl::links()?;
        let offloads = |link: &&DeviceInfo| {
            Features::of(&link.name).is_ok_and(|f| f.is_on("hw-tc-offload").unwrap_or(false))
        };
        let name = |link: &DeviceInfo| link.name.clone();
        Ok(Self {
            bridges: links
                .iter()
                .filter(|l| l.is_bridge)
                .map(|l| l.index)
                .collect(),
            xdp: links.iter().filter(|l| l.has_xdp).map(name).collect(),
            offload: links.iter().filter(offloads).map(name).collect(),
        })
    }

    /// The reasons why packets may bypass the router of a device.
    pub fn warnings(&self, device: &Device) -> Vec<Warning> {
        let mut found = Vec::new();
        if self.bridges.contains(&device.index) {
            found.push(Warning::hiding(
                "is a bridge: frames that it forwards from port to port do not pass this router",
                format!(
                    "add routers to its ports instead (`ip link show master {}` lists them)",
                    device.name
                ),
            ));
        }
        if let [first, ..] = &self.xdp[..] {
            found.push(Warning::hiding(
                format!(
                    "packets that an XDP program redirects do not pass this router, and there is \
                     one on {}",
                    self.xdp.join(", ")
                ),
                format!("let the kernel forward packets (ip link set dev {first} xdp off), unless the program redirects none"),
            ));
        }
        if let [first, ..] = &self.offload[..] {
            found.push(Warning::hiding(
                format!(
                    "packets that hardware forwards do not pass this router, and hw-tc-offload is \
                     on: {}",
                    self.offload.join(", ")
                ),
                format!("switch it off (ethtool -K {first} hw-tc-offload off), unless no rule is in the hardware"),
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_about_offload_and_xdp_name_the_devices() {
        let device = Device {
            name: "eth0".into(),
            index: 7,
            l2_len: 14,
        };
        assert_eq!(BypassRisks::default().warnings(&device), []);
        let around = BypassRisks {
            bridges: vec![7],
            xdp: vec!["eth1".into(), "eth2".into()],
            offload: vec!["eth3".into()],
        };
        let text: Vec<String> = around
            .warnings(&device)
            .into_iter()
            .map(|w| format!("{}; {}", w.reason, w.remedy))
            .collect();
        assert_eq!(text.len(), 3);
        assert!(text[0].contains("is a bridge") && text[0].contains("master eth0"));
        assert!(text[1].contains("on eth1, eth2; ") && text[1].contains("dev eth1 xdp off"));
        assert!(text[2].contains("is on: eth3; ") && text[2].contains("-K eth3 hw-tc"));
    }
}
