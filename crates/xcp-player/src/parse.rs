// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads experiments from TOML.

use crate::experiment::Experiment;
use crate::validate::validate;
use crate::{Error, Result};

impl Experiment {
    /// Parses the text of an experiment that names no other files; `file` is
    /// its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let none = |named: &str| Err(Error::new(named, "cannot be read here", "give its steps"));
        Self::parse_with(file, text, &none)
    }

    /// Parses the text of an experiment; `read` returns the text of each file
    /// that it names.
    pub fn parse_with(
        file: &str,
        text: &str,
        read: &dyn Fn(&str) -> Result<String>,
    ) -> Result<Self> {
        let mut experiment: Self = toml::from_str(text).map_err(|e| {
            let place = e.span().map_or(String::new(), |span| {
                let before = &text[..span.start.min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
                format!(":{line}:{column}")
            });
            Error::new(
                format!("{file}{place}"),
                e.message().to_owned(),
                "see the files in experiments/ for examples",
            )
        })?;
        for link in &mut experiment.links {
            link.read_files(read)?;
        }
        experiment.expand_counts();
        validate(&experiment, file)?;
        Ok(experiment)
    }
}
