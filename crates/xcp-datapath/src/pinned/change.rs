// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a command that adds something did.

use serde::Serialize;

/// What an `add` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Changed,
    Unchanged,
}
