// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The result of a check.

use serde::{Deserialize, Serialize};

/// A checked property and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// The observed values.
    pub seen: String,
}
