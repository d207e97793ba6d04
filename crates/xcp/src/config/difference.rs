// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Differences between two tables of a configuration, key by key.

use serde::Serialize;
use toml::{Table, Value};

/// A key with different values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub key: String,
    /// None if the key is not set.
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Returns all keys that differ. A missing table has no keys.
pub fn between<T: Serialize>(before: Option<&T>, after: Option<&T>) -> Vec<Difference> {
    let table = |t: Option<&T>| t.and_then(|t| Table::try_from(t).ok()).unwrap_or_default();
    let (before, after) = (table(before), table(after));
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| Difference {
            key: key.clone(),
            before: before.get(key).cloned(),
            after: after.get(key).cloned(),
        })
        .collect()
}

impl Difference {
    /// Formats the difference as a line of text.
    pub fn line(&self) -> String {
        let shown = |v: &Option<Value>| v.as_ref().map(ToString::to_string);
        let key = &self.key;
        match (shown(&self.before), shown(&self.after)) {
            (None, Some(after)) => format!("{key} = {after}"),
            (Some(before), None) => format!("{key} = {before} -> not set"),
            (Some(before), Some(after)) => format!("{key} = {before} -> {after}"),
            (None, None) => key.clone(),
        }
    }
}
