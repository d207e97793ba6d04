// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The results document: one table with a row per case. A row that was not updated is
//! kept, and marked as stale if its key has changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::case::{Case, Judged, Row, State};
use crate::result::{
    goodputs, pages, queue, queue_delay, shares, transfers, CheckResult, VariantResult, Verdict,
};
use crate::run::require_writable;
use crate::{Error, Result};

const HEAD: &str = "\
<!-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later -->
# Results
`./x experiments` (`xcp lab all --results docs/results.md`) generates this table of all experiments,
each on one or more kernels. `xcp lab run EXPERIMENT --variant VARIANT --kernel LINUX` prints the figures
of one row. Variants without checks are for comparison.

The key is a hash of everything that can change a row: the programs, the kernel, QEMU and the experiment.
The same key gives the same row, to the byte; `xcp lab verify` runs some rows again to check this. Another
compiler or kernel gives another key and may give other figures. A row marked *stale* is from an earlier
build.

";

const COLUMNS: [&str; 12] = [
    "experiment",
    "variant",
    "Linux",
    UTILISATION,
    GOODPUT,
    SHARE,
    JAIN,
    QUEUE,
    QUEUE_DELAY,
    DROPS,
    "checks",
    "key",
];

/// Columns that other documents quote.
pub(crate) const UTILISATION: &str = "utilisation";
pub(crate) const GOODPUT: &str = "goodput per flow (Mb/s)";
pub(crate) const SHARE: &str = "share of goodput";
pub(crate) const JAIN: &str = "Jain";
pub(crate) const QUEUE: &str = "queue mean / p99 / max (packets)";
pub(crate) const QUEUE_DELAY: &str = "queue mean / p95 / max (ms)";
pub(crate) const DROPS: &str = "drops";

/// Prefix of the cell [`GOODPUT`] for variants that fetch files.
pub(crate) const PER_FILE: &str = "seconds per file: ";
/// Prefix of the cell [`GOODPUT`] for variants that load web pages.
pub(crate) const PER_PAGE: &str = "seconds per page, mean and p95: ";
/// Prefix of the line with the kernels' releases.
const RELEASES: &str = "Kernel releases: ";

/// Suffix of the key of a row that was not updated.
const STALE: &str = ", stale";
/// Prefix of a check that fails, or of the reason why a case could not be run.
const FAILED: &str = "FAILED: ";
/// Number of a key's digits in the document.
const KEY_DIGITS: usize = 12;

/// A row of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// First digits of the key; empty if the row has no key.
    pub key: String,
    pub line: String,
}

impl Written {
    /// Whether the row has this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.key == short(key)
    }

    /// Whether all checks are met or are known gaps.
    pub fn passes(&self) -> bool {
        !self.line.contains(FAILED)
    }

    fn has_figures(&self) -> bool {
        !self.key.is_empty()
    }

    /// The cell in a column, if it is not empty.
    pub fn cell(&self, column: &str) -> Option<&str> {
        let place = COLUMNS.iter().position(|name| *name == column)?;
        let cell = *cells(&self.line)?.get(place)?;
        (!cell.is_empty()).then_some(cell)
    }
}

/// Reads the document that is to be updated; empty if there is none yet.
///
/// # Errors
/// It cannot be read, or its folder does not exist or is not writable.
pub(crate) fn before(path: &Path) -> Result<String> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    require_writable(folder.unwrap_or(Path::new(".")), "--results FILE")?;
    match fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|e| Error::io(path.display().to_string(), &e)),
    }
}

/// Generates the document with these rows. Rows that were not judged are copied from the
/// previous document.
pub(crate) fn document(rows: &[Row], before: &str) -> String {
    // rows that are copied keep the release of their kernel
    let kernels = rows.iter().map(|row| &row.case.kernel);
    let mut releases: BTreeMap<&str, &str> = kernels
        .filter_map(|kernel| Some((kernel.as_str(), release(before, kernel)?)))
        .collect();
    let before = read(before);
    let mut lines = Vec::new();
    for Row { case, state } in rows {
        match state {
            State::Judged(judged) => {
                releases.insert(case.kernel.as_str(), judged.release.as_str());
                lines.push(line(case, judged));
            }
            State::Failed { reason } => {
                // a kernel that cannot be fetched must not erase published figures
                lines.push(match before.get(case) {
                    Some(written) if written.has_figures() => stale(written),
                    _ => row_without_figures(case, &format!("{FAILED}{reason}")),
                })
            }
            State::Written { .. } => {
                lines.extend(before.get(case).map(|written| written.line.clone()));
            }
            State::Unchecked { key } => lines.push(match before.get(case) {
                Some(written) if written.has_key(key) => written.line.clone(),
                Some(written) => stale(written),
                None => row_without_figures(case, "not run"),
            }),
        }
    }
    let kernels = releases.iter();
    let kernels: Vec<String> = kernels.map(|(s, r)| format!("{s} is {r}")).collect();
    let kernels = match &kernels[..] {
        [] => String::new(),
        some => format!("{RELEASES}{}.\n\n", some.join(", ")),
    };
    let rule = vec!["---"; COLUMNS.len()].join("|");
    let head = row(&COLUMNS.map(str::to_owned));
    format!("{HEAD}{kernels}{head}\n|{rule}|\n{}\n", lines.join("\n"))
}

/// Reads the rows of a document, by case.
pub(crate) fn read(document: &str) -> BTreeMap<Case, Written> {
    rows(document).collect()
}

/// The rows of a document in their order.
pub(crate) fn rows(document: &str) -> impl Iterator<Item = (Case, Written)> + '_ {
    let rows = document.lines().filter_map(|line| {
        let [experiment, variant, kernel, .., key] = cells(line)?[..] else {
            return None;
        };
        let case = Case {
            experiment: experiment.to_owned(),
            variant: variant.to_owned(),
            kernel: kernel.to_owned(),
        };
        let written = Written {
            key: key.to_owned(),
            line: line.to_owned(),
        };
        Some((case, written))
    });
    rows.skip(1) // without the head
}

/// The release of a kernel, such as `6.18.15+deb13-cloud-amd64` of `6.18`.
pub(crate) fn release<'a>(document: &'a str, kernel: &str) -> Option<&'a str> {
    let mut lines = document.lines();
    let releases = lines.find_map(|line| line.strip_prefix(RELEASES)?.strip_suffix('.'))?;
    let mut each = releases.split(", ");
    each.find_map(|one| one.strip_prefix(kernel)?.strip_prefix(" is "))
}

/// The cells of a line, if it has all columns.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<&str> = inner.split(" | ").collect();
    (cells.len() == COLUMNS.len()).then_some(cells)
}

/// The row of a case.
pub(crate) fn line(case: &Case, judged: &Judged) -> String {
    let v = &judged.result;
    let unless = |blank: bool, text: String| if blank { String::new() } else { text };
    row(&[
        case.experiment.clone(),
        case.variant.clone(),
        case.kernel.clone(),
        format!("{:.3}", v.link_utilisation),
        match (v.transfers.is_empty(), v.pages.is_some()) {
            (_, true) => format!("{PER_PAGE}{}", pages(v)),
            (false, _) => format!("{PER_FILE}{}", transfers(v)),
            (true, false) => goodputs(v),
        },
        unless(v.kinds.len() < 2, shares(v)),
        format!("{:.4}", v.jain),
        queue(v),
        unless(!judged.varies, queue_delay(v)),
        v.drops.to_string(),
        checks(v),
        short(&judged.key).to_owned(),
    ])
}

/// The digits of a key that the document contains.
pub(crate) fn short(key: &str) -> &str {
    key.get(..KEY_DIGITS).unwrap_or(key)
}

/// The row of a case without figures.
fn row_without_figures(case: &Case, why: &str) -> String {
    let mut cells = [const { String::new() }; COLUMNS.len()];
    cells[0].clone_from(&case.experiment);
    cells[1].clone_from(&case.variant);
    cells[2].clone_from(&case.kernel);
    cells[COLUMNS.len() - 2] = why.to_owned();
    row(&cells)
}

fn stale(written: &Written) -> String {
    if !written.has_figures() || written.key.ends_with(STALE) {
        return written.line.clone();
    }
    let end = format!(" {} |", written.key);
    let start = written.line.strip_suffix(&end).unwrap_or(&written.line);
    format!("{start} {}{STALE} |", written.key)
}

fn row(cells: &[String; COLUMNS.len()]) -> String {
    let clean = |cell: &String| cell.replace('\n', " ").replace('|', "\\|");
    let cells: Vec<String> = cells.iter().map(clean).collect();
    format!("| {} |", cells.join(" | "))
}

fn checks(result: &VariantResult) -> String {
    let remarks = result.checks.iter().filter(|c| c.verdict != Verdict::Ok);
    let remarks: Vec<String> = remarks.map(remark).collect();
    match (&remarks[..], &result.checks[..]) {
        ([], []) => String::new(),
        ([], _) => "ok".into(),
        (some, _) => some.join("; "),
    }
}

/// The remark on a check whose verdict is not `Ok`.
fn remark(check: &CheckResult) -> String {
    let CheckResult { name, measured, .. } = check;
    let failed = if check.ok { "" } else { FAILED };
    match check.note() {
        Some(note) => format!("{failed}{note}: {name}, measured {measured}"),
        None => format!("{failed}{name}, measured {measured}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(variant: &str) -> Case {
        Case {
            experiment: "sharing".into(),
            variant: variant.into(),
            kernel: "6.18".into(),
        }
    }

    fn judged(utilisation: f64, gap: Option<&str>) -> State {
        let gap = gap.map(String::from);
        let met = gap.is_none();
        let check = CheckResult::new("jain >= 1".into(), 1.0, 0.5, met, gap);
        State::Judged(Box::new(Judged {
            release: "6.18.5".into(),
            key: "0123456789abcdef".into(),
            kept: true,
            varies: false,
            result: VariantResult {
                link_utilisation: utilisation,
                checks: vec![check],
                ..VariantResult::default()
            },
        }))
    }

    /// A case that was not run, whose key is another one than that of [`judged`].
    fn unchecked() -> State {
        State::Unchecked {
            key: "f".repeat(16),
        }
    }

    fn rows(states: [(&str, State); 3]) -> Vec<Row> {
        let row = |(variant, state)| Row {
            case: case(variant),
            state,
        };
        states.map(row).to_vec()
    }

    #[test]
    fn written_document_can_be_read() {
        let failed = State::Failed {
            reason: "no\nkernel".into(),
        };
        let all = rows([
            ("a", judged(0.5, None)),
            ("b", judged(0.75, Some("x | y"))),
            ("c", failed),
        ]);
        let text = document(&all, "");
        assert!(
            text.contains("\nKernel releases: 6.18 is 6.18.5.\n"),
            "{text}"
        );
        let read = read(&text);
        let cases: Vec<&str> = read.keys().map(|case| case.variant.as_str()).collect();
        assert_eq!(cases, ["a", "b", "c"]);
        let read: Vec<&Written> = read.values().collect();
        let keys: Vec<&str> = read.iter().map(|w| w.key.as_str()).collect();
        assert_eq!(keys, ["0123456789ab", "0123456789ab", ""]);
        assert!(read[0].line.contains("| 0.500 |") && read[0].line.contains("| ok |"));
        let gap = "| known gap: x \\| y: jain >= 1, measured 0.5 |";
        assert!(read[1].line.contains(gap), "{}", read[1].line);
        assert!(
            read[2].line.contains("| FAILED: no kernel |  |"),
            "{}",
            read[2].line
        );
    }

    #[test]
    fn row_that_was_not_updated_is_marked_stale() {
        let first = document(
            &rows([
                ("a", judged(0.5, None)),
                ("b", judged(0.5, None)),
                ("c", unchecked()),
            ]),
            "",
        );
        let written = || State::Written {
            release: "6.18.5".into(),
        };
        let same = rows([("a", written()), ("b", written()), ("c", unchecked())]);
        assert_eq!(document(&same, &first), first);
        let again = rows([
            ("a", unchecked()),
            ("b", judged(0.75, None)),
            ("c", unchecked()),
        ]);
        let second = document(&again, &first);
        let keys: Vec<String> = read(&second).into_values().map(|w| w.key).collect();
        assert_eq!(keys, ["0123456789ab, stale", "0123456789ab", ""]);
        assert!(second.contains("| not run |"), "{second}");
        // it is marked only once
        assert_eq!(document(&again, &second), second);
    }

    #[test]
    fn row_of_a_skipped_case_is_not_stale_if_its_key_is_the_same() {
        let first = document(
            &rows(["a", "b", "c"].map(|variant| (variant, judged(0.5, None)))),
            "",
        );
        let same = || State::Unchecked {
            key: "0123456789abcdef".into(),
        };
        let skipped = rows([("a", same()), ("b", same()), ("c", unchecked())]);
        let keys: Vec<String> = read(&document(&skipped, &first))
            .into_values()
            .map(|w| w.key)
            .collect();
        assert_eq!(
            keys,
            ["0123456789ab", "0123456789ab", "0123456789ab, stale"]
        );
    }

    #[test]
    fn row_with_a_known_gap_that_has_closed_does_not_pass() {
        let closed = CheckResult::new("jain >= 1".into(), 1.0, 1.0, true, Some("x".into()));
        assert!(!closed.ok);
        let mut state = judged(0.5, None);
        if let State::Judged(judged) = &mut state {
            judged.result.checks = vec![closed];
        }
        let text = document(
            &rows([
                ("a", judged(0.5, None)),
                ("b", judged(0.5, Some("x"))),
                ("c", state),
            ]),
            "",
        );
        let passes: Vec<bool> = read(&text).values().map(Written::passes).collect();
        assert_eq!(passes, [true, true, false], "{text}");
    }

    #[test]
    fn failed_case_keeps_its_earlier_figures() {
        let failed = || State::Failed {
            reason: "no network".into(),
        };
        let first = rows([("a", judged(0.5, None)), ("b", failed()), ("c", failed())]);
        let first = document(&first, "");
        let again = rows([("a", failed()), ("b", failed()), ("c", judged(0.5, None))]);
        let second = document(&again, &first);
        let keys: Vec<String> = read(&second).into_values().map(|w| w.key).collect();
        assert_eq!(keys, ["0123456789ab, stale", "", "0123456789ab"]);
        assert_eq!(second.matches("no network").count(), 1, "{second}");
    }

    #[test]
    fn release_of_a_kernel_that_cannot_be_fetched_is_kept() {
        let failed = || State::Failed {
            reason: "no network".into(),
        };
        let first = rows([("a", judged(0.5, None)), ("b", failed()), ("c", failed())]);
        let again = rows([("a", failed()), ("b", failed()), ("c", failed())]);
        let second = document(&again, &document(&first, ""));
        assert_eq!(release(&second, "6.18"), Some("6.18.5"));
    }
}
