// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Limits for the costs of the data path: `bpf/limits.toml`. The counts are the same on
//! every machine, but differ a little between compilers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xcp_checks::cost::{Cost, Subject};

use crate::{Error, Result};

const TEXT: &str = include_str!("../../../bpf/limits.toml");

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of instructions, by subject and row.
    instructions: BTreeMap<String, BTreeMap<String, f64>>,
    /// Maximum ratio to the instructions of the baseline, by subject and row.
    ratio: BTreeMap<String, BTreeMap<String, f64>>,
    /// Maximum number of instructions that the verifier processes, by program.
    verified: BTreeMap<String, u64>,
}

/// A limit, and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub max: f64,
    /// The limited value: `instructions` or `ratio`.
    pub of: String,
    pub ok: bool,
}

impl Limits {
    /// Loads the limits of `bpf/limits.toml`.
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

    /// The maximum number of instructions that the verifier may process for a program. It
    /// is 0 for a program that is not in the file, so that its check fails.
    pub fn of_program(&self, name: &str) -> u64 {
        self.verified.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_with_their_limit() {
        let limits: Limits = toml::from_str(
            "[instructions.router]\nforward = 300\n[ratio.hosts]\noption = 1.1\n[verified]\n",
        )
        .expect("valid limits");
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

    /// The row of a program or a case in docs/reference/costs.md. The rows of a subject are
    /// in the code block that begins with its name.
    fn row_of<'a>(page: &'a str, subject: &str, name: &str) -> &'a str {
        let start = format!("```\n{subject} ");
        let at = page.find(&start).expect(subject);
        let block = page[at + 4..].split("```").next().expect("a part");
        let row = block
            .lines()
            .find(|l| l.strip_prefix(name).is_some_and(|l| l.starts_with("  ")));
        row.expect(name)
    }

    #[test]
    fn costs_page_has_the_limits_of_the_file() {
        let page = include_str!("../../../docs/reference/costs.md");
        let limits = Limits::load().expect("bpf/limits.toml");
        for (subject, rows) in &limits.instructions {
            for (name, max) in rows {
                let row = row_of(page, subject, name);
                assert!(row.ends_with(&format!(" {max}")), "{row}");
            }
        }
        for (subject, rows) in &limits.ratio {
            for (name, max) in rows {
                let row = row_of(page, subject, name);
                assert!(row.ends_with(&format!(" {max:.2} times")), "{row}");
            }
        }
        for (name, max) in &limits.verified {
            let row = page
                .lines()
                .find(|l| l.starts_with(&format!("| `{name}` |")));
            let row = row.expect(name);
            assert!(row.ends_with(&format!(" | {max} |")), "{row}");
        }
    }
}
