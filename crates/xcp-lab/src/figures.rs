// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Updates figures that documents quote from the results document. A marker, which is an
//! HTML comment, names a row and its figures; the text after it, up to `<!-- -->`, is
//! generated:
//!
//! ```text
//! a queue of <!-- figure varying/xcp queue_mean -->6.6<!-- --> packets
//! <!-- figure policer/xcp/6.12 link_utilisation; drops -->0.900; 353<!-- -->
//! ```
//! The default kernel is 6.18. A table of all variants of an experiment is between two
//! lines:
//!
//! ```text
//! <!-- table zh-validation -->
//! <!-- -->
//! ```
//! Markers in code blocks are ignored.

use std::fs;
use std::path::{Path, PathBuf};

use xcp_cli::table;

use crate::case::Case;
use crate::kernel::DEFAULT_SERIES;
use crate::results::{self, Written};
use crate::{Error, Result};

const FIGURE: &str = "<!-- figure ";
const TABLE: &str = "<!-- table ";
/// End of a marker; generated text follows.
const CLOSE: &str = " -->";
/// End of generated text.
const END: &str = "<!-- -->";
const FENCE: &str = "```";

/// Separator between the figures of one marker.
const SEPARATOR: &str = "; ";

/// The columns of a table; empty ones are omitted.
const TABLE_COLUMNS: [&str; 7] = [
    results::UTILISATION,
    results::GOODPUT,
    results::SHARE,
    results::JAIN,
    results::QUEUE,
    results::QUEUE_DELAY,
    results::DROPS,
];

/// Updates the figures in the other documents of the folder of the results document, and in
/// README.md of the folder above. Returns the changed documents. Nothing is written if one
/// of them has an error.
pub(crate) fn fill(results: &Path, text: &str) -> Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for path in documents(results)? {
        let name = path.display().to_string();
        // other users' files may be here, too
        let Ok(before) = fs::read_to_string(&path) else {
            continue;
        };
        if !before.contains(FIGURE) && !before.contains(TABLE) {
            continue;
        }
        let after = filled(&name, &before, text)?;
        if after != before {
            changed.push((path, after));
        }
    }
    for (path, text) in &changed {
        fs::write(path, text).map_err(|e| Error::io(path.display().to_string(), &e))?;
    }
    Ok(changed.into_iter().map(|(path, _)| path).collect())
}

/// The documents that may quote the results document, sorted: those in its folder and the
/// folders below, and README.md above.
fn documents(results: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io(results.display().to_string(), &e);
    let results = results.canonicalize().map_err(io)?;
    let Some(folder) = results.parent() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // folders that cannot be read are skipped, and links to folders are not followed
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_markdown = path.extension().is_some_and(|e| e == "md");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if is_markdown && path != results {
                found.push(path);
            }
        }
    }
    let readme = folder.parent().map(|above| above.join("README.md"));
    found.extend(readme.filter(|path| path.is_file()));
    found.sort();
    Ok(found)
}

/// Returns a document with its figures updated from the results document.
fn filled(name: &str, document: &str, results: &str) -> Result<String> {
    let mut text = String::new();
    let mut in_code = false;
    let mut lines = document.split_inclusive('\n').zip(1..);
    while let Some((line, number)) = lines.next() {
        let wrong = |reason: String| {
            let remedy = "docs/reference/experiment-file.md has the markers' syntax";
            Error::new(format!("{name}:{number}"), reason, remedy)
        };
        if line.trim_start().starts_with(FENCE) {
            in_code = !in_code;
        }
        if in_code {
            text.push_str(line);
        } else if let Some(marker) = line.strip_prefix(TABLE) {
            let asked = marker.trim_end().strip_suffix(CLOSE);
            let asked = asked.ok_or_else(|| wrong("a marker is not closed".into()))?;
            let table = variants(asked, results).map_err(wrong)?;
            // stop at the next marker: this one's end is missing
            let mut old = lines.by_ref().map(|(line, _)| line.trim_end());
            let is_end =
                |line: &&str| *line == END || line.starts_with(TABLE) || line.contains(FIGURE);
            if old.find(is_end) != Some(END) {
                return Err(wrong(format!("no line {END} after the marker")));
            }
            text += &format!("{line}{FENCE}\n{table}{FENCE}\n{END}\n");
        } else {
            text += &quoted(line, results).map_err(wrong)?;
        }
    }
    Ok(text)
}

/// Returns a line of prose with its figures updated, or an error.
fn quoted(line: &str, results: &str) -> std::result::Result<String, String> {
    if line.trim_start().starts_with(FIGURE) {
        return Err("a marker begins the line, which Markdown would take as HTML".into());
    }
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, marker)) = rest.split_once(FIGURE) {
        no_end(before)?;
        let (asked, old) = marker.split_once(CLOSE).ok_or("a marker is not closed")?;
        let (_, after) = old
            .split_once(END)
            .ok_or_else(|| format!("no {END} after the marker {asked} in the same line"))?;
        let new = figures(asked, results)?;
        text += &format!("{before}{FIGURE}{asked}{CLOSE}{new}{END}");
        rest = after;
    }
    no_end(rest)?;
    Ok(text + rest)
}

/// Fails on an end without a start, which is a sign of a misspelt marker.
fn no_end(text: &str) -> std::result::Result<(), String> {
    match text.contains(END) {
        true => Err(format!("{END} without a marker before it")),
        false => Ok(()),
    }
}

/// Returns the figures that a marker requests: `EXPERIMENT/VARIANT[/KERNEL] FIGURE; ...`.
fn figures(asked: &str, results: &str) -> std::result::Result<String, String> {
    let (row, names) = asked
        .split_once(' ')
        .ok_or_else(|| format!("the marker {asked} names no figure"))?;
    let parts: Vec<&str> = row.split('/').collect();
    let (experiment, variant, kernel) = match parts[..] {
        [experiment, variant] => (experiment, variant, DEFAULT_SERIES),
        [experiment, variant, kernel] => (experiment, variant, kernel),
        _ => {
            return Err(format!(
                "{row} is not EXPERIMENT/VARIANT or EXPERIMENT/VARIANT/KERNEL"
            ))
        }
    };
    let is_asked = |case: &Case| {
        case.experiment == experiment && case.variant == variant && case.kernel == kernel
    };
    let (case, written) = results::rows(results)
        .find(|(case, _)| is_asked(case))
        .ok_or_else(|| format!("no row {experiment}/{variant}/{kernel} in the results"))?;
    let each = names.split(SEPARATOR).map(|name| {
        let found = figure(&written, name);
        found.ok_or_else(|| format!("the row {} has no figure {name}", case.title()))
    });
    let each: Vec<&str> = each.collect::<std::result::Result<_, _>>()?;
    Ok(each.join(SEPARATOR))
}

/// A figure of a row, by the name that checks use.
fn figure<'a>(row: &'a Written, name: &str) -> Option<&'a str> {
    let queue = |turn| row.cell(results::QUEUE)?.split(" / ").nth(turn);
    let delay = |turn| row.cell(results::QUEUE_DELAY)?.split(" / ").nth(turn);
    match name {
        "link_utilisation" => row.cell(results::UTILISATION),
        "jain" => row.cell(results::JAIN),
        "drops" => row.cell(results::DROPS),
        "queue_packets" => row.cell(results::QUEUE),
        "queue_mean" => queue(0),
        "queue_p99" => queue(1),
        "queue_max" => queue(2),
        "queue_delay_ms" => row.cell(results::QUEUE_DELAY),
        "queue_delay_mean_ms" => delay(0),
        "queue_delay_p95_ms" => delay(1),
        "queue_delay_max_ms" => delay(2),
        "goodput_mbps" => goodputs(row),
        "page_mean_s" => page_time(row, 0),
        "page_p95_s" => page_time(row, 1),
        _ => part(row, name),
    }
}

/// A figure of one of several flows, kinds of flows or file sizes.
fn part<'a>(row: &'a Written, name: &str) -> Option<&'a str> {
    let (figure, of) = name.split_once('.')?;
    match figure {
        "goodput_mbps" => {
            let flows = goodputs(row).filter(|each| !each.contains("flows"))?;
            let turn: usize = of.parse().ok()?;
            flows.split(' ').nth(turn.checked_sub(1)?)
        }
        "share" => {
            let mut kinds = row.cell(results::SHARE)?.split(", ");
            kinds.find_map(|kind| kind.strip_prefix(of)?.strip_prefix(' '))
        }
        "transfer_mean_s" => {
            let sizes = row.cell(results::GOODPUT)?;
            let mut sizes = sizes.strip_prefix(results::PER_FILE)?.split(", ");
            let from = format!(" from {} KB", of.strip_suffix("KB")?);
            sizes.find_map(|size| size.strip_suffix(&from))
        }
        _ => None,
    }
}

/// The goodputs of a row that does not fetch files or load pages.
fn goodputs(row: &Written) -> Option<&str> {
    let cell = row.cell(results::GOODPUT)?;
    let others = [results::PER_FILE, results::PER_PAGE];
    (!others.iter().any(|prefix| cell.starts_with(prefix))).then_some(cell)
}

/// The mean time to load a page, or its 95th percentile.
fn page_time(row: &Written, turn: usize) -> Option<&str> {
    let times = row
        .cell(results::GOODPUT)?
        .strip_prefix(results::PER_PAGE)?;
    times.split(", ").nth(turn)
}

/// Returns the table that a marker requests by `EXPERIMENT[/KERNEL]`: the output of
/// `xcp lab run`, as far as the results contain it.
fn variants(asked: &str, results: &str) -> std::result::Result<String, String> {
    let (experiment, kernel) = asked.split_once('/').unwrap_or((asked, DEFAULT_SERIES));
    let is_asked = |case: &Case| case.experiment == experiment && case.kernel == kernel;
    let rows: Vec<(Case, Written)> = results::rows(results)
        .filter(|(case, _)| is_asked(case))
        .collect();
    if rows.is_empty() {
        return Err(format!("no row {experiment} on {kernel} in the results"));
    }
    let release = results::release(results, kernel)
        .ok_or_else(|| format!("the results do not contain the release of Linux {kernel}"))?;
    let columns = TABLE_COLUMNS.into_iter();
    let columns = columns.filter(|column| rows.iter().any(|(_, w)| w.cell(column).is_some()));
    let columns: Vec<&str> = columns.collect();
    let head = [""].iter().chain(&columns);
    let mut cells = vec![head.map(|&name| name.to_owned()).collect()];
    for (case, written) in &rows {
        let figures = columns.iter().map(|column| written.cell(column));
        let all = [Some(&*case.variant)].into_iter().chain(figures);
        cells.push(
            all.map(|cell| cell.unwrap_or_default().to_owned())
                .collect(),
        );
    }
    let table = table::columns(&cells, 1);
    Ok(format!("{experiment}, seed 1, Linux {release}\n\n{table}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const RESULTS: &str = "\
Kernel releases: 6.12 is 6.12.117+deb13, 6.18 is 6.18.15+deb13.

| experiment | variant | Linux | utilisation | goodput per flow (Mb/s) | share of goodput | Jain | \
queue mean / p99 / max (packets) | queue mean / p95 / max (ms) | drops | checks | key |
|---|---|---|---|---|---|---|---|---|---|---|---|
| a | xcp | 6.12 | 0.900 | 9.73 7.32 | cubic 0.429, xcp 0.571 | 0.9804 | 2.3 / 8 / 9 |  | 353 | ok | 4 |
| a | xcp | 6.18 | 0.909 | 9.15 8.08 | cubic 0.469, xcp 0.531 | 0.9961 | 2.2 / 7 / 8 |  | 3 | ok | f |
| a | cubic | 6.18 | 1.000 | 8.75 9.34 |  | 0.9989 | 22.3 / 70 / 80 |  | 89 |  | 6 |
| b | xcp | 6.18 | 0.921 | 2.59 to 2.60 (9 flows) |  | 1.0000 | 6.6 / 71 / 74 | 14 / 35 / 442 | 0 | ok | 2 |
| c | xcp | 6.18 | 0.646 | seconds per file: 0.23 from 10 KB, 0.41 from 30 KB |  | 0.0000 | 1.0 / 2 / 3 |  | 0 | ok | a |
| p | xcp | 6.18 | 0.9 | seconds per page, mean and p95: 1.30, 2.05 |  | 0.0000 | 1.0 / 2 / 3 |  | 0 | ok | a |
| d | xcp | 6.18 |  |  |  |  |  |  |  | FAILED: no kernel |  |
";

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn filled(document: &str) -> Result<String> {
        super::filled("a.md", document, RESULTS)
    }

    #[test]
    fn text_after_a_table_without_an_end_is_not_removed() {
        for next in [
            "<!-- table b -->\n",
            "the <!-- figure b/xcp jain -->1<!-- -->\n",
        ] {
            let document = format!("<!-- table a -->\nprose\n{next}<!-- -->\n");
            let error = filled(&document).unwrap_err();
            assert_eq!(error.reason, "no line <!-- --> after the marker");
            assert_eq!(error.thing, "a.md:1");
        }
    }

    #[test]
    fn quoted_figures_match_the_committed_results() {
        let results = root().join("docs/results.md");
        let text = fs::read_to_string(&results).expect("the results are there");
        let mut wrong = Vec::new();
        let mut markers = 0;
        for path in documents(&results).expect("the folder is there") {
            let name = path.display().to_string();
            let before = fs::read_to_string(&path).expect("it is readable");
            let after = super::filled(&name, &before, &text).unwrap_or_else(|e| panic!("{e}"));
            markers += before.matches(FIGURE).count() + before.matches(TABLE).count();
            for ((quoted, now), number) in before.lines().zip(after.lines()).zip(1..) {
                if quoted != now {
                    wrong.push(format!("{name}:{number}:\n  {quoted}\n  {now}"));
                }
            }
            if before.lines().count() != after.lines().count() {
                wrong.push(format!("{name}: a table has a different number of rows"));
            }
        }
        let remedy = "`xcp lab all --results docs/results.md` fills them in";
        assert!(wrong.is_empty(), "{remedy}:\n{}", wrong.join("\n"));
        assert!(markers >= 20, "{markers}");
    }

    #[test]
    fn figures_have_the_names_that_checks_use() {
        for (asked, expected) in [
            ("a/xcp link_utilisation; jain; drops", "0.909; 0.9961; 3"),
            ("a/xcp/6.12 drops", "353"),
            ("a/xcp queue_packets", "2.2 / 7 / 8"),
            ("a/xcp queue_mean; queue_p99; queue_max", "2.2; 7; 8"),
            ("a/xcp share.xcp; share.cubic", "0.531; 0.469"),
            ("a/xcp goodput_mbps; goodput_mbps.2", "9.15 8.08; 8.08"),
            ("b/xcp queue_delay_ms", "14 / 35 / 442"),
            (
                "b/xcp queue_delay_mean_ms; queue_delay_p95_ms; queue_delay_max_ms",
                "14; 35; 442",
            ),
            ("b/xcp goodput_mbps", "2.59 to 2.60 (9 flows)"),
            ("c/xcp transfer_mean_s.30KB", "0.41"),
            ("p/xcp page_mean_s; page_p95_s", "1.30; 2.05"),
        ] {
            assert_eq!(figures(asked, RESULTS), Ok(expected.to_owned()), "{asked}");
        }
    }

    #[test]
    fn text_between_marker_and_end_is_replaced() {
        let marked = "| x | <!-- figure a/xcp drops -->";
        let second = "<!-- --> and <!-- figure a/cubic jain -->";
        let old = format!("{marked}old{second}<!-- --> |\nno figure\n");
        let new = format!("{marked}3{second}0.9989<!-- --> |\nno figure\n");
        assert_eq!(filled(&old).expect("it is right"), new);
        assert_eq!(filled(&new).expect("it is right"), new);
    }

    #[test]
    fn markers_in_code_blocks_are_ignored() {
        let code = "```text\n<!-- figure x/y drops -->1<!-- -->\n```\n";
        assert_eq!(filled(code).expect("it is right"), code);
        let after = format!("{code}a <!-- figure x/y drops -->1<!-- -->\n");
        assert!(filled(&after).is_err());
    }

    #[test]
    fn table_has_all_variants_of_a_kernel() {
        let old = "before\n<!-- table a -->\n```\nold\n```\n<!-- -->\nafter\n";
        let new = "before
<!-- table a -->
```
a, seed 1, Linux 6.18.15+deb13

       utilisation  goodput per flow (Mb/s)        share of goodput    Jain  queue mean / p99 / max (packets)  drops
xcp          0.909                9.15 8.08  cubic 0.469, xcp 0.531  0.9961                       2.2 / 7 / 8      3
cubic        1.000                8.75 9.34                          0.9989                    22.3 / 70 / 80     89
```
<!-- -->
after
";
        assert_eq!(filled(old).expect("it is right"), new);
        assert_eq!(filled(new).expect("it is right"), new);
        let other = filled(&old.replace("table a", "table a/6.12")).expect("it is right");
        assert!(
            other.contains("a, seed 1, Linux 6.12.117+deb13\n"),
            "{other}"
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        let end = "<!-- -->";
        for (line, reason) in [
            (
                "x <!-- figure e/xcp drops -->1<!-- -->",
                "no row e/xcp/6.18",
            ),
            (
                "x <!-- figure a/xcp/7.2 drops -->1<!-- -->",
                "no row a/xcp/7.2",
            ),
            (
                "x <!-- figure a drops -->1<!-- -->",
                "a is not EXPERIMENT/VARIANT",
            ),
            ("x <!-- figure a/xcp -->1<!-- -->", "names no figure"),
            ("x <!-- figure a/xcp dops -->1<!-- -->", "no figure dops"),
            (
                "x <!-- figure a/cubic share.xcp -->1<!-- -->",
                "no figure share.xcp",
            ),
            (
                "x <!-- figure a/xcp goodput_mbps.0 -->1<!-- -->",
                "no figure goodput_mbps.0",
            ),
            (
                "x <!-- figure b/xcp goodput_mbps.1 -->1<!-- -->",
                "no figure goodput_mbps.1",
            ),
            ("x <!-- figure d/xcp drops -->1<!-- -->", "no figure drops"),
            ("x <!-- figure a/xcp drops", "not closed"),
            (
                "x <!-- figure a/xcp drops -->1",
                "no <!-- --> after the marker",
            ),
            (
                "x <!-- figures a/xcp drops -->1<!-- -->",
                "without a marker before it",
            ),
            ("<!-- figure a/xcp drops -->1<!-- -->", "begins the line"),
            ("<!-- table e -->\n<!-- -->", "no row e on 6.18"),
            ("<!-- table a -->\n", "no line <!-- -->"),
            (end, "without a marker before it"),
        ] {
            let e = filled(&format!("first\n{line}\n")).expect_err(line);
            assert_eq!(e.thing, "a.md:2", "{line}");
            assert!(e.reason.contains(reason), "{line}: {}", e.reason);
        }
    }

    #[test]
    fn documents_in_the_folder_and_readme_above_are_updated() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("docs/design")).expect("a folder");
        let text = "x <!-- figure a/xcp drops -->1<!-- -->\n";
        for name in [
            "README.md",
            "other.md",
            "docs/a.md",
            "docs/a.txt",
            "docs/design/c.md",
        ] {
            fs::write(at(name), text).expect("written");
        }
        fs::write(at("docs/plain.md"), "x <!-- --> y\n").expect("written");
        fs::write(at("docs/bytes.md"), [0xff, 0xfe]).expect("written");
        symlink(folder.path(), at("docs/link")).expect("a link");
        let results = at("docs/results.md");
        fs::write(&results, RESULTS).expect("written");
        let names = |changed: Vec<PathBuf>| -> Vec<String> {
            let names = changed.iter().filter_map(|path| path.file_name());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        let changed = fill(&results, RESULTS).expect("all are right");
        assert_eq!(names(changed), ["README.md", "a.md", "c.md"]);
        let read = |name: &str| fs::read_to_string(at(name)).expect("readable");
        assert_eq!(read("README.md"), text.replace(">1<", ">3<"));
        assert_eq!(read("docs/a.md"), text.replace(">1<", ">3<"));
        assert_eq!(
            (read("other.md"), read("docs/a.txt")),
            (text.into(), text.into())
        );
        assert_eq!(
            fill(&results, RESULTS).expect("all are right"),
            [] as [PathBuf; 0]
        );
        // after an error in one document, the others are not changed
        fs::write(at("docs/b.md"), text.replace("drops", "dops")).expect("written");
        fs::write(at("README.md"), text).expect("written");
        let e = fill(&results, RESULTS).expect_err("there is no such figure");
        assert!(e.thing.ends_with("docs/b.md:1"), "{e}");
        assert_eq!(read("README.md"), text);
    }
}
