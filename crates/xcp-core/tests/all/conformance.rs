// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! docs/reference/conformance.md must name only files and symbols that exist. In backquotes,
//!
//! - a word with `/` that ends in one of EXTENSIONS is a path: the repository must contain it
//! - a C name with a `_`, or C names joined by dots, is a symbol: it must occur as a whole
//!   word in a file below SOURCES
//!
//! Links and options are tested in crates/xcp-cli/tests/all/documents.rs.

use std::fs;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 6] = [".c", ".h", ".md", ".rs", ".lua", ".toml"];
const SOURCES: [&str; 3] = ["core", "bpf", "crates"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/reference/conformance.md"))
        .expect("docs/reference/conformance.md can be read")
}

/// Returns the words in backquotes.
fn quoted(document: &str) -> Vec<&str> {
    let spans = document.split('`').skip(1).step_by(2);
    spans.flat_map(str::split_whitespace).collect()
}

fn is_path(word: &str) -> bool {
    word.contains('/') && EXTENSIONS.iter().any(|e| word.ends_with(e))
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_symbol(word: &str) -> bool {
    let is_name =
        |part: &str| part.chars().all(in_name) && part.starts_with(|c: char| !c.is_ascii_digit());
    word.contains(['_', '.']) && word.split('.').all(is_name)
}

/// Returns the text of all sources below `folder`, except this file.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path
            .extension()
            .is_some_and(|e| e == "c" || e == "h" || e == "rs")
            && !path.ends_with(file!())
        {
            text += &fs::read_to_string(&path).expect("UTF-8");
        }
    }
    text
}

/// Returns whether `text` contains `symbol`, and not only as part of a longer name.
fn has(text: &str, symbol: &str) -> bool {
    text.match_indices(symbol).any(|(at, _)| {
        !text[..at].ends_with(in_name) && !text[at + symbol.len()..].starts_with(in_name)
    })
}

#[test]
fn every_path_in_the_document_exists() {
    let document = document();
    let paths: Vec<_> = quoted(&document)
        .into_iter()
        .filter(|w| is_path(w))
        .collect();
    for path in &paths {
        assert!(root().join(path).is_file(), "{path}");
    }
    assert!(paths.len() >= 10, "{paths:?}");
}

#[test]
fn every_symbol_in_the_document_is_in_the_sources() {
    let document = document();
    let text: String = SOURCES.map(|s| sources(&root().join(s))).concat();
    let symbols: Vec<_> = quoted(&document)
        .into_iter()
        .filter(|w| is_symbol(w))
        .collect();
    for symbol in &symbols {
        assert!(has(&text, symbol), "{symbol}");
    }
    assert!(symbols.len() >= 6, "{symbols:?}");
}
