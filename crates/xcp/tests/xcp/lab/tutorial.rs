// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The tutorials in docs/tutorial/: the commands run in order, and print what the pages
//! show.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::boot::xcp_package;
use super::debian::{self, write, Debian, INIT};
use crate::command::{path_with_xcp, Ran};
use xcp_testbed::skipped;

const NETWORK: &str = include_str!("../../../../../docs/tutorial/first-router.md");
const EXPERIMENT: &str = include_str!("../../../../../docs/tutorial/first-experiment.md");
/// What the first tutorial installs, with kmod, mount and procps, which Debian's installer has.
const PACKAGES: &str = "iproute2,iperf3,iputils-ping,kmod,libelf1,mount,procps";
/// Printed after each step.
const SEPARATOR: &str = "---- end of step ----";

/// Starts the tutorial in the virtual machine.
const START: &str = "\
export DEBIAN_FRONTEND=noninteractive
cd /root
bash /tutorial.sh 2>&1 | cat >/dev/ttyS0
echo done >/dev/ttyS0
";

/// A step of a tutorial: commands, and the output that the page shows.
struct Step<'a> {
    commands: &'a str,
    shown: Option<&'a str>,
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(commands) = block.strip_prefix("sh\n") {
            let shown = None;
            steps.push(Step { commands, shown });
        } else if let Some(shown) = block.strip_prefix("text\n") {
            let step = steps.last_mut().expect("commands before an output");
            step.shown = Some(shown);
        }
    }
    steps
}

/// Returns a script with the commands of all steps.
fn script(steps: &[Step]) -> String {
    steps
        .iter()
        .map(|step| format!("{}echo '{SEPARATOR}'\n", step.commands))
        .collect()
}

/// Splits a word into a number and its unit.
fn number(word: &str) -> Option<(f64, &str)> {
    let is_unit = |c: char| c.is_ascii_alphabetic() || c == '%';
    let unit = word.trim_start_matches(|c| !is_unit(c));
    let digits = &word[..word.len() - unit.len()];
    digits.parse().ok().map(|number| (number, unit))
}

/// Whether two words agree: numbers within a quarter, or within 1, because they depend
/// on the kernel's version; client ports may differ.
fn words_agree(shown: &str, printed: &str) -> bool {
    // the feedback of a link that is full: small, of either sign
    let is_signed = |word: &str| word.starts_with(['+', '-']) && word.len() > 1;
    if is_signed(shown) && is_signed(printed) {
        return true;
    }
    if let (Some((a, a_unit)), Some((b, b_unit))) = (number(shown), number(printed)) {
        return a_unit == b_unit && (a - b).abs() <= (a.abs() / 4.0).max(1.0);
    }
    let client = "10.0.1.1:";
    let field = "icmp_seq=";
    shown == printed
        || (shown.starts_with(client) && printed.starts_with(client))
        || match (shown.split_once('='), printed.split_once('=')) {
            (Some((a, x)), Some((b, y))) if a == b && !shown.starts_with(field) => {
                words_agree(x, y)
            }
            _ => false,
        }
}

fn lines_agree(shown: &str, printed: &str) -> bool {
    let shown: Vec<_> = shown.split_whitespace().collect();
    let printed: Vec<_> = printed.split_whitespace().collect();
    let pairs = || shown.iter().zip(&printed);
    shown.len() == printed.len() && pairs().all(|(s, p)| words_agree(s, p))
}

/// Whether an output is as shown, where a line `...` stands for any number of lines.
fn outputs_agree(shown: &[&str], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((&"...", rest)) => {
            (0..=printed.len()).any(|skipped| outputs_agree(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| lines_agree(line, first) && outputs_agree(rest, others)),
    }
}

fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).collect()
}

/// Asserts that each step has printed what the page shows.
fn compare(steps: &[Step], printed: &str) {
    let outputs: Vec<&str> = printed.split(SEPARATOR).collect();
    assert_eq!(
        outputs.len(),
        steps.len() + 1,
        "steps are missing: {printed}"
    );
    for (step, output) in steps.iter().zip(outputs) {
        let (commands, output) = (step.commands, lines(output));
        let agrees = step
            .shown
            .is_none_or(|shown| outputs_agree(&lines(shown), &output));
        let output = output.join("\n");
        assert!(
            agrees,
            "{commands}\nprinted another output than shown:\n{output}"
        );
    }
}

fn network_tutorial_works(suite: &'static str, version: &str) {
    let Some(package) = xcp_package() else {
        return skipped("tutorial", "cargo-deb cannot be installed");
    };
    let steps = steps(NETWORK);
    let root = Debian {
        suite,
        packages: PACKAGES,
        memory_mb: 2500,
    };
    let printed = debian::run("tutorial", version, &root, |root: &Path| {
        write(root, "init", &format!("{INIT}{START}"), 0o755);
        write(root, "tutorial.sh", &script(&steps), 0o644);
        let home = root.join("root");
        fs::create_dir_all(&home).unwrap();
        fs::copy(&package, home.join(package.file_name().unwrap())).unwrap();
    });
    if let Some(printed) = printed {
        compare(&steps, &printed);
    }
}

#[test]
fn network_tutorial_works_on_debian_12() {
    network_tutorial_works("bookworm", "6.12");
}

#[test]
fn network_tutorial_works_on_debian_13() {
    network_tutorial_works("trixie", "6.18");
}

#[test]
fn experiment_tutorial_works() {
    let steps = steps(EXPERIMENT);
    let folder = tempfile::tempdir().unwrap();
    let ran = Ran::of(
        Command::new("sh")
            .args(["-ec", &script(&steps)])
            .env("PATH", path_with_xcp())
            .current_dir(&folder),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    compare(&steps, &ran.out);
}
