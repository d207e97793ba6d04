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

/// Enough runs that interrupts hardly change the mean.
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

/// The packet that is also counted with the level law, before and after flows have settled.
const LEVEL: (&str, &str) = PACKETS[0];
/// Flows that use most of this settle: a packet takes about a microsecond.
const LEVEL_CAPACITY_BYTES_PER_S: u64 = 2_500_000_000;
/// Several control intervals.
const SETTLING: u32 = 2_000_000;

pub fn count(progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    let yardstick = Bench::empty()?;
    for (i, (name, text)) in PACKETS.iter().enumerate() {
        let frame = bytes(text)?;
        let bench = Bench::new(Options {
            capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
            ..Default::default()
        })?;
        let (empty, router) = (run(&yardstick, &frame)?, run(&bench, &frame)?);
        if i == 0 {
            costs.push(Cost::new("empty", empty, empty));
        }
        costs.push(Cost::new(*name, router, empty));
        progress((i + 1) as f64 / (PACKETS.len() + 1) as f64);
    }
    let frame = bytes(LEVEL.1)?;
    let bench = Bench::new(Options {
        capacity_bytes_per_s: LEVEL_CAPACITY_BYTES_PER_S,
        level: true,
        ..Default::default()
    })?;
    let (empty, before) = (run(&yardstick, &frame)?, run(&bench, &frame)?);
    bench.time(&frame, SETTLING)?;
    let settled = run(&bench, &frame)?;
    costs.push(Cost::new("level law", before, empty));
    costs.push(Cost::new("level law, settled", settled, empty));
    progress(1.0);
    Ok(costs)
}

/// Instructions of a run.
fn run(bench: &Bench, frame: &[u8]) -> Result<f64> {
    Ok(bench.time(frame, REPEATS)?.as_nanos() as f64)
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
