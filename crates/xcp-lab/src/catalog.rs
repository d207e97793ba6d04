// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The built-in experiments, by name.

use std::collections::BTreeSet;
use std::path::Path;

use crate::experiment::Experiment;
use crate::{file, link_trace, Error, Result};

// EXPERIMENTS and TRACES, which build.rs generates from the files in experiments/ and traces/
include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

fn parse(name: &str, text: &str) -> Result<Experiment> {
    Experiment::parse_with(
        name,
        text,
        &|file| match TRACES.iter().find(|(n, _)| *n == file) {
            Some((_, bytes)) => link_trace::text(file, bytes),
            None => Err(Error::new(file, "is not built in", "add it to traces/")),
        },
    )
}

/// Maximum size of an experiment's file.
const MAX_BYTES: u64 = 1 << 24;

/// Finds a built-in experiment by name, or reads one from a file.
pub fn find(name: &str) -> Result<Experiment> {
    if let Some((_, text)) = EXPERIMENTS.iter().find(|(n, _)| *n == name) {
        return parse(name, text);
    }
    if !name.ends_with(".toml") {
        return Err(Error::new(
            name,
            "no such experiment",
            "list them with `xcp lab list`, or give a .toml file",
        ));
    }
    let bytes = file::read(Path::new(name), MAX_BYTES)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::new(name, "is not text", "an experiment is a TOML file"))?;
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let experiment =
        Experiment::parse_with(name, &text, &|file| link_trace::read(&folder.join(file)))?;
    check_names(&experiment).map_err(|reason| Error::new(name, reason, "rename it"))?;
    Ok(experiment)
}

/// Checks that the experiment and its variants can be names of files, all different.
fn check_names(experiment: &Experiment) -> std::result::Result<(), String> {
    let mut files = BTreeSet::new();
    let variants = experiment.variants.iter().map(|variant| &variant.name);
    for name in [&experiment.name].into_iter().chain(variants.clone()) {
        let is_valid = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_valid {
            return Err(format!(
                "the name '{name}' must start with a letter or digit, and have only letters, \
                 digits, '-', '_' and '.'"
            ));
        }
    }
    for name in variants {
        // the files of a variant: NAME.csv and NAME-router.csv
        if !files.insert(name.clone()) || !files.insert(format!("{name}-router")) {
            return Err(format!(
                "the name of variant '{name}' is taken by another variant"
            ));
        }
    }
    Ok(())
}

/// All experiments: first those of the papers, by paper, then the others by name.
pub fn all() -> impl Iterator<Item = Result<Experiment>> {
    EXPERIMENTS.iter().map(|(name, text)| parse(name, text))
}

#[cfg(test)]
mod tests {
    use xcp_player::experiment::Variant;

    use super::*;

    #[test]
    fn built_in_experiments_validate() {
        for (name, text) in EXPERIMENTS {
            let experiment = parse(name, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(experiment.name, *name);
            assert_eq!(check_names(&experiment), Ok(()));
        }
        let order = |paper: &str| {
            EXPERIMENTS
                .iter()
                .position(|(name, _)| name.starts_with(paper))
        };
        assert!(order("thesis").is_some() && order("thesis") < order("zh"));
        assert!(order("zh") < order("isi") && order("isi") < order("sharing"));
    }

    #[test]
    fn names_that_are_no_file_names_or_used_twice_are_refused() {
        let experiment = |name: &str, variants: &[&str]| {
            let mut experiment = find("varying").unwrap();
            experiment.name = name.into();
            let variant = &experiment.variants[0];
            experiment.variants = variants
                .iter()
                .map(|name| Variant {
                    name: (*name).into(),
                    ..variant.clone()
                })
                .collect();
            check_names(&experiment)
        };
        experiment("a.b_c-1", &["xcp", "xcp-2"]).unwrap();
        for name in ["", ".", "../a", "a/b", "-a", "a b", "ä"] {
            assert!(experiment(name, &["xcp"]).is_err(), "{name}");
            assert!(experiment("a", &[name]).is_err(), "{name}");
        }
        for [first, second] in [["a", "a"], ["a", "a-router"], ["a-router", "a"]] {
            let error = experiment("e", &[first, second]).unwrap_err();
            assert!(error.contains("is taken"), "{error}");
        }
    }

    /// Runs and docs/results.md print the figure next to the text.
    #[test]
    fn known_gaps_state_the_cause_without_a_figure() {
        for experiment in all() {
            let experiment = experiment.expect("it is valid");
            for gap in experiment
                .checks
                .iter()
                .filter_map(|c| c.known_gap.as_ref())
            {
                let kernels = gap.matches("Linux 6.").count();
                let name = &experiment.name;
                let decimals = gap.split(|c: char| !c.is_ascii_digit() && c != '.');
                let decimals = decimals.filter(|w| w.len() > 1 && w.contains('.'));
                assert_eq!(decimals.count(), kernels, "{name}: {gap}");
                assert!(
                    !gap.starts_with(|c: char| c.is_ascii_digit()),
                    "{name}: {gap}"
                );
            }
        }
    }
}
