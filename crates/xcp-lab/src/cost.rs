// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the data path costs, counted in the machine: its clock counts
//! instructions, so the figures are the same on any host, however busy.

mod hosts;
mod router;
mod spare;

use serde::{Deserialize, Serialize};

use crate::limits::{self, Limits};
use crate::{qdisc, Result};

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
}

impl Subject {
    pub const ALL: [Self; 3] = [Self::Router, Self::Qdisc, Self::Hosts];

    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Qdisc => "qdisc",
            Self::Hosts => "hosts",
        }
    }

    /// What the instructions are counted for.
    pub fn per(self) -> &'static str {
        match self {
            Self::Router | Self::Qdisc => "packet",
            Self::Hosts => "MB",
        }
    }

    /// What the ratios are to.
    pub fn baseline(self) -> &'static str {
        match self {
            Self::Router => "an empty program",
            Self::Qdisc => "pfifo",
            Self::Hosts => "cubic",
        }
    }
}

/// One row of a [`Bill`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub name: String,
    pub instructions: f64,
    /// To the baseline's instructions.
    pub ratio: f64,
    /// The limit in `bpf/limits.toml` that it keeps or exceeds, if it has one.
    #[serde(default)]
    pub limit: Option<limits::Limit>,
}

impl Cost {
    pub(crate) fn new(name: impl Into<String>, instructions: f64, baseline: f64) -> Self {
        Self {
            name: name.into(),
            instructions: crate::metrics::round(instructions, 1),
            ratio: crate::metrics::round(instructions / baseline, 3),
            limit: None,
        }
    }
}

/// Everything that was counted of a subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bill {
    pub what: Subject,
    pub kernel: String,
    /// What the instructions are counted for: a packet, a MB.
    pub per: &'static str,
    /// What the ratios are to.
    pub baseline: &'static str,
    /// All limits are kept.
    pub ok: bool,
    pub costs: Vec<Cost>,
}

impl Bill {
    /// Holds what was counted against the limits.
    pub(crate) fn new(what: Subject, kernel: String, mut costs: Vec<Cost>) -> Result<Self> {
        let limits = Limits::house()?;
        for cost in &mut costs {
            cost.limit = limits.of_cost(what, cost);
        }
        Ok(Self {
            what,
            kernel,
            per: what.per(),
            baseline: what.baseline(),
            ok: costs.iter().all(|c| c.limit.as_ref().is_none_or(|l| l.ok)),
            costs,
        })
    }
}

/// Counts, in the machine.
pub(crate) fn count(what: Subject, progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    match what {
        Subject::Router => router::count(progress),
        Subject::Qdisc => qdisc::bench(progress),
        Subject::Hosts => hosts::count(progress),
    }
}
