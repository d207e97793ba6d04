// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The options of a router, and their conversion to and from the data path's records.

use std::net::IpAddr;
use std::time::Duration;

use xcp_abi::{
    xcp_router_config, xcp_router_params, XCP_LAW_LEVEL, XCP_MAX_RTT_TICKS, XCP_SHARE_ONE,
    XCP_TICKS_PER_SEC,
};

use super::framing::{Framing, Limits};
use super::qdisc;
use super::shape::Shape;
use crate::rtnl::{self, Device};
use crate::{ethtool, wire, LawTerm};

/// The range of the capacity, bytes per second.
pub const CAPACITY_RANGE_BPS: std::ops::RangeInclusive<u64> = 1_000..=125_000_000_000;

/// The range of the overhead per packet, bytes. It is negative if the link omits bytes that
/// Linux counts.
pub const OVERHEAD_RANGE_B: std::ops::RangeInclusive<i32> = -64..=4096;

/// The range of the RTT limit.
pub const MAX_RTT_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(15);

/// From 10 Gb/s on, a device keeps its several queues (mq): they are worth more than two
/// classes, because the single lock of the queue discipline `xcp` would keep one CPU busy
/// even with full packets (docs/reference/costs.md: some 2,000 instructions each).
const MQ_FROM_BPS: u64 = 1_250_000_000;

const MIN_INTERVAL_NS: u64 = 1_000_000;

pub(crate) const TICKS_PER_SEC: f64 = XCP_TICKS_PER_SEC as f64;

/// The options of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The capacity of the link, bytes per second; 0 if it is only measured.
    pub capacity_bytes_per_s: u64,
    /// Measure the link, and hand out less if it carries less than its capacity.
    pub measure: bool,
    /// The terms to leave out of the control law.
    pub without: LawTerms,
    /// For the lab: the level law (core/xcp_level.h).
    pub level: bool,
    /// The limit of RTTs in headers, within [`MAX_RTT_RANGE`]; longer ones count as this.
    pub max_rtt: Duration,
    /// XCP's percentage of the link when other traffic competes for it; if not set, the shares
    /// follow the numbers of flows.
    pub xcp_share_percent: Option<u8>,
    /// The link's per-packet overhead.
    pub framing: Framing,
    /// The choice of the device's queue discipline.
    pub queueing: Queueing,
    /// The IP protocol number of the wire formats `header` and `header-2004`.
    pub ip_proto: u8,
    /// For the lab: feedback in whole packets in the wire format `option-2005`, which Zhang &
    /// Henderson 2005, II-E.2, forbid.
    pub whole_feedback: bool,
}

/// A set of terms of the control law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LawTerms(u32);

impl LawTerms {
    /// All terms that the published law does not have.
    #[must_use]
    pub fn all() -> Self {
        Self::from(LawTerm::ALL)
    }

    pub(super) fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The terms of the set.
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

/// The queue discipline for a router's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// The queue discipline `xcp`, shaping to the capacity, if the kernel supports it. Fast
    /// devices with several queues (mq) keep them.
    Auto(Limits),
    /// The queue discipline `xcp`, shaping to a separate rate. A token bucket (tbf) if the
    /// kernel does not support it.
    Shape {
        rate_bytes_per_s: u64,
        /// The queue limit, packets; 0 for twice the packets of 100 ms at that rate.
        limit_packets: u32,
    },
    /// Keep the device's queue discipline.
    #[default]
    Keep,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            capacity_bytes_per_s: 0,
            measure: true,
            without: LawTerms::default(),
            level: false,
            max_rtt: Duration::from_secs_f64(f64::from(XCP_MAX_RTT_TICKS) / TICKS_PER_SEC),
            xcp_share_percent: None,
            framing: Framing::default(),
            queueing: Queueing::default(),
            ip_proto: wire::IP_PROTO,
            whole_feedback: false,
        }
    }
}

/// Converts a percentage to units of 2^-16.
pub(super) fn share(percent: u8) -> u32 {
    u32::from(percent) * XCP_SHARE_ONE / 100
}

pub(super) fn percent(share: u32) -> Option<u8> {
    (share > 0).then_some(((share * 100 + XCP_SHARE_ONE / 2) / XCP_SHARE_ONE) as u8)
}

impl Options {
    /// The options of the queue discipline `xcp`, if the router uses it.
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

    /// The options of the token bucket, if the router uses one.
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

    /// The options adapted to a fast device, which keeps its several queues.
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

    /// The data path's configuration, with the device's speed.
    pub(super) fn config(self, device: &Device) -> xcp_router_config {
        let mut config = self.record();
        // a virtual device's speed is not reliable, so a configured capacity
        // takes precedence
        if self.capacity_bytes_per_s == 0 {
            config.params.peak_Bps = ethtool::speed(&device.name).unwrap_or(0);
        }
        config
    }

    pub(crate) fn record(self) -> xcp_router_config {
        xcp_router_config {
            params: xcp_router_params {
                capacity_Bps: self.capacity_bytes_per_s,
                peak_Bps: 0,
                min_interval_ns: MIN_INTERVAL_NS,
                without: self.without.0,
                max_rtt: (self.max_rtt.as_secs_f64() * TICKS_PER_SEC) as u32,
                with: match self.level {
                    true => XCP_LAW_LEVEL,
                    false => 0,
                },
                unused: 0,
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

/// Returns the configuration with an address to write into last_xcp_router, or with none.
#[must_use]
pub fn with_edge(config: xcp_router_config, address: Option<IpAddr>) -> xcp_router_config {
    let edge_address = address.map_or([0; 16], |address| wire::mapped(address).octets());
    xcp_router_config {
        edge: address.map_or(0, wire::router_id),
        edge_address,
        ..config
    }
}

/// Converts ticks to a duration, rounded to microseconds.
pub(super) fn duration(ticks: u32) -> Duration {
    let us = f64::from(ticks) / TICKS_PER_SEC * 1e6;
    Duration::from_micros(us.round() as u64)
}

/// The queueing option that matches the present queue discipline `xcp` or token bucket.
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
