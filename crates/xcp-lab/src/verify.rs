// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Verifies the results document: runs some of its rows again. The rows are selected by a
//! text that the author did not choose, such as a commit hash.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::all::{plan, test_machines, Case, Planned};
use crate::machines::run_parallel;
use crate::options::{Progress, Tell};
use crate::results::{self, Written};
use crate::test_machine::TestMachine;
use crate::{interrupt, Error, Result};

/// The result of the verification.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// The selected rows and their new results.
    pub proofs: Vec<VerifiedRow>,
    /// Rows that cannot be compared: their key does not match this build, kernel or machine.
    pub stale: Vec<Case>,
    /// Cases without a row.
    pub missing: Vec<Case>,
    /// All selected rows are reproduced.
    pub ok: bool,
}

/// A row that was run again.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedRow {
    #[serde(flatten)]
    pub case: Case,
    pub written: String,
    pub found: String,
    pub ok: bool,
}

/// A row whose key matches, so that it can be compared.
struct Current<'a> {
    planned: &'a Planned,
    rig: &'a TestMachine<'a>,
    written: Written,
}

/// Runs `rows` rows of a document again, selected by the text `draw`.
///
/// # Errors
/// The document cannot be read or has no row that can be compared, a kernel is not available, a
/// machine fails, or the user interrupts the command.
pub fn verify(document: &Path, draw: &str, rows: usize, progress: Tell) -> Result<Verified> {
    interrupt::watch();
    let say = |step: &str| progress(Progress::Step(step));
    let text =
        fs::read_to_string(document).map_err(|e| Error::io(document.display().to_string(), &e))?;
    let mut written = results::read(&text);
    if written.is_empty() {
        let remedy = "give a document that `xcp lab all --results FILE` has written";
        return Err(Error::new(
            document.display().to_string(),
            "has no row of results",
            remedy,
        ));
    }
    let planned = plan()?;
    let to_compare = planned.iter().filter(|p| written.contains_key(&p.case));
    let test_machines = test_machines(to_compare, true, &say)?;
    let test_machines = test_machines
        .into_iter()
        .map(|(name, rig)| Ok((name, rig?)));
    let test_machines: BTreeMap<_, _> = test_machines.collect::<Result<_>>()?;
    let (mut current, mut stale, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for planned in &planned {
        let case = &planned.case;
        let Some(written) = written.remove(case) else {
            missing.push(case.clone());
            continue;
        };
        let rig = &test_machines[case.kernel.as_str()];
        if written.has_key(&planned.key(rig)?) {
            current.push(Current {
                planned,
                rig,
                written,
            });
        } else {
            stale.push(case.clone());
        }
    }
    let wait_s = |c: &Current| wait_s(draw, &c.planned.case, c.planned.duration_s());
    current.sort_by(|a, b| wait_s(a).total_cmp(&wait_s(b)));
    current.truncate(rows);
    if current.is_empty() {
        let reason = format!(
            "no row was run again: {} are stale, {} missing, and --rows is {rows}",
            stale.len(),
            missing.len()
        );
        let remedy = "rows can be compared only with the build that wrote them: use that version";
        return Err(Error::new(document.display().to_string(), reason, remedy));
    }
    let proofs = Mutex::new(Vec::new());
    run_parallel(current.into_iter(), |current| {
        let proof = prove(&current, progress);
        proofs.lock().unwrap_or_else(|e| e.into_inner()).push(proof);
    });
    let proofs = proofs.into_inner().unwrap_or_else(|e| e.into_inner());
    let mut proofs: Vec<VerifiedRow> = proofs.into_iter().collect::<Result<_>>()?;
    proofs.sort_by(|a, b| a.case.cmp(&b.case));
    Ok(Verified {
        ok: proofs.iter().all(|p| p.ok),
        proofs,
        stale,
        missing,
    })
}

fn prove(current: &Current, progress: Tell) -> Result<VerifiedRow> {
    let Current {
        planned,
        rig,
        written,
    } = current;
    let title = planned.case.title();
    let name = title.as_str();
    let on_progress = |done| progress(Progress::Variant { name, done });
    let judged = planned.play(rig, &on_progress)?;
    let found = results::line(&planned.case, &judged);
    let ok = found == written.line;
    let verdict = if ok { "reproduced" } else { "NOT reproduced" };
    let said = &format!("{name}: {verdict}");
    progress(Progress::Ended { name, said });
    Ok(VerifiedRow {
        case: planned.case.clone(),
        ok,
        written: written.line.clone(),
        found,
    })
}

/// The rank of a case in the draw: a pseudo-random time with exponential distribution, whose
/// mean is the duration of its run. Any row can be selected, but long ones rarely are.
fn wait_s(draw: &str, case: &Case, duration_s: f64) -> f64 {
    let digest = Sha256::digest(format!("{draw}\n{}", case.title()));
    let lot = digest
        .iter()
        .rev()
        .fold(0.5, |lot, byte| (f64::from(*byte) + lot) / 256.0);
    -duration_s * lot.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_selects_rows_and_prefers_short_runs() {
        let case = |variant: &str| Case {
            experiment: "sharing".into(),
            variant: variant.into(),
            kernel: "6.18".into(),
        };
        let durations_s = [("a", 20.0), ("b", 20.0), ("c", 20.0), ("d", 400.0)];
        let first = |draw: &str| {
            let wait_s = |(variant, s)| (wait_s(draw, &case(variant), s), variant);
            let mut waits: Vec<_> = durations_s.map(wait_s).to_vec();
            waits.sort_by(|a, b| a.0.total_cmp(&b.0));
            waits[0].1
        };
        assert_eq!(first("text"), first("text"));
        let drawn: Vec<_> = (0..1000).map(|n| first(&n.to_string())).collect();
        let often = |variant| drawn.iter().filter(|d| **d == variant).count();
        for variant in ["a", "b", "c"] {
            assert!((250..400).contains(&often(variant)), "{variant}");
        }
        // expected: one in 61, its rate 1/400 divided by the sum of all rates, 3/20 + 1/400
        assert!((5..40).contains(&often("d")), "{}", often("d"));
    }
}
