// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A case, one variant of an experiment on one kernel, and what is known of it.

use serde::Serialize;

use crate::result::{CheckResult, VariantResult, Verdict};
use crate::{Error, Result};

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Case {
    pub experiment: String,
    pub variant: String,
    /// A series, such as 6.18.
    pub kernel: String,
}

/// One case, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    #[serde(flatten)]
    pub state: State,
}

/// What is known of a case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// Its figures are here.
    Judged(Box<Judged>),
    /// It could not be run.
    Failed { reason: String },
    /// It is not kept, but the document has the row that it would give.
    Written {
        /// Of the kernel.
        release: String,
    },
    /// It is neither kept nor quick, and only quick ones were asked for.
    Unchecked,
}

/// The figures of a case, with its checks.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Release of the kernel.
    pub release: String,
    /// Names the row: SHA-256 of all that can change it.
    pub key: String,
    /// Not run this time.
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
    pub(crate) fn failed(e: &Error) -> Self {
        Self::Failed {
            reason: e.to_string(),
        }
    }

    pub(crate) fn ok(&self) -> bool {
        match self {
            Self::Judged(judged) => judged.result.checks.iter().all(|c| c.ok),
            Self::Failed { .. } => false,
            Self::Written { .. } | Self::Unchecked => true,
        }
    }
}

impl From<Result<Judged>> for State {
    fn from(outcome: Result<Judged>) -> Self {
        outcome.map_or_else(|e| Self::failed(&e), |j| Self::Judged(Box::new(j)))
    }
}

impl Row {
    /// Whether nothing is wrong with it, as far as is known.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.state.ok()
    }

    /// The checks that are not simply met.
    pub fn remarks(&self) -> impl Iterator<Item = &CheckResult> {
        let checks = match &self.state {
            State::Judged(judged) => &judged.result.checks[..],
            State::Failed { .. } | State::Written { .. } | State::Unchecked => &[],
        };
        checks.iter().filter(|c| c.verdict != Verdict::Ok)
    }
}
