// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A case, which is one variant of an experiment on one kernel, and its state.

use serde::Serialize;

use crate::result::{CheckResult, VariantResult, Verdict};
use crate::{Error, Result};

/// One variant of an experiment on one kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    pub experiment: String,
    pub variant: String,
    /// A kernel series, such as 6.18.
    pub kernel: String,
}

/// A case and its state.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    #[serde(flatten)]
    pub state: State,
}

/// The state of a case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It was run, now or earlier, and its figures were checked.
    Judged(Box<Judged>),
    /// It could not be run.
    Failed { reason: String },
    /// It has no result from an earlier run, but its row in the document is up to date.
    Written {
        /// Release of the kernel.
        release: String,
    },
    /// It was not run and has no cached result.
    Unchecked {
        /// Key of the row that it would have.
        #[serde(skip)]
        key: String,
    },
}

/// The figures of a case, with its checks.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Release of the kernel.
    pub release: String,
    /// Key of the row: SHA-256 of everything that can change it.
    pub key: String,
    /// The result is from an earlier run.
    pub kept: bool,
    /// The rate of the bottleneck changes.
    #[serde(skip)]
    pub varies: bool,
    pub result: VariantResult,
}

impl Case {
    pub fn title(&self) -> String {
        let Self {
            experiment,
            variant,
            kernel,
        } = self;
        format!("{experiment}, {variant}, Linux {kernel}")
    }
}

impl State {
    /// The state after an error: its reason and remedy, in one line.
    pub(crate) fn failed(e: &Error) -> Self {
        Self::Failed {
            reason: format!("{e}; help: {}", e.remedy).replace('\n', "; "),
        }
    }

    pub(crate) fn ok(&self) -> bool {
        match self {
            Self::Judged(judged) => judged.result.checks.iter().all(|c| c.ok),
            Self::Failed { .. } => false,
            Self::Written { .. } | Self::Unchecked { .. } => true,
        }
    }
}

impl From<Result<Judged>> for State {
    fn from(outcome: Result<Judged>) -> Self {
        outcome.map_or_else(|e| Self::failed(&e), |j| Self::Judged(Box::new(j)))
    }
}

impl Row {
    /// Whether the case has not failed.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.state.ok()
    }

    /// The checks whose verdict is not `Ok`.
    pub fn remarks(&self) -> impl Iterator<Item = &CheckResult> {
        let checks = match &self.state {
            State::Judged(judged) => &judged.result.checks[..],
            State::Failed { .. } | State::Written { .. } | State::Unchecked { .. } => &[],
        };
        checks.iter().filter(|c| c.verdict != Verdict::Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_state_has_the_remedy_and_one_line() {
        let error = Error::new("machine", "ended:\nno memory", "free some");
        let State::Failed { reason } = State::failed(&error) else {
            panic!("it has failed");
        };
        assert_eq!(reason, "machine: ended:; no memory; help: free some");
    }
}
