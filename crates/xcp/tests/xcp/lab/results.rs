// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Verifies docs/results.md: randomly drawn rows, run again, must give the published
//! values.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use xcp_testbed::skipped;

use crate::command::{interrupt, Ran, XCP};
use crate::place::Lab;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Every row is from another build.
const NOTHING_TO_COMPARE: &str = "no row was run again";

fn verify(args: &[&str]) -> Ran {
    let mut command = Command::new(XCP);
    Ran::of(command.args(["lab", "verify", "--json"]).args(args))
}

/// The hash of the tested commit, which its author cannot choose. It seeds the draw.
fn commit() -> Option<String> {
    let out = Command::new("git")
        .args(["-C", ROOT, "rev-parse", "HEAD"])
        .output();
    let out = out.ok().filter(|out| out.status.success())?;
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn randomly_drawn_rows_are_reproduced() {
    let test = "rows of docs/results.md";
    let Some(draw) = commit() else {
        return skipped(test, "this is not a git checkout");
    };
    let document = Path::new(ROOT).join("docs/results.md");
    let ran = verify(&[&document.display().to_string(), "--draw", draw.trim()]);
    if ran.err.contains(NOTHING_TO_COMPARE) {
        return skipped(test, "all rows are from another build: run ./x experiments");
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result = ran.json();
    let count = |what: &str| result[what].as_array().unwrap().len();
    if count("proofs") < 3 {
        let stale = count("stale");
        skipped(
            test,
            &format!("{stale} rows are from another build: run ./x experiments"),
        );
    }
}

#[test]
fn interrupt_keeps_the_rows_of_the_document() {
    let lab = Lab::new();
    let text = fs::read_to_string(Path::new(ROOT).join("docs/results.md")).unwrap();
    let file = lab.file("results.md", &text);
    let mut child = Command::new(XCP)
        .args(["lab", "all", "--fresh", "--results", &file])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().ends_with(" cases to run")));
    interrupt(&child);
    let said: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("FAILED")), "{said:?}");
    let after = fs::read_to_string(&file).unwrap();
    // the rows of another build are marked
    assert_eq!(
        after.replace(", stale |", " |"),
        text.replace(", stale |", " |")
    );
}

#[test]
fn document_without_rows_cannot_be_verified() {
    let lab = Lab::new();
    let ran = verify(&[&lab.file("results.md", "no table\n")]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("has no row of results"), "{ran:?}");
}

#[test]
fn verification_fails_if_no_row_can_be_compared() {
    let document = fs::read_to_string(Path::new(ROOT).join("docs/results.md")).unwrap();
    let head = document.lines().find(|l| l.starts_with("| experiment"));
    let row = document
        .lines()
        .find(|l| l.starts_with("| isi-startup | cubic | "));
    let (cells, _key) = row.unwrap().rsplit_once(" | ").unwrap();
    let lab = Lab::new();
    let text = format!("{}\n{cells} | 0123456789ab |\n", head.unwrap());
    let ran = verify(&[&lab.file("results.md", &text)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains(NOTHING_TO_COMPARE), "{ran:?}");
}

/// A published value that was improved by hand is found.
#[test]
fn an_altered_row_is_detected() {
    let document = fs::read_to_string(Path::new(ROOT).join("docs/results.md")).unwrap();
    // 5 s of one flow
    let short = "| isi-startup | cubic | 6.18 | ";
    let Some(row) = document.lines().find(|line| line.starts_with(short)) else {
        panic!("{short}");
    };
    let head = document.lines().find(|l| l.starts_with("| experiment"));
    let better = row.replacen("| 0.", "| 1.", 1);
    let lab = Lab::new();
    let text = format!("{}\n{better}\n", head.unwrap());
    let ran = verify(&[&lab.file("results.md", &text)]);
    if ran.err.contains(NOTHING_TO_COMPARE) {
        return skipped("altered row", "the row is from another build");
    }
    let result = ran.json();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(result["proofs"][0]["ok"], false, "{result}");
    assert_eq!(result["proofs"][0]["found"], row, "{result}");
}
