// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Instructions of the router's program per packet (BPF_PROG_TEST_RUN).
//!
//! The kernel repeats the run on the same packet, which keeps its changes: from the
//! second run on, the packet requests the delta that it was granted before, as after
//! another router.

use xcp_datapath::router::Options;
use xcp_testbed::Bench;

use super::figure::Cost;
use crate::{Error, Result};

/// So many that interrupts do not matter.
const REPEATS: u32 = 100_000;
const CAPACITY_BYTES_PER_S: u64 = 12_500_000_000; // 100 Gb/s

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../testdata/wire/", $name, ".hex"))),)*]
    };
}

/// Golden packets by name.
const PACKETS: [(&str, &str); 8] = golden![
    "forward",
    "forward-ipv6",
    "2005-forward",
    "header-standard",
    "none-timestamps",
    "none-udp",
    "forward-first",
    "forward-vlan",
];

pub fn count(progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    let yardstick = Bench::empty()?;
    for (i, (name, text)) in PACKETS.iter().enumerate() {
        let frame = bytes(text)?;
        let bench = Bench::new(Options {
            capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
            ..Default::default()
        })?;
        let run = |bench: &Bench| {
            let mean = bench.time(&frame, REPEATS)?;
            Ok::<_, Error>(mean.as_nanos() as f64)
        };
        let (empty, router) = (run(&yardstick)?, run(&bench)?);
        if i == 0 {
            costs.push(Cost::new("empty", empty, empty));
        }
        costs.push(Cost::new(*name, router, empty));
        progress((i + 1) as f64 / PACKETS.len() as f64);
    }
    Ok(costs)
}

/// Parses the file of a golden packet: hex digits, and lines of comments that begin with `#`.
fn bytes(text: &str) -> Result<Vec<u8>> {
    let digits: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split_whitespace())
        .collect();
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16))
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| Error::new("golden packet", e.to_string(), "build again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_packets_can_be_parsed() {
        for (name, text) in PACKETS {
            let frame = bytes(text).expect("hex");
            assert!(
                frame.len() > 40 && frame[..6] == [2, 0, 0, 0, 0, 2],
                "{name}"
            );
        }
    }
}
