// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Network devices for the checks, and the output of `tc` about them.

use serde_json::Value;

use crate::{Error, Result};
use xcp_player::topology::tool;

/// A pair of veth devices, deleted when dropped. Only the checks send packets on them.
pub struct Pair {
    pub near: String,
    pub far: String,
}

impl Pair {
    pub fn new(name: &str) -> Result<Self> {
        let pair = Self {
            near: format!("{name}-near"),
            far: format!("{name}-far"),
        };
        let (near, far) = (&pair.near, &pair.far);
        tool(
            "ip",
            &["-batch", "-"],
            &format!(
                "link add name {near} type veth peer name {far}\n\
                 link set {near} addrgenmode none up\nlink set {far} addrgenmode none up\n"
            ),
        )?;
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = tool("ip", &["link", "del", &self.near], "");
    }
}

/// A device that discards all sent packets, deleted when dropped.
pub struct SinkDevice(String);

impl SinkDevice {
    pub fn new(name: &str) -> Result<Self> {
        Self::of_kind(name, "type dummy")
    }

    /// Creates a device with several queues, like fast devices.
    pub fn with_queues(name: &str, count: u32) -> Result<Self> {
        Self::of_kind(name, &format!("numtxqueues {count} type ifb"))
    }

    fn of_kind(name: &str, kind: &str) -> Result<Self> {
        let batch = format!("link add name {name} {kind}\nlink set {name} addrgenmode none up\n");
        tool("ip", &["-batch", "-"], &batch)?;
        Ok(Self(name.to_owned()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for SinkDevice {
    fn drop(&mut self) {
        let _ = tool("ip", &["link", "del", &self.0], "");
    }
}

/// Runs `tc` with these arguments, separated by spaces.
pub fn tc(words: &str) -> Result<String> {
    tool("tc", &words.split(' ').collect::<Vec<_>>(), "")
}

/// The root queue discipline of a device in the output of `tc -s qdisc show`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub kind: String,
    pub bytes: u64,
    pub packets: u64,
    pub drops: u64,
    pub backlog: u64,
    pub queued: u64,
}

pub fn shown(device: &str) -> Result<Shown> {
    let text = tc(&format!("-s -j qdisc show dev {device} root"))?;
    let odd = || Error::new("tc", format!("printed {text}"), "report this");
    let all: Value = serde_json::from_str(&text).map_err(|_| odd())?;
    let root = all.get(0).ok_or_else(odd)?;
    let number = |key: &str| root[key].as_u64().unwrap_or_default();
    Ok(Shown {
        kind: root["kind"].as_str().unwrap_or_default().to_owned(),
        bytes: number("bytes"),
        packets: number("packets"),
        drops: number("drops"),
        backlog: number("backlog"),
        queued: number("qlen"),
    })
}
