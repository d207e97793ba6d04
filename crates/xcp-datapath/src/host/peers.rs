// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Which wire format is used with which peers: the map `peers`, which has separate entries for
//! each network namespace.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{object, wire, Result, Wire};
use xcp_abi::{xcp_address, xcp_peer_key, Record, XCP_WIRE_DISABLED};

const NETNS_BITS: u32 = 64;
const ADDRESS_BITS: u32 = 128;
/// IPv4 addresses are mapped to ::ffff:0:0/96.
const MAPPED_BITS: u32 = 96;

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The address in 16 bytes, and the number of bits that count.
    pub(crate) fn mapped(self) -> ([u8; 16], u32) {
        let before = if self.address.is_ipv4() {
            MAPPED_BITS
        } else {
            0
        };
        let address = wire::mapped(self.address);
        (address.octets(), before + u32::from(self.bits))
    }
}

impl Prefix {
    /// Whether an address has this prefix.
    fn has(self, address: IpAddr) -> bool {
        let whole = Self {
            address,
            bits: if address.is_ipv4() { 32 } else { 128 },
        };
        let ((ours, bits), (theirs, _)) = (self.mapped(), whole.mapped());
        let differ = u128::from_be_bytes(ours) ^ u128::from_be_bytes(theirs);
        u64::from(bits) <= u64::from(differ.leading_zeros())
    }

    /// Whether all addresses of both families have this prefix.
    pub fn is_all(&self) -> bool {
        self.mapped().1 == 0
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "not an address".to_owned())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|b| *b <= most)
                .ok_or_else(|| format!("not a prefix length of 0 to {most}"))?,
        };
        let prefix = Self { address, bits };
        let (bytes, counted) = prefix.mapped();
        let beyond = u128::from_be_bytes(bytes).checked_shl(counted).unwrap_or(0);
        if beyond != 0 {
            return Err(format!("bits after the first {bits} are not zero"));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A wire format and the peers with which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerPolicy {
    /// The wire format; None if XCP is not used with these peers.
    pub wire: Option<Wire>,
    /// The peers; None for all peers without an entry.
    pub peers: Option<Prefix>,
}

pub fn key(netns: u64, peers: Option<Prefix>) -> xcp_peer_key {
    let (address, bits) = peers.map_or(([0; 16], 0), Prefix::mapped);
    xcp_peer_key {
        prefix_len: NETNS_BITS + bits,
        netns: [(netns >> 32) as u32, netns as u32],
        address: xcp_address { bytes: address },
    }
}

fn prefix_of(key: &xcp_peer_key) -> Option<Prefix> {
    let bits = key.prefix_len.checked_sub(NETNS_BITS).filter(|b| *b > 0)?;
    let address = std::net::Ipv6Addr::from(key.address.bytes);
    Some(match (address.to_ipv4_mapped(), bits) {
        (Some(v4), MAPPED_BITS..=ADDRESS_BITS) => Prefix {
            address: v4.into(),
            bits: (bits - MAPPED_BITS) as u8,
        },
        _ => Prefix {
            address: address.into(),
            bits: bits as u8,
        },
    })
}

fn keys(map: &MapHandle, netns: u64) -> Vec<xcp_peer_key> {
    let ours = [(netns >> 32) as u32, netns as u32];
    map.keys()
        .filter_map(|bytes| xcp_peer_key::from_bytes(&bytes))
        .filter(|key| key.netns == ours)
        .collect()
}

/// The wire format for a peer: that of its longest matching prefix. None if XCP is not used
/// with it.
pub fn wire_of(all: &[PeerPolicy], peer: IpAddr) -> Option<Wire> {
    let fits = |s: &&PeerPolicy| s.peers.is_none_or(|prefix| prefix.has(peer));
    let longest = |s: &&PeerPolicy| s.peers.map_or(0, |prefix| prefix.mapped().1);
    let best = all.iter().filter(fits).max_by_key(longest);
    best.map_or(Some(Wire::default()), |policy| policy.wire)
}

/// The policies of a network namespace, which is given by its cookie.
pub fn get(map: &MapHandle, netns: u64) -> Vec<PeerPolicy> {
    let mut all: Vec<PeerPolicy> = keys(map, netns)
        .iter()
        .filter_map(|key| {
            let value = map.lookup(key.bytes(), MapFlags::ANY).ok()??;
            let value = *value.first()?;
            let wire = match value {
                XCP_WIRE_DISABLED => None,
                _ => Some(Wire::ALL.into_iter().find(|w| *w as u8 == value)?),
            };
            Some(PeerPolicy {
                wire,
                peers: prefix_of(key),
            })
        })
        .collect();
    all.sort_by_key(|s| s.peers.map(|p| (p.address, p.bits)));
    all
}

/// Sets the policies of a network namespace; returns whether this changed anything. New entries
/// are added before old ones are deleted, so that no peer is without an entry meanwhile.
pub fn set(map: &MapHandle, netns: u64, wanted: &[PeerPolicy]) -> Result<bool> {
    let before = keys(map, netns);
    let mut changed = false;
    for policy in wanted {
        let key = key(netns, policy.peers);
        let value = [policy.wire.map_or(XCP_WIRE_DISABLED, |wire| wire as u8)];
        let present = map.lookup(key.bytes(), MapFlags::ANY).ok().flatten();
        let exact = before.iter().any(|k| k.bytes() == key.bytes());
        if !exact || present.as_deref() != Some(&value[..]) {
            map.update(key.bytes(), &value, MapFlags::ANY)
                .map_err(|e| object::failure("map of peers", &e))?;
            changed = true;
        }
    }
    for old in before {
        if !wanted
            .iter()
            .any(|s| key(netns, s.peers).bytes() == old.bytes())
        {
            map.delete(old.bytes())
                .map_err(|e| object::failure("map of peers", &e))?;
            changed = true;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_parsed_and_printed() {
        for (text, printed) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), printed);
            if prefix.bits > 0 || prefix.address.is_ipv4() {
                assert_eq!(prefix_of(&key(7, Some(prefix))), Some(prefix));
            }
        }
        assert_eq!(prefix_of(&key(7, None)), None);
    }

    #[test]
    fn the_longest_matching_prefix_decides() {
        let policy = |wire, prefix: Option<&str>| PeerPolicy {
            wire,
            peers: prefix.map(|p| p.parse().unwrap()),
        };
        let wire = |all: &[PeerPolicy], peer: &str| wire_of(all, peer.parse().unwrap());
        assert_eq!(wire(&[], "10.1.2.3"), Some(Wire::Option));
        let all = [
            policy(None, None),
            policy(Some(Wire::Option2005), Some("10.0.0.0/8")),
            policy(None, Some("10.1.2.0/24")),
            policy(Some(Wire::Option), Some("2001:db8::/32")),
        ];
        assert_eq!(wire(&all, "10.9.2.3"), Some(Wire::Option2005));
        assert_eq!(wire(&all, "10.1.2.3"), None);
        assert_eq!(wire(&all, "192.0.2.1"), None);
        assert_eq!(wire(&all, "2001:db8::1"), Some(Wire::Option));
    }

    #[test]
    fn invalid_prefixes_are_reported() {
        for (text, reason) in [
            ("10.0.0", "not an address"),
            ("10.0.0.0/33", "not a prefix length of 0 to 32"),
            ("2001:db8::/x", "not a prefix length of 0 to 128"),
            ("10.0.0.1/8", "bits after the first 8 are not zero"),
            ("2001:db8::1/64", "bits after the first 64 are not zero"),
        ] {
            let error = text.parse::<Prefix>().expect_err(text);
            assert_eq!(error, reason, "{text}");
        }
    }
}
