// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Lists the files in experiments/ and traces/ for `catalog.rs`, so that new files are
//! built in automatically.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The prefixes of the papers' experiments, in the order of the results.
const PAPERS: [&str; 4] = ["thesis-", "zh-", "isi-", "xcpi-"];

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let experiments = files(&root.join("experiments"), "toml");
    let mut experiments: Vec<(String, PathBuf)> = experiments
        .into_iter()
        .map(|path| (name(&path.with_extension("")), path))
        .collect();
    experiments.sort_by_key(|(name, _)| {
        let paper = PAPERS.iter().position(|paper| name.starts_with(paper));
        (paper.unwrap_or(PAPERS.len()), name.clone())
    });
    let traces = files(&root.join("traces"), "gz");
    let traces = traces
        .into_iter()
        .map(|path| (format!("../traces/{}", name(&path)), path));

    let mut text = String::new();
    list(
        &mut text,
        "EXPERIMENTS: &[(&str, &str)]",
        "str",
        experiments,
    );
    list(&mut text, "TRACES: &[(&str, &[u8])]", "bytes", traces);
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("catalog.rs");
    fs::write(out, text).expect("cargo has made the folder");
}

/// The files of a folder with this extension, sorted by name.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    println!("cargo:rerun-if-changed={}", folder.display());
    let all = fs::read_dir(folder).expect("the folder is in the repository");
    let mut all: Vec<PathBuf> = all.flatten().map(|file| file.path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == extension));
    all.sort();
    all
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_str().expect("names are ASCII").to_owned()
}

/// Writes a constant with the names and contents of files.
fn list(
    text: &mut String,
    declaration: &str,
    kind: &str,
    files: impl IntoIterator<Item = (String, PathBuf)>,
) {
    let _ = writeln!(text, "const {declaration} = &[");
    for (name, path) in files {
        let _ = writeln!(text, "    ({name:?}, include_{kind}!({path:?})),");
    }
    let _ = writeln!(text, "];");
}
