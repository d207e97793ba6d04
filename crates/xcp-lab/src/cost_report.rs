// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compares the costs of the data path with their limits.

use serde::Serialize;
use xcp_checks::cost::{Cost, Subject};

use crate::limits::{Limit, Limits};
use crate::Result;

/// All costs of a subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReport {
    pub what: Subject,
    pub kernel: String,
    /// The unit of work that the instructions are counted for, such as a packet or a MB.
    pub per: &'static str,
    /// The baseline of the ratios.
    pub baseline: &'static str,
    /// All limits are met.
    pub ok: bool,
    pub costs: Vec<Row>,
}

/// A cost, with its limit in `bpf/limits.toml` if it has one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub cost: Cost,
    pub limit: Option<Limit>,
}

impl CostReport {
    /// Compares the costs with the limits.
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
