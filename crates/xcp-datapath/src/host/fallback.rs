// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The reasons why connections use the default congestion control: `enum xcp_fallback`.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Why a connection that could use `xcp` uses the default congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Fallback {
    /// The peer did not answer the handshake.
    Peer = xcp_abi::XCP_FALLBACK_PEER,
    /// A listener under load answered with a SYN cookie.
    SynCookie = xcp_abi::XCP_FALLBACK_SYN_COOKIE,
    /// TCP-MD5 or TCP-AO signs the TCP options.
    Signed = xcp_abi::XCP_FALLBACK_SIGNED,
    /// Other options, such as MPTCP's, leave no room for a header.
    NoRoom = xcp_abi::XCP_FALLBACK_NO_ROOM,
    /// No XCP router is on the path.
    NoRouter = xcp_abi::XCP_FALLBACK_NO_ROUTER,
    /// Feedback, or any answer to packets with a header, stopped.
    Silent = xcp_abi::XCP_FALLBACK_SILENT,
    /// The device does not carry headers any more.
    Stopped = xcp_abi::XCP_FALLBACK_STOPPED,
    /// The kernel had no memory for the connection's state.
    Memory = xcp_abi::XCP_FALLBACK_MEMORY,
}

impl Fallback {
    /// All reasons, in the order of their numbers in the BPF programs.
    pub const ALL: [Self; 8] = [
        Self::Peer,
        Self::SynCookie,
        Self::Signed,
        Self::NoRoom,
        Self::NoRouter,
        Self::Silent,
        Self::Stopped,
        Self::Memory,
    ];

    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| *reason as u32 == number)
    }

    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::SynCookie => "syn_cookie",
            Self::Signed => "signed",
            Self::NoRoom => "no_room",
            Self::NoRouter => "no_router",
            Self::Silent => "silent",
            Self::Stopped => "stopped",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "the peer does not use XCP",
            Self::SynCookie => "SYN cookie",
            Self::Signed => "signed (TCP-MD5, TCP-AO)",
            Self::NoRoom => "other options leave no room",
            Self::NoRouter => "no XCP router on the path",
            Self::Silent => "feedback stopped",
            Self::Stopped => "the device no longer carries headers",
            Self::Memory => "no kernel memory",
        })
    }
}

/// How many connections fell back, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks(pub(crate) [u64; Fallback::ALL.len()]);

impl Fallbacks {
    /// Connections that fell back for this reason.
    #[must_use]
    pub fn of(&self, reason: Fallback) -> u64 {
        self.0[reason as usize]
    }

    /// Connections that fell back, for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, more: &[u64; Fallback::ALL.len()]) {
        for (sum, n) in self.0.iter_mut().zip(more) {
            *sum += n;
        }
    }
}

impl Serialize for Fallbacks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for reason in Fallback::ALL {
            map.serialize_entry(reason.name(), &self.of(reason))?;
        }
        map.end()
    }
}
