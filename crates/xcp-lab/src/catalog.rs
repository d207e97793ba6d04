// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The built-in experiments, by name.

use std::fs;
use std::path::Path;

use crate::experiment::Experiment;
use crate::link_trace;
use crate::{Error, Result};

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
    let text = fs::read_to_string(Path::new(name)).map_err(|e| Error::io(name, &e))?;
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    Experiment::parse_with(name, &text, &|file| link_trace::read(&folder.join(file)))
}

/// All experiments: first those of the papers, by paper, then the others by name.
pub fn all() -> impl Iterator<Item = Result<Experiment>> {
    EXPERIMENTS.iter().map(|(name, text)| parse(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_experiments_validate() {
        for (name, text) in EXPERIMENTS {
            let experiment = parse(name, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(experiment.name, *name);
        }
        let order = |paper: &str| {
            EXPERIMENTS
                .iter()
                .position(|(name, _)| name.starts_with(paper))
        };
        assert!(order("thesis").is_some() && order("thesis") < order("zh"));
        assert!(order("zh") < order("isi") && order("isi") < order("sharing"));
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
