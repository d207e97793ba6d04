// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The Markdown files at the root of the repository and in docs/: links, commands and
//! options in them exist, and docs/SUMMARY.md lists all pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use xcp_cli::cli::Cli;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root).unwrap()
}

/// Returns all Markdown files of the root, of traces/ and below docs/, with their text.
fn pages() -> BTreeMap<PathBuf, String> {
    let docs = root().join("docs");
    let mut pages = BTreeMap::new();
    let mut folders = vec![root(), root().join("traces")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.starts_with(&docs) && path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.insert(path.clone(), fs::read_to_string(path).unwrap());
            }
        }
    }
    pages
}

/// Returns the text without code: neither blocks nor words in backquotes.
fn prose(text: &str) -> String {
    let blocks: String = text.split("```").step_by(2).collect();
    blocks.split('`').step_by(2).collect()
}

/// Returns the anchors of a page as code hosts and mdBook derive them from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside: String = text.split("```").step_by(2).collect();
    let headings = outside.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            kept.collect()
        })
        .collect()
}

/// Returns the targets of the links in a page.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://"))
        .map(str::to_owned)
        .collect()
}

/// Returns the code blocks in this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_an_anchor_that_exist() {
    let pages = pages();
    let mut broken = Vec::new();
    let mut count = 0;
    for (page, text) in &pages {
        for link in links(text) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => Ok(page.clone()),
                file => fs::canonicalize(page.parent().unwrap().join(file)),
            };
            let exists = target.is_ok_and(|target| {
                anchor.is_empty()
                    || pages
                        .get(&target)
                        .is_some_and(|t| anchors(t).contains(anchor))
            });
            if !exists {
                let page = page.strip_prefix(root()).unwrap();
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(count >= 50, "only {count} links found");
}

#[test]
fn summary_lists_every_page() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary)
        .iter()
        .filter_map(|link| fs::canonicalize(docs.join(link)).ok())
        .collect();
    let missing: Vec<_> = pages()
        .into_keys()
        .filter(|page| !listed.contains(page) && !page.ends_with("SUMMARY.md"))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn commands_in_documents_parse() {
    let mut count = 0;
    for (page, text) in pages() {
        let lines = blocks(&text, "sh").into_iter().flat_map(str::lines);
        let commands = lines
            .filter_map(|line| line.split('#').next())
            .flat_map(|line| line.split([';', '|', '&']));
        for command in commands {
            let command = command.trim();
            let command = command.strip_prefix("sudo ").unwrap_or(command);
            let command = match command.strip_prefix("nsenter ") {
                Some(rest) => rest.split_once(' ').map_or("", |(_, command)| command),
                None => command,
            };
            if !command.starts_with("xcp ") {
                continue;
            }
            count += 1;
            let words = command.split_whitespace();
            let words = words.take_while(|word| !word.contains('>')); // redirections
            if let Err(e) = Cli::try_parse_from(words) {
                panic!("{}: {command}: {e}", page.display());
            }
        }
    }
    assert!(count >= 50, "only {count} commands found");
}

fn long_options(command: &clap::Command) -> Vec<String> {
    let own = command.get_opts().filter_map(|o| o.get_long());
    own.map(str::to_owned)
        .chain(command.get_subcommands().flat_map(long_options))
        .collect()
}

/// An option is a word in backquotes that begins with `--`.
#[test]
fn options_in_conformance_document_exist() {
    let options = long_options(&Cli::command());
    let page = root().join("docs/reference/conformance.md");
    let document = fs::read_to_string(page).unwrap();
    let quoted = document.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.strip_prefix("--"))
        .collect();
    for name in &named {
        assert!(options.iter().any(|o| o == name), "--{name}");
    }
    assert!(named.len() >= 10, "{named:?}");
}
