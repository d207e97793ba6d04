// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Why connections use the default congestion control: `enum xcp_fallback`.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Why a connection that could use `xcp` uses the default congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Fallback {
    /// The peer did not answer the handshake.
    Peer,
    /// A listener that is short of memory answered with a SYN cookie.
    SynCookie,
    /// TCP-MD5 or TCP-AO signs the TCP options.
    Signed,
    /// Other options, as MPTCP's, leave no room for a header.
    NoRoom,
    /// No XCP router is on the path.
    NoRouter,
    /// Feedback, or any answer to packets with a header, stopped coming back.
    Silent,
    /// The device does not carry headers any more.
    Stopped,
    /// The kernel had no memory for the connection's state.
    Memory,
}

impl Fallback {
    /// All reasons, by their numbers in the BPF programs.
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

    /// Its name in JSON.
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
            Self::Peer => "the peer does not speak XCP",
            Self::SynCookie => "SYN cookie",
            Self::Signed => "signed (TCP-MD5, TCP-AO)",
            Self::NoRoom => "no room beside other options",
            Self::NoRouter => "no XCP router on the path",
            Self::Silent => "feedback stopped",
            Self::Stopped => "the device lost its headers",
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
