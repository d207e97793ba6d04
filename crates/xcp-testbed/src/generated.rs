// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Generated files that are committed.

use std::path::Path;
use std::{env, fs};

/// Checks that a committed file of the repository has this text; with UPDATE=1 in the
/// environment, writes it instead.
///
/// # Panics
///
/// If the file is missing, has another text, or cannot be written.
pub fn assert_current(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file);
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, text).expect("the file can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{file} is out of date; run this test with UPDATE=1 to write it again"
    );
}
