// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab all`: runs all experiments; `xcp lab verify`: verifies the published results.

use std::process::ExitCode;

use xcp_lab::all::{self, All, Case, Options, Row, State};
use xcp_lab::verify::{self, Verified};

use super::progress::Progress;
use super::summary;
use super::{count, interruptible, judged};
use xcp_cli::cli::{LabAll, LabVerify};
use xcp_cli::failure::Failure;
use xcp_cli::out::{Out, Style};
use xcp_cli::table;

pub fn act(asked: LabAll, out: &Out) -> Result<ExitCode, Failure> {
    let options = Options {
        quick: asked.quick,
        fresh: asked.fresh,
        results: asked.results,
    };
    let progress = Progress::of_many();
    let all = all::run_all(&options, &|news| progress.on_progress(news)).map_err(interruptible)?;
    drop(progress);
    out.print(&all, |style| describe(&all, style))?;
    match all.figures {
        Some(error) => Err(error.into()),
        None => Ok(judged(all.ok)),
    }
}

/// Prints failures and remarks, then the totals.
fn describe(all: &All, style: &Style) -> String {
    let mut rows = Vec::new();
    for row in &all.rows {
        if let State::Failed { reason } = &row.state {
            rows.push((style.bad("FAILED"), cells(row, reason.clone())));
        }
        for check in row.remarks() {
            let mark = summary::mark(check, style);
            rows.push((mark, cells(row, summary::described(check).join("  "))));
        }
    }
    let (marks, lines): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let lines = table::columns(&lines, usize::MAX);
    let remarks: String = marks
        .iter()
        .zip(lines.lines())
        .map(|(mark, line)| format!("{mark}  {line}\n"))
        .collect();
    let gap = if remarks.is_empty() { "" } else { "\n" };
    format!("{remarks}{gap}{}", numbers(all))
}

fn cells(row: &Row, what: String) -> Vec<String> {
    let case = &row.case;
    vec![
        case.experiment.clone(),
        case.variant.clone(),
        case.kernel.clone(),
        what,
    ]
}

fn numbers(all: &All) -> String {
    let number = |wanted: fn(&State) -> bool| all.rows.iter().filter(|r| wanted(&r.state)).count();
    let kept = number(|s| matches!(s, State::Judged(judged) if judged.kept));
    let run = number(|s| matches!(s, State::Judged(judged) if !judged.kept));
    let written = number(|s| matches!(s, State::Written { .. }));
    let unchecked = number(|s| matches!(s, State::Unchecked { .. }));
    let failed = all.rows.iter().filter(|r| !r.ok()).count();
    let mut text = format!(
        "{}: {run} run, {kept} cached, {failed} failed\n",
        count(all.rows.len(), "case")
    );
    if written > 0 {
        text += &format!("{written} skipped: their rows in the document are up to date\n");
    }
    if unchecked > 0 {
        text += &format!(
            "{unchecked} not checked: not quick and no result from an earlier run; \
             `xcp lab all` runs them (`./x experiments` in a checkout)\n"
        );
    }
    text
}

pub fn verify(asked: &LabVerify, out: &Out) -> Result<ExitCode, Failure> {
    let progress = Progress::of_many();
    let on_progress = |news: xcp_lab::Progress| progress.on_progress(news);
    let verified = verify::verify(&asked.document, &asked.draw, asked.rows, &on_progress)
        .map_err(interruptible)?;
    drop(progress);
    out.print(&verified, |style| proved(&verified, style))?;
    Ok(judged(verified.ok))
}

fn proved(verified: &Verified, style: &Style) -> String {
    let mut text = String::new();
    for proof in &verified.proofs {
        let title = proof.case.title();
        if proof.ok {
            text += &format!("{}  {title}\n", style.good("ok    "));
        } else {
            let (written, found) = (&proof.written, &proof.found);
            text += &format!("{}  {title}\n", style.bad("FAILED"));
            text += &format!("  written: {written}\n  found:   {found}\n");
        }
    }
    for (cases, what) in [(&verified.stale, "stale"), (&verified.missing, "missing")] {
        text += &list_not_compared(cases, what);
    }
    let proofs = verified.proofs.len();
    text + &format!("{} run again\n", count(proofs, "row"))
}

/// Lists the rows that could not be compared.
fn list_not_compared(cases: &[Case], what: &str) -> String {
    let titles: Vec<String> = cases.iter().map(Case::title).collect();
    match &titles[..] {
        [] => String::new(),
        some => format!(
            "{} {what} (`./x experiments` updates the document): {}\n",
            count(some.len(), "row"),
            some.join("; ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xcp_lab::all::Judged;
    use xcp_lab::result::{CheckResult, VariantResult};
    use xcp_lab::verify::VerifiedRow;

    fn case(variant: &str) -> Case {
        Case {
            experiment: "sharing".into(),
            variant: variant.into(),
            kernel: "6.18".into(),
        }
    }

    fn judged(kept: bool, met: bool, gap: Option<&str>) -> State {
        let name = "jain >= 0.99".into();
        let gap = gap.map(String::from);
        let result = VariantResult {
            checks: vec![CheckResult::new(name, 0.99, 0.5, met, gap)],
            ..VariantResult::default()
        };
        State::Judged(Box::new(Judged {
            release: "6.18.5".into(),
            key: "00".into(),
            kept,
            varies: false,
            result,
        }))
    }

    #[test]
    fn failures_and_gaps_are_listed_and_all_cases_are_counted() {
        let states = [
            ("well", judged(true, true, None)),
            ("gap", judged(false, false, Some("it is short"))),
            ("missed", judged(false, false, None)),
            (
                "broken",
                State::Failed {
                    reason: "no kernel".into(),
                },
            ),
            ("long", State::Unchecked { key: "0".into() }),
        ];
        let rows = states.map(|(variant, state)| Row {
            case: case(variant),
            state,
        });
        let all = All {
            rows: rows.to_vec(),
            ok: false,
            figures: None,
        };
        let text = describe(&all, &Style(false));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "gap     sharing  gap     6.18  jain >= 0.99  measured 0.5  known gap: it is short",
                "FAILED  sharing  missed  6.18  jain >= 0.99  measured 0.5",
                "FAILED  sharing  broken  6.18  no kernel",
                "",
                "5 cases: 2 run, 1 cached, 2 failed",
                "1 not checked: not quick and no result from an earlier run; `xcp lab all` runs \
                 them (`./x experiments` in a checkout)",
            ]
        );
    }

    #[test]
    fn different_row_is_shown_as_written_and_as_found() {
        let proof = |variant: &str, ok| VerifiedRow {
            case: case(variant),
            written: "| 0.9 |".into(),
            found: "| 0.8 |".into(),
            ok,
        };
        let verified = Verified {
            proofs: vec![proof("a", true), proof("b", false)],
            stale: vec![case("c")],
            missing: Vec::new(),
            ok: false,
        };
        let text = proved(&verified, &Style(false));
        assert_eq!(
            text,
            "ok      sharing, a, Linux 6.18\n\
             FAILED  sharing, b, Linux 6.18\n  written: | 0.9 |\n  found:   | 0.8 |\n\
             1 row stale (`./x experiments` updates the document): sharing, c, Linux 6.18\n\
             2 rows run again\n"
        );
    }
}
