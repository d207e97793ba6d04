// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What gives a link its rate and delay: netem on a path; on a bottleneck tbf,
//! one medium for both ends, or the queue discipline `xcp`. A bottleneck's rate
//! and a path's delay may change during a run.

use std::time::Duration;

use xcp_datapath::netem;
use xcp_datapath::qdisc;
use xcp_datapath::shape::Bucket;
use xcp_testbed::Medium;

use crate::experiment::{Link, Queue, Variant};
use crate::Result;

/// What a token bucket may send at once: one full frame.
const BURST_BYTES: u32 = 1600;
/// Room for what is under way on a path.
const PATH_PACKETS: u32 = 1_000_000;
const PACKET_BYTES: u32 = 1500;
const TBF_MAJOR: u16 = 1;

/// What changes a link's rate, or a path's delay.
pub enum Shaper {
    /// Of the device of a node.
    Path {
        node: String,
        device: String,
    },
    /// Of the device of a node.
    Tbf {
        node: String,
        device: String,
        bucket: Bucket,
    },
    Medium(Medium),
    /// The queue discipline `xcp` of a node's device.
    Own {
        node: String,
        device: String,
        options: qdisc::Options,
    },
}

/// Commands for tc, which `add` or `change` a device's queue disciplines.
pub fn disciplines(verb: &str, link: &Link, dev: &str, variant: &Variant) -> String {
    let rate = link.rate_bps(0.0);
    let rate = rate.map_or(String::new(), |bps| format!("rate {}bit", bps as u64));
    let Some(limit) = link.queue_packets else {
        if !link.needs_netem() {
            return String::new();
        }
        let rate = match link.delays.is_empty() {
            true => rate,
            // netem lets packets overtake each other where no rate orders them
            false if rate.is_empty() => "rate 100gbit".to_owned(),
            false => rate,
        };
        return format!(
            "qdisc {verb} dev {dev} root netem delay {}us {rate} limit {PATH_PACKETS}\n",
            (link.delay_ms(0.0) * 1e3) as u64
        );
    };
    if link.half_duplex {
        // its own pacing would hold back packets that have their time already
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
        // as Zhang & Henderson set it: a third and two thirds, probability 0.1
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

/// The token bucket of a link at rest.
pub fn bucket(link: &Link) -> Bucket {
    Bucket {
        rate_bytes_per_s: 0,
        burst_bytes: BURST_BYTES + link.framing_bytes,
        limit: link.queue_packets.unwrap_or(0),
        framing: link.framing(),
    }
}

impl Shaper {
    /// The node in whose namespace its rate is changed, if that matters.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Path { node, .. } | Self::Tbf { node, .. } | Self::Own { node, .. } => Some(node),
            Self::Medium(_) => None,
        }
    }

    /// Changes the rate, in the namespace of its node.
    pub fn set_rate(&mut self, bits_per_s: f64) -> Result<()> {
        let bytes_per_s = (bits_per_s / 8.0) as u64;
        match self {
            Self::Path { .. } => Ok(()), // only bottlenecks vary
            Self::Medium(medium) => medium.set_rate(bytes_per_s),
            Self::Own {
                device, options, ..
            } => {
                options.rate_bytes_per_s = bytes_per_s;
                qdisc::install(device, *options).map(|_| ())
            }
            Self::Tbf { device, bucket, .. } => {
                // by netlink: running tc takes long for a machine that counts
                // instructions
                bucket.rate_bytes_per_s = bytes_per_s;
                bucket.change(device, TBF_MAJOR)
            }
        }
    }
    /// Changes a path's delay, in the namespace of its node.
    pub fn set_delay(&self, delay: Duration) -> Result<()> {
        match self {
            Self::Path { device, .. } => netem::set_delay(device, delay, PATH_PACKETS),
            _ => Ok(()), // bottlenecks have none
        }
    }
}
