// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab cache`: lists or removes the results of earlier runs.

use std::process::ExitCode;

use xcp_lab::cache::{self, Entry, Listing};

use super::count;
use xcp_cli::cli::LabCache;
use xcp_cli::failure::Failure;
use xcp_cli::out::{Out, Style};
use xcp_cli::{table, units};

pub fn act(asked: &LabCache, out: &Out) -> Result<ExitCode, Failure> {
    if asked.clear {
        let cleared = cache::clear()?;
        out.print(&cleared, |_| {
            let (count, bytes) = (
                count(cleared.entries, "result"),
                units::bytes(cleared.bytes),
            );
            format!("removed {count}, {bytes}\n")
        })?;
    } else {
        let list = cache::list()?;
        out.print(&list, |style| describe(&list, style))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a table of the results, then their total.
fn describe(list: &Listing, style: &Style) -> String {
    let total = format!(
        "{} in {}, {} of {}\n",
        count(list.entries.len(), "result"),
        list.folder.display(),
        units::bytes(list.total_bytes),
        units::bytes(list.limit_bytes)
    );
    if list.entries.is_empty() {
        return total;
    }
    let head = ["experiment", "variant", "kernel", "seed", "size", "used"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(list.entries.iter().map(row));
    let table = table::columns(&rows, 3);
    let (head, body) = table.split_once('\n').unwrap_or_default();
    format!("{}\n{body}\n{total}", style.bold(head))
}

fn row(entry: &Entry) -> Vec<String> {
    let what = match &entry.label {
        Some(l) => [
            l.experiment.clone(),
            l.variant.clone(),
            l.kernel.clone(),
            l.seed.to_string(),
        ],
        None => ["damaged", "", "", ""].map(str::to_owned),
    };
    let mut row = what.to_vec();
    row.extend([units::bytes(entry.bytes), ago(entry.age_s)]);
    row
}

/// Formats an age, such as `3 h ago`.
fn ago(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..86_400 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{count} {unit} ago")
}

#[cfg(test)]
mod tests {
    use super::*;
    use xcp_lab::cache::Label;

    #[test]
    fn list_has_a_row_per_result_and_the_total() {
        let entry = |variant: &str, age_s| Entry {
            label: Some(Label {
                experiment: "sharing".into(),
                variant: variant.into(),
                seed: 7,
                kernel: "6.18.5".into(),
            }),
            bytes: 71_000,
            age_s,
        };
        let damaged = Entry {
            label: None,
            bytes: 7,
            age_s: 0,
        };
        let mut list = Listing {
            folder: "/kept".into(),
            limit_bytes: 2_000_000_000,
            total_bytes: 142_007,
            entries: vec![entry("two-two", 59), entry("one-nine", 90_000), damaged],
        };
        assert_eq!(
            describe(&list, &Style(false)),
            "experiment  variant   kernel  seed     size      used\n\
             sharing     two-two   6.18.5     7  71.0 kB  59 s ago\n\
             sharing     one-nine  6.18.5     7  71.0 kB   1 d ago\n\
             damaged                                 7 B   0 s ago\n\
             \n\
             3 results in /kept, 142.0 kB of 2.0 GB\n"
        );
        list.entries.clear();
        list.total_bytes = 0;
        assert_eq!(
            describe(&list, &Style(false)),
            "0 results in /kept, 0 B of 2.0 GB\n"
        );
    }

    #[test]
    fn ages_have_one_unit() {
        let texts = [0, 60, 3599, 3600, 86_400].map(ago);
        let wanted = ["0 s ago", "1 min ago", "59 min ago", "1 h ago", "1 d ago"];
        assert_eq!(texts, wanted);
    }
}
