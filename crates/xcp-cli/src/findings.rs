// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Findings of `xcp doctor` and `xcp lab doctor`: present and missing features, and
//! the consequences.

use serde::Serialize;

use crate::out::Style;
use crate::table;

/// One feature that was checked.
#[derive(Serialize)]
pub struct Finding {
    pub name: String,
    pub present: bool,
    pub required: bool,
    pub detail: String,
    /// What does not work if it is missing.
    pub cost: String,
}

/// Prints a line for each finding, and a second one with the cost if it is missing.
pub fn describe(findings: &[Finding], style: &Style) -> String {
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|f| vec![f.name.clone(), f.detail.clone()])
        .collect();
    let mut text = String::new();
    for (finding, line) in findings.iter().zip(table::columns(&rows, 2).lines()) {
        let mark = match (finding.present, finding.required) {
            (true, _) => style.good("ok     "),
            (false, false) => style.weak("without"),
            (false, true) => style.bad("MISSING"),
        };
        text.push_str(&format!("{mark}  {line}\n"));
        if !finding.present {
            text.push_str(&format!("           {}\n", finding.cost));
        }
    }
    text
}
