// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Results that `xcp lab` keeps: they equal those of a new run byte for byte, and
//! never make a run fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Ran, XCP};
use crate::place::{two_second_run, Lab};

const ALL_KEPT: &str = "xcp: 2 of 2 variants cached (--fresh runs them again)\n";

fn two_variants() -> String {
    two_second_run() + "[[variant]]\nname = \"cubic\"\ncontrol = \"cubic\"\n"
}

/// An experiment with CUBIC only: loading the programs of XCP takes a while.
fn plain(variants: &str) -> String {
    let cubic = |name| format!("[[variant]]\nname = \"{name}\"\ncontrol = \"cubic\"\n");
    let brief = two_second_run();
    let (head, _) = brief.split_once("[[variant]]").unwrap();
    let variants: String = variants.split(' ').map(cubic).collect();
    head.to_owned() + &variants
}

/// A lab that keeps results in its own folder.
struct CachedLab {
    lab: Lab,
}

impl CachedLab {
    fn new() -> Self {
        Self { lab: Lab::new() }
    }

    fn folder(&self) -> PathBuf {
        self.lab.path("kept")
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.lab.command(args);
        Ran::of(command.env("XCP_CACHE_DIR", self.folder()))
    }

    /// Runs `xcp lab cache`.
    fn kept(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(XCP);
        command.args(["lab", "cache"]).args(args);
        Ran::of(command.env("XCP_CACHE_DIR", self.folder()))
    }

    fn entries(&self) -> Vec<PathBuf> {
        files(&self.folder())
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Each file of a run's report with its content.
fn report(lab: &Lab) -> Vec<(PathBuf, Vec<u8>)> {
    let all = files(&lab.path("out")).into_iter();
    all.map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn booted(ran: &Ran) -> bool {
    ran.err.contains("booting Linux")
}

#[test]
fn kept_results_equal_those_of_a_run_byte_for_byte() {
    let cached_lab = CachedLab::new();
    let lab = &cached_lab.lab;
    let file = lab.file("x.toml", &two_variants());
    let args = [&file, "--json", "--pcap", "r-d"];
    let with = |more| [&args[..], &[more]].concat();

    let first = cached_lab.run(&args);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(booted(&first) && !first.err.contains("cached"), "{first:?}");
    let first_report = report(lab);
    assert!(first_report.len() >= 5, "CSV, pcap and HTML");
    assert_eq!(cached_lab.entries().len(), 2);

    let second = cached_lab.run(&args);
    let said = format!("xcp: cached\ncubic: cached\n{ALL_KEPT}");
    assert_eq!((second.code, second.err), (Some(0), said));
    assert!(second.out == first.out, "{}\n{}", second.out, first.out);
    assert!(report(lab) == first_report);

    let fresh = cached_lab.run(&with("--fresh"));
    assert!(booted(&fresh) && !fresh.err.contains("cached"), "{fresh:?}");
    assert!(fresh.out == first.out, "{}\n{}", fresh.out, first.out);
    assert!(report(lab) == first_report);
    assert_eq!(cached_lab.entries().len(), 2);

    // a variant with a damaged entry runs again, the other one is kept
    let damaged = &cached_lab.entries()[0];
    let mut bytes = fs::read(damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(damaged, bytes).unwrap();
    let repaired = cached_lab.run(&args);
    assert!(booted(&repaired), "{repaired:?}");
    assert!(
        repaired.err.contains("1 of 2 variants cached"),
        "{repaired:?}"
    );
    assert!(repaired.out == first.out, "{}\n{}", repaired.out, first.out);
    assert!(report(lab) == first_report);

    let list = cached_lab.kept(&["--json"]).ok().json();
    assert_eq!(list["folder"], cached_lab.folder().display().to_string());
    let entries = list["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{list}");
    for entry in entries {
        assert_eq!(
            (&entry["experiment"], &entry["seed"]),
            (&"short".into(), &1.into())
        );
        assert!(entry["kernel"].as_str().unwrap().starts_with("6.18"));
    }
    assert!(cached_lab.kept(&[]).ok().out.contains("\n2 results in "));

    let cleared = cached_lab.kept(&["--clear"]).ok().out;
    assert!(cleared.starts_with("removed 2 results, "), "{cleared}");
    assert_eq!(cached_lab.entries(), Vec::<PathBuf>::new());
    let none = cached_lab.kept(&["--json"]).ok().json();
    assert_eq!(none["total_bytes"], 0, "{none}");
}

/// Changed checks and a changed description appear in the report.
#[test]
fn changed_checks_and_texts_need_no_new_run() {
    let lab = Lab::new();
    let check = |max| {
        let check = "[[check]]\nvariant = \"plain\"\nmetric = \"link_utilisation\"";
        format!("{}\n{check}\nmax = {max}\n", plain("plain"))
    };
    let first = lab.run(&[&lab.file("x.toml", &check("1.5"))]);
    assert_eq!(first.code, Some(0), "{first:?}");
    let stricter = check("0.1").replace("two flows", "what changed");
    let second = lab.run(&[&lab.file("x.toml", &stricter)]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(!booted(&second), "{second:?}");
    let failed = "FAILED  plain  link_utilisation <= 0.1";
    assert!(second.out.contains(failed), "{second:?}");
    assert!(lab.report("report.html").contains("what changed"));
}

#[test]
fn a_run_continues_if_results_cannot_be_kept() {
    let cached_lab = CachedLab::new();
    // a file instead of the folder
    cached_lab.lab.file("kept", "");
    let ran = cached_lab.run(&[&cached_lab.lab.file("x.toml", &plain("plain"))]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.err.matches("results are not cached").count(),
        1,
        "{ran:?}"
    );
    fs::remove_file(cached_lab.folder()).unwrap();

    // no space for either variant
    let file = cached_lab.lab.file("x.toml", &plain("plain again"));
    let mut command = cached_lab.lab.command(&[&file]);
    command.env("XCP_CACHE_DIR", cached_lab.folder());
    let ran = Ran::of(command.env("XCP_CACHE_MB", "0"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.err.matches("results are not cached").count(),
        1,
        "{ran:?}"
    );
    assert_eq!(cached_lab.entries(), Vec::<PathBuf>::new());
}

#[test]
fn a_size_limit_that_is_not_a_number_is_an_error() {
    let mut command = Command::new(XCP);
    command.args(["lab", "cache"]).env("XCP_CACHE_MB", "2 GB");
    Ran::of(&mut command).failed(
        1,
        "xcp: XCP_CACHE_MB=2 GB: not a whole number\n  \
         help: give megabytes, such as XCP_CACHE_MB=2000\n",
    );
}
