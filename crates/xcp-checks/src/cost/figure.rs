// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The parts of the data path whose cost can be counted, and the results.

use serde::{Deserialize, Serialize};

/// A part of the data path whose cost can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The router's program for several kinds of packets, compared with an empty program.
    Router,
    /// Enqueue and dequeue, compared with the kernel's queue disciplines.
    Qdisc,
    /// Connections in each wire format, compared with CUBIC and BBR.
    Hosts,
    /// Short connections in each wire format, compared with CUBIC.
    Connections,
}

impl Subject {
    pub const ALL: [Self; 4] = [Self::Router, Self::Qdisc, Self::Hosts, Self::Connections];

    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Qdisc => "qdisc",
            Self::Hosts => "hosts",
            Self::Connections => "connections",
        }
    }

    /// The unit that the number of instructions refers to.
    pub fn per(self) -> &'static str {
        match self {
            Self::Router | Self::Qdisc => "packet",
            Self::Hosts => "MB",
            Self::Connections => "connection",
        }
    }

    /// The baseline of the ratios.
    pub fn baseline(self) -> &'static str {
        match self {
            Self::Router => "an empty program",
            Self::Qdisc => "pfifo",
            Self::Hosts | Self::Connections => "cubic",
        }
    }
}

/// The cost of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub name: String,
    pub instructions: f64,
    /// The instructions divided by those of the baseline.
    pub ratio: f64,
}

impl Cost {
    pub fn new(name: impl Into<String>, instructions: f64, baseline: f64) -> Self {
        Self {
            name: name.into(),
            instructions: xcp_player::metrics::round(instructions, 1),
            ratio: xcp_player::metrics::round(instructions / baseline, 3),
        }
    }
}
