// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A router's counters: `struct xcp_router_counters` of bpf/abi.h, as shown by `xcp router
//! show` and its JSON.

use libbpf_rs::MapCore;
use serde::Serialize;
use xcp_abi::{xcp_router_counters, xcp_router_cpu, Record};

use crate::{object, Result};

/// Counts since the router was added. Packets are packets on the wire.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    /// The sum of all deltas in departing headers, bytes per second.
    pub granted_bytes_per_s: i64,
    /// Packets with a forward header.
    pub xcp_packets: u64,
    /// Packets without a forward header.
    pub other_packets: u64,
    /// Packets with a malformed header, passed unchanged.
    pub malformed: u64,
    /// Packets with a forward header that fraglist GRO (ethtool's rx-gro-list) had chained on
    /// the input device, and that were merged and edited.
    pub chained: u64,
    /// Such packets that were not edited, but passed unchanged.
    pub chained_unedited: u64,
}

impl From<xcp_router_counters> for Counters {
    fn from(all: xcp_router_counters) -> Self {
        Self {
            granted_bytes_per_s: all.granted_Bps,
            xcp_packets: all.xcp_packets,
            other_packets: all.other_packets,
            malformed: all.malformed,
            chained: all.chained,
            chained_unedited: all.chained_unedited,
        }
    }
}

impl Counters {
    /// The packet counters as rows of a table: name and text.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let chained = format!(
            "{} packets merged, {} left without feedback",
            self.chained, self.chained_unedited
        );
        vec![
            ("XCP packets", self.xcp_packets.to_string()),
            ("other packets", self.other_packets.to_string()),
            ("malformed headers", self.malformed.to_string()),
            ("fraglist GRO", chained),
        ]
    }
}

/// Sums the counters of all CPUs. Each counter is a 64-bit word.
pub fn sum_counters(cpus: &impl MapCore) -> Result<xcp_router_counters> {
    let mut total = [0u64; size_of::<xcp_router_counters>() / size_of::<u64>()];
    for key in 0..object::cpus()? {
        let cpu: xcp_router_cpu = object::read_record(cpus, key)?;
        for (sum, word) in total.iter_mut().zip(cpu.counters.bytes().as_chunks().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    let bytes: Vec<u8> = total.iter().flat_map(|sum| sum.to_ne_bytes()).collect();
    Ok(xcp_router_counters::from_bytes(&bytes).unwrap_or_default())
}
