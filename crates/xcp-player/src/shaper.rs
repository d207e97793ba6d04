// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Sets the rate and delay of a link: netem on a path; on a bottleneck tbf, one
//! medium for both ends, or the `xcp` queue discipline. A bottleneck's rate and
//! a path's delay may change during a run.

use std::time::Duration;

use xcp_datapath::netem;
use xcp_datapath::qdisc;
use xcp_datapath::shape::Bucket;
use xcp_testbed::Medium;

use crate::experiment::{Link, Queue, Variant};
use crate::Result;

/// The burst of a token bucket: one full frame.
const BURST_BYTES: u32 = 1600;
/// The netem limit of a path: enough for all packets in flight.
const PATH_PACKETS: u32 = 1_000_000;
const PACKET_BYTES: u32 = 1500;
const TBF_MAJOR: u16 = 1;

/// Changes a link's rate, or a path's delay.
pub enum Shaper {
    /// netem on a node's device.
    Path { node: String, device: String },
    /// A token bucket on a node's device.
    Tbf {
        node: String,
        device: String,
        bucket: Bucket,
    },
    /// The medium that both ends of a half-duplex link share.
    Medium(Medium),
    /// The `xcp` queue discipline on a node's device.
    Own {
        node: String,
        device: String,
        options: qdisc::Options,
    },
}

/// The tc commands that `add` or `change` a device's queue disciplines.
pub fn disciplines(verb: &str, link: &Link, dev: &str, variant: &Variant) -> String {
    let rate = link.rate_bps(0.0);
    let rate = rate.map_or(String::new(), |bps| format!("rate {}bit", bps as u64));
    let Some(limit) = link.queue_packets else {
        if !link.needs_netem() {
            return String::new();
        }
        let rate = match link.delays.is_empty() {
            true => rate,
            // without a rate, netem lets packets overtake each other
            false if rate.is_empty() => "rate 100gbit".to_owned(),
            false => rate,
        };
        return format!(
            "qdisc {verb} dev {dev} root netem delay {}us {rate} limit {PATH_PACKETS}\n",
            (link.delay_ms(0.0) * 1e3) as u64
        );
    };
    if link.half_duplex {
        // fq's own pacing would delay packets that already have a departure
        // time
        return format!(
            "qdisc {verb} dev {dev} root handle 1: fq nopacing limit {limit} flow_limit {limit}\n"
        );
    }
    let bytes = u64::from(limit) * u64::from(PACKET_BYTES);
    let marks = if variant.ecn { " ecn" } else { "" };
    let queue = if link.router {
        variant.queue
    } else {
        Queue::Fifo
    };
    let inner = match queue {
        Queue::Fifo | Queue::Xcp | Queue::XcpFifo => format!("pfifo limit {limit}"),
        // as Zhang & Henderson set it: thresholds at 1/3 and 2/3, probability
        // 0.1
        Queue::Red | Queue::XcpRed => format!(
            "red limit {bytes} min {} max {} avpkt {PACKET_BYTES} burst {} probability 0.1{marks}",
            bytes / 3,
            bytes * 2 / 3,
            limit / 3 + 1
        ),
        Queue::FqCodel => format!("fq_codel limit {limit}"),
    };
    let framing = link.framing_bytes;
    format!(
        "qdisc {verb} dev {dev} root handle {TBF_MAJOR}: tbf {rate} overhead {framing} burst {} limit {}\n\
         qdisc {verb} dev {dev} parent {TBF_MAJOR}: handle 10: {inner}\n",
        BURST_BYTES + framing,
        bytes * 2
    )
}

/// The token bucket of a link; its rate is set later.
pub fn bucket(link: &Link) -> Bucket {
    Bucket {
        rate_bytes_per_s: 0,
        burst_bytes: BURST_BYTES + link.framing_bytes,
        limit: link.queue_packets.unwrap_or(0),
        framing: link.framing(),
    }
}

impl Shaper {
    /// The node in whose namespace changes must be made; None if any will do.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Path { node, .. } | Self::Tbf { node, .. } | Self::Own { node, .. } => Some(node),
            Self::Medium(_) => None,
        }
    }

    /// Changes the rate. The thread must be in the namespace of the node.
    pub fn set_rate(&mut self, bits_per_s: f64) -> Result<()> {
        let bytes_per_s = (bits_per_s / 8.0) as u64;
        match self {
            Self::Path { .. } => Ok(()), // only a bottleneck's rate varies
            Self::Medium(medium) => medium.set_rate(bytes_per_s),
            Self::Own {
                device, options, ..
            } => {
                options.rate_bytes_per_s = bytes_per_s;
                qdisc::install(device, *options).map(|_| ())
            }
            Self::Tbf { device, bucket, .. } => {
                // by netlink: running tc takes long in the virtual-time
                // machine, which counts instructions
                bucket.rate_bytes_per_s = bytes_per_s;
                bucket.change(device, TBF_MAJOR)
            }
        }
    }
    /// Changes a path's delay. The thread must be in the namespace of the node.
    pub fn set_delay(&self, delay: Duration) -> Result<()> {
        match self {
            Self::Path { device, .. } => netem::set_delay(device, delay, PATH_PACKETS),
            _ => Ok(()), // bottlenecks have no delay
        }
    }
}
