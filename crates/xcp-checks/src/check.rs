// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a check has found.

use serde::{Deserialize, Serialize};

/// One thing that must hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// What was seen.
    pub seen: String,
}
