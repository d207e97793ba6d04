// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The most that the data path may cost: `bpf/limits.toml`. What is counted is
//! the same on every machine, but a compiler moves it a little.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xcp_checks::cost::{Cost, Subject};

use crate::{Error, Result};

const TEXT: &str = include_str!("../../../bpf/limits.toml");

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// By subject and row: the most instructions.
    instructions: BTreeMap<String, BTreeMap<String, f64>>,
    /// By subject and row: the most, to the baseline's instructions.
    ratio: BTreeMap<String, BTreeMap<String, f64>>,
    /// By program: the most instructions that a verifier may look at.
    verified: BTreeMap<String, u64>,
}

/// A limit, and whether it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub max: f64,
    /// Of what: `instructions` or `ratio`.
    pub of: String,
    pub ok: bool,
}

impl Limits {
    /// Those of `bpf/limits.toml`.
    pub fn load() -> Result<Self> {
        toml::from_str(TEXT)
            .map_err(|e| Error::new("bpf/limits.toml", e.to_string(), "correct the file"))
    }

    /// The limit of a row, if it has one.
    pub fn of_cost(&self, what: Subject, cost: &Cost) -> Option<Limit> {
        let of = |all: &BTreeMap<String, BTreeMap<String, f64>>, name: &str, seen: f64| {
            let max = *all.get(what.name())?.get(&cost.name)?;
            Some(Limit {
                max,
                of: name.into(),
                ok: seen <= max,
            })
        };
        of(&self.instructions, "instructions", cost.instructions)
            .or_else(|| of(&self.ratio, "ratio", cost.ratio))
    }

    /// The most instructions that a verifier may look at in a program: none in
    /// one that the file does not name, so that it is noticed.
    pub fn of_program(&self, name: &str) -> u64 {
        self.verified.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_or_exceeds_its_limit() {
        let limits: Limits = toml::from_str(
            "[instructions.router]\nforward = 300\n[ratio.hosts]\noption = 1.1\n[verified]\n",
        )
        .expect("is well");
        let ok = |what, name: &str, instructions| {
            let limit = limits.of_cost(what, &Cost::new(name, instructions, 100.0));
            limit.map(|l| (l.of, l.ok))
        };
        let said = |of: &str, ok| Some((of.to_owned(), ok));
        assert_eq!(
            ok(Subject::Router, "forward", 300.0),
            said("instructions", true)
        );
        assert_eq!(
            ok(Subject::Router, "forward", 300.1),
            said("instructions", false)
        );
        assert_eq!(ok(Subject::Hosts, "option", 110.0), said("ratio", true));
        assert_eq!(ok(Subject::Hosts, "option", 111.0), said("ratio", false));
        assert_eq!(ok(Subject::Hosts, "forward", 1e9), None);
        assert_eq!(limits.of_program("xcp_router"), 0);
    }

    #[test]
    fn the_file_is_well() {
        Limits::load().expect("bpf/limits.toml");
    }
}
