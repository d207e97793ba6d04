// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The result of commands that add or change something.

use serde::Serialize;

/// The effect of a command: something was added, changed or left unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Changed,
    Unchanged,
}
