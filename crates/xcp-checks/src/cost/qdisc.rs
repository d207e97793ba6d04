// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Instructions per packet in a queue discipline: the time to send a packet, minus the
//! time on a device without a queue discipline. The machine's clock counts
//! instructions, so 1 ns is one instruction.
//!
//! pfifo and fq_codel let packets bypass an empty queue, except below tbf, so they are
//! measured there. The cost of tbf itself is measured with two of them in a chain.

use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use xcp_datapath::qdisc;

use super::figure::Cost;
use crate::qdisc::frames::{frame, Class, Label, Port};
use crate::qdisc::tools::SinkDevice;
use crate::{Error, Result};
use xcp_player::topology::tool;

const PACKETS: u32 = 200;
const ROUNDS: usize = 60;
const LENGTH: usize = 100;
/// High enough that no packet is queued.
const RATE: &str = "100gbit";
const RATE_BYTES_PER_S: u64 = 12_500_000_000;
const TBF: &str = "tbf rate 100gbit burst 10mb limit 100mb";

/// Compares `xcp` with the kernel's queue disciplines, with and without a shaper.
pub fn count(progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    let mut setups = vec![Setup::Chain(vec![])];
    let kernels: [&[&str]; 5] = [
        &[TBF, "pfifo"],
        &[TBF, TBF, "pfifo"],
        &[TBF, "fq_codel"],
        &["cake"],
        &["cake bandwidth 100gbit"],
    ];
    setups.extend(kernels.map(|chain| Setup::Chain(chain.to_vec())));
    setups.extend([0, RATE_BYTES_PER_S].map(Setup::Xcp));
    let mut seen = Vec::new();
    for (i, setup) in setups.iter().enumerate() {
        seen.push(cost(setup)?);
        progress((i + 1) as f64 / setups.len() as f64);
    }
    let [none, pfifo, two, fq_codel, cake, cake_rate, xcp, xcp_rate] = seen[..] else {
        return Ok(Vec::new());
    };
    let tbf = two - pfifo;
    let fifo = pfifo - tbf - none;
    let named = |name: &str, ns: f64| Cost::new(name, ns, fifo);
    Ok(vec![
        named("pfifo", fifo),
        named("fq_codel", fq_codel - tbf - none),
        named("cake", cake - none),
        named("xcp", xcp - none),
        named("tbf, pfifo", pfifo - none),
        named("tbf, fq_codel", fq_codel - none),
        named(&format!("cake {RATE}"), cake_rate - none),
        named(&format!("xcp {RATE}"), xcp_rate - none),
    ])
}

/// The queue disciplines of the device.
enum Setup {
    /// A chain from root to leaf, without any queue discipline if empty.
    Chain(Vec<&'static str>),
    /// `xcp` at this rate, bytes per second; 0 for no shaper.
    Xcp(u64),
}

/// Measures the lowest time per packet, ns. The minimum excludes interrupts and first-use
/// costs, which the queue discipline does not cause.
fn cost(setup: &Setup) -> Result<f64> {
    let sink = SinkDevice::new("q")?;
    let dev = sink.name();
    match setup {
        Setup::Chain(chain) => {
            let mut batch = String::new();
            for (i, kind) in chain.iter().enumerate() {
                let parent = match i {
                    0 => "root".to_owned(),
                    _ => format!("parent {i}:"),
                };
                batch += &format!("qdisc add dev {dev} {parent} handle {}: {kind}\n", i + 1);
            }
            tool("tc", &["-batch", "-"], &batch)?;
        }
        Setup::Xcp(rate_bytes_per_s) => {
            qdisc::install(
                dev,
                qdisc::Options {
                    rate_bytes_per_s: *rate_bytes_per_s,
                    ..Default::default()
                },
            )?;
        }
    }
    let port = Port::sender(dev)?;
    let bytes = frame(Class::Other, LENGTH, Label::default());
    let mut held = Vec::new();
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..PACKETS {
            port.send(&bytes);
        }
        let ns = begin.elapsed().as_nanos() as f64 / f64::from(PACKETS);
        least = least.min(ns);
        held.push(hold()?);
    }
    if let Setup::Xcp(_) = setup {
        qdisc::remove(dev)?;
    }
    Ok(least)
}

/// Sends a packet that is never read. It changes the state of the kernel's memory caches:
/// in some states, each packet needs a new page, which the kernel clears.
fn hold() -> Result<[UnixDatagram; 2]> {
    let describe = |e| Error::io("socket", &e);
    let (here, there) = UnixDatagram::pair().map_err(describe)?;
    here.send(&[0; LENGTH]).map_err(describe)?;
    Ok([here, there])
}
