// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the data path costs, held against its limits.

use serde::Serialize;
use xcp_checks::cost::{Cost, Subject};

use crate::limits::{Limit, Limits};
use crate::Result;

/// Everything that was counted of a subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReport {
    pub what: Subject,
    pub kernel: String,
    /// What the instructions are counted for: a packet, a MB.
    pub per: &'static str,
    /// What the ratios are to.
    pub baseline: &'static str,
    /// All limits are kept.
    pub ok: bool,
    pub costs: Vec<Row>,
}

/// A cost, and its limit in `bpf/limits.toml` if it has one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub cost: Cost,
    pub limit: Option<Limit>,
}

impl CostReport {
    /// Holds what was counted against the limits.
    pub(crate) fn new(what: Subject, kernel: String, costs: Vec<Cost>) -> Result<Self> {
        let limits = Limits::load()?;
        let row = |cost| Row {
            limit: limits.of_cost(what, &cost),
            cost,
        };
        let costs: Vec<Row> = costs.into_iter().map(row).collect();
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
