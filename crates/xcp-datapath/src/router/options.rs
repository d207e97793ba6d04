// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a router is asked for, as the data path's records have it, and back.

use std::net::IpAddr;
use std::time::Duration;

use xcp_abi::{
    xcp_router_config, xcp_router_params, XCP_MAX_RTT_TICKS, XCP_SHARE_ONE, XCP_TICKS_PER_SEC,
};

use super::framing::{Framing, Limits};
use super::qdisc;
use super::shape::Shape;
use crate::rtnl::{self, Device};
use crate::{ethtool, wire, LawTerm};

/// The smallest and the largest capacity, bytes per second.
pub const CAPACITY_RANGE_BPS: std::ops::RangeInclusive<u64> = 1_000..=125_000_000_000;

/// The overhead per packet, bytes: negative where the link leaves out what
/// Linux counts.
pub const OVERHEAD_RANGE_B: std::ops::RangeInclusive<i32> = -64..=4096;

/// The longest RTT that may be believed.
pub const MAX_RTT_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(15);

/// From 10 Gb/s on, full packets under the one lock of the queue discipline `xcp`
/// keep a processor busy (docs/costs.md: some 2,000 instructions each), and
/// several queues (mq) bring more than two classes do.
const MQ_FROM_BPS: u64 = 1_250_000_000;

const MIN_INTERVAL_NS: u64 = 1_000_000;

pub(crate) const TICKS_PER_SEC: f64 = XCP_TICKS_PER_SEC as f64;

/// What a router hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Capacity of the link, bytes per second; 0 if only measuring tells.
    pub capacity_bytes_per_s: u64,
    /// Hand out less where the link is found to carry less.
    pub measure: bool,
    /// Left out of the law.
    pub without: LawTerms,
    /// RTTs in headers count at most this, of [`MAX_RTT_RANGE`].
    pub max_rtt: Duration,
    /// Percent of the link that is XCP's when other traffic wants it too; by
    /// the numbers of flows if not set.
    pub xcp_share_percent: Option<u8>,
    /// What the link adds to packets.
    pub framing: Framing,
    /// The device's queue discipline.
    pub queueing: Queueing,
    /// IP protocol of the wire formats `header` and `header-2004`.
    pub ip_proto: u8,
    /// Feedback in whole packets in the wire format `option-2005`: what it
    /// must not be (Zhang & Henderson 2005, II-E.2), for the lab.
    pub whole_feedback: bool,
}

/// Parts of the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LawTerms(u32);

impl LawTerms {
    /// What the published law does not have.
    #[must_use]
    pub fn all() -> Self {
        Self::from(LawTerm::ALL)
    }

    pub(super) fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One by one.
    #[must_use]
    pub fn names(self) -> Vec<LawTerm> {
        LawTerm::of_bits(self.0)
    }
}

impl From<&[LawTerm]> for LawTerms {
    fn from(terms: &[LawTerm]) -> Self {
        Self(LawTerm::bits(terms))
    }
}

/// Who queues a router's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// The queue discipline `xcp`, where the kernel can have it, shaping to
    /// the capacity; but fast devices with several queues keep theirs (mq).
    Auto(Limits),
    /// The same shaping to a rate of its own; where the kernel cannot have it,
    /// a token bucket (tbf) does that.
    Shape {
        rate_bytes_per_s: u64,
        /// Packets that may wait; 0 for twice what 100 ms at that rate hold.
        limit_packets: u32,
    },
    /// Whatever the device has.
    #[default]
    Keep,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity_bytes_per_s: 0,
            measure: true,
            without: LawTerms::default(),
            max_rtt: Duration::from_secs_f64(f64::from(XCP_MAX_RTT_TICKS) / TICKS_PER_SEC),
            xcp_share_percent: None,
            framing: Framing::default(),
            queueing: Queueing::default(),
            ip_proto: wire::IP_PROTO,
            whole_feedback: false,
        }
    }
}

/// A percentage in units of 2^-16, and back.
pub(super) fn share(percent: u8) -> u32 {
    u32::from(percent) * XCP_SHARE_ONE / 100
}

pub(super) fn percent(share: u32) -> Option<u8> {
    (share > 0).then_some(((share * 100 + XCP_SHARE_ONE / 2) / XCP_SHARE_ONE) as u8)
}

impl Options {
    /// How the queue discipline `xcp` works for it, if it is to be there.
    pub(super) fn qdisc(self) -> Option<qdisc::Options> {
        match self.queueing {
            Queueing::Auto(limits) if qdisc::is_supported() => Some(qdisc::Options {
                rate_bytes_per_s: self.capacity_bytes_per_s,
                limits,
                framing: self.framing,
            }),
            Queueing::Shape {
                rate_bytes_per_s,
                limit_packets,
            } if qdisc::is_supported() => Some(qdisc::Options {
                rate_bytes_per_s,
                limits: Limits {
                    packets: limit_packets,
                    ..Limits::default()
                },
                framing: self.framing,
            }),
            _ => None,
        }
    }

    /// What the token bucket has to do, if it has to.
    pub(super) fn shape(self) -> Option<Shape> {
        match self.queueing {
            Queueing::Shape {
                rate_bytes_per_s,
                limit_packets,
            } if !qdisc::is_supported() => Some(Shape {
                rate_bytes_per_s,
                limit_packets,
                framing: self.framing,
            }),
            _ => None,
        }
    }

    /// What suits a device that has several queues, if it has.
    pub(super) fn over(self, device: &Device) -> Self {
        let keeps = || rtnl::root_qdisc(device.index).is_some_and(|root| root.kind == "mq");
        let rate_Bps = match self.capacity_bytes_per_s {
            0 => ethtool::speed(&device.name).unwrap_or(0),
            set => set,
        };
        match self.queueing {
            Queueing::Auto(_) if rate_Bps >= MQ_FROM_BPS && keeps() => Self {
                queueing: Queueing::Keep,
                ..self
            },
            _ => self,
        }
    }

    /// The same, with what the device tells of itself.
    pub(super) fn config(self, device: &Device) -> xcp_router_config {
        let mut config = self.record();
        // of a virtual device it is nothing that holds, so a capacity that was
        // given goes before it
        if self.capacity_bytes_per_s == 0 {
            config.params.most_Bps = ethtool::speed(&device.name).unwrap_or(0);
        }
        config
    }

    pub(crate) fn record(self) -> xcp_router_config {
        xcp_router_config {
            params: xcp_router_params {
                capacity_Bps: self.capacity_bytes_per_s,
                most_Bps: 0,
                min_interval_ns: MIN_INTERVAL_NS,
                without: self.without.0,
                max_rtt: (self.max_rtt.as_secs_f64() * TICKS_PER_SEC) as u32,
            },
            frame: self.framing.record(),
            measure: self.measure.into(),
            share: self.xcp_share_percent.map_or(0, share),
            ip_proto: self.ip_proto.into(),
            whole_feedback: self.whole_feedback.into(),
            ..Default::default()
        }
    }
}

/// The same with an address to write into last_xcp_router, or none.
#[must_use]
pub fn with_edge(config: xcp_router_config, address: Option<IpAddr>) -> xcp_router_config {
    let edge_address = match address {
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
        None => [0; 16],
    };
    xcp_router_config {
        edge: address.map_or(0, wire::router_id),
        edge_address,
        ..config
    }
}

/// Ticks as a time, to the microsecond.
pub(super) fn duration(ticks: u32) -> Duration {
    let us = f64::from(ticks) / TICKS_PER_SEC * 1e6;
    Duration::from_micros(us.round() as u64)
}

/// Who queues a router's packets, by what is there.
pub(super) fn queueing(
    capacity_Bps: u64,
    qdisc: Option<qdisc::Options>,
    shape: Option<Shape>,
) -> Queueing {
    match (qdisc, shape) {
        (Some(qdisc), _) if qdisc.rate_bytes_per_s == capacity_Bps => Queueing::Auto(qdisc.limits),
        (Some(qdisc), _) => Queueing::Shape {
            rate_bytes_per_s: qdisc.rate_bytes_per_s,
            limit_packets: qdisc.limits.packets,
        },
        (None, Some(shape)) => {
            let limit_packets = shape.limit_packets();
            let default = Shape {
                limit_packets: 0,
                ..shape
            };
            Queueing::Shape {
                rate_bytes_per_s: shape.rate_bytes_per_s,
                limit_packets: match limit_packets == default.limit_packets() {
                    true => 0,
                    false => limit_packets,
                },
            }
        }
        (None, None) => Queueing::Keep,
    }
}
