// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What is counted, and the figures.

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The router's program, for packets of several kinds, beside an empty
    /// program.
    Router,
    /// Enqueue and dequeue, beside the kernel's queue disciplines.
    Qdisc,
    /// Connections of each wire format, beside CUBIC and BBR.
    Hosts,
    /// Short connections of each wire format, beside CUBIC's.
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

    /// What the instructions are counted for.
    pub fn per(self) -> &'static str {
        match self {
            Self::Router | Self::Qdisc => "packet",
            Self::Hosts => "MB",
            Self::Connections => "connection",
        }
    }

    /// What the ratios are to.
    pub fn baseline(self) -> &'static str {
        match self {
            Self::Router => "an empty program",
            Self::Qdisc => "pfifo",
            Self::Hosts | Self::Connections => "cubic",
        }
    }
}

/// What was counted of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub name: String,
    pub instructions: f64,
    /// To the baseline's instructions.
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
