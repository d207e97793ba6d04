// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The wire formats and their names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xcp_abi::*;

/// The default IP protocol number of the formats `header` and `header-2004`: one for
/// experiments (RFC 3692), because none was ever assigned.
pub const IP_PROTO: u8 = 253;
/// The protocol numbers that may be used instead.
pub const IP_PROTO_RANGE: std::ops::RangeInclusive<u8> = 148..=254;

/// An address in 16 bytes: `struct xcp_address` in bpf/abi.h.
pub(crate) fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// How packets carry XCP's header: `enum xcp_wire` in core/xcp_wire.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Wire {
    /// This project's TCP option.
    #[default]
    Option = XCP_WIRE_OPTION as u8,
    /// Zhang & Henderson's TCP options 14 and 15.
    #[serde(rename = "option-2005")]
    Option2005 = XCP_WIRE_OPTION_2005 as u8,
    /// Draft -03 of 2007, between IP and TCP.
    Header = XCP_WIRE_HEADER as u8,
    /// Draft -00 of 2004, as in Mosebekk's thesis.
    #[serde(rename = "header-2004")]
    Header2004 = XCP_WIRE_HEADER_2004 as u8,
}

impl Wire {
    /// All wire formats.
    pub const ALL: [Self; 4] = [
        Self::Option,
        Self::Option2005,
        Self::Header,
        Self::Header2004,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Option2005 => "option-2005",
            Self::Header => "header",
            Self::Header2004 => "header-2004",
        }
    }

    /// The format with this number in the BPF programs.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| *wire as u8 == number)
    }

    /// Whether a TCP option of this kind, with this value (the bytes after its length), belongs
    /// to the format.
    #[must_use]
    pub fn has_option(self, kind: u8, value: &[u8]) -> bool {
        match self {
            Self::Option => kind == XCP_OPT_KIND && value.starts_with(&XCP_OPT_ID.to_be_bytes()),
            Self::Option2005 => [XCP_2005_FORWARD_KIND, XCP_2005_RETURN_KIND].contains(&kind),
            Self::Header | Self::Header2004 => false,
        }
    }

    /// Whether the format is a header between IP and TCP, which needs programs on devices.
    #[must_use]
    pub fn is_header(self) -> bool {
        matches!(self, Self::Header | Self::Header2004)
    }
}

/// The identifier of an upstream router in last_xcp_router, a field of four bytes: its IPv4
/// address, or the exclusive or of the four words of its IPv6 address. If that is 0, which
/// means no router, the identifier is 1.
#[must_use]
pub fn router_id(upstream: IpAddr) -> u32 {
    let id = match upstream.to_canonical() {
        IpAddr::V4(v4) => v4.to_bits(),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [96, 64, 32, 0]
                .into_iter()
                .fold(0, |id, shift| id ^ (bits >> shift) as u32)
        }
    };
    id.max(1)
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wire {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|w| w.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("no such wire format; choose one of {names}")
            })
    }
}
