// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Formats text in columns.

/// Pads the columns of all rows to the same width, two spaces apart. Columns from
/// `first_number` on are right-aligned.
pub fn columns(rows: &[Vec<String>], first_number: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, &width))| {
                if column >= first_number {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Prints keys and values, indented.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(key, value)| vec![format!("  {key}"), value.clone()])
        .collect();
    columns(&rows, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "1"], ["long", "1000"]].map(|r| r.map(String::from).to_vec());
        assert_eq!(columns(&rows, 1), "a        1\nlong  1000\n");
        assert_eq!(columns(&rows, 2), "a     1\nlong  1000\n");
        assert_eq!(columns(&[], 0), "");
    }

    #[test]
    fn pairs_are_indented() {
        let text = pairs(&[("queue", "0 B".into()), ("average RTT", "1 ms".into())]);
        assert_eq!(text, "  queue        0 B\n  average RTT  1 ms\n");
    }
}
