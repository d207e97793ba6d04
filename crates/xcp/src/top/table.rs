// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tables whose rows can be sorted, filtered and scrolled, and whose columns depend on
//! the width of the terminal.

use std::cmp::Ordering;

/// Minimum width of the terminal at which all columns are shown.
const WIDE: u16 = 120;
/// Space between two columns.
const GAP: u16 = 1;

/// A column of a table with rows of type T.
pub struct Column<T: 'static> {
    pub head: &'static str,
    /// The minimum width.
    pub width: u16,
    /// Its weight in the distribution of spare width; 0 if the width is fixed.
    pub grows: u16,
    /// It is shown only on wide terminals.
    pub wide: bool,
    /// It is right-aligned.
    pub number: bool,
    /// Formats a cell of this width.
    pub text: fn(&T, usize) -> String,
    /// The sort key: numbers sort in descending order, text in ascending order.
    pub key: Option<fn(&T) -> Key>,
}

impl<T> Column<T> {
    fn fits(&self, width: u16) -> bool {
        !self.wide || width >= WIDE
    }
}

/// A sort key.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Key {
    Number(f64),
    Text(String),
}

impl Key {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => b.total_cmp(a),
            _ => self.partial_cmp(other).unwrap_or(Ordering::Equal),
        }
    }
}

/// Rows with filter, order and scroll position.
pub struct Table<T: 'static> {
    pub title: &'static str,
    pub columns: &'static [Column<T>],
    pub rows: Vec<T>,
    /// The rows that pass the filter, in order.
    shown: Vec<usize>,
    /// Index of the column that the rows are sorted by.
    pub sorted_by: usize,
    pub reversed: bool,
    pub filter: String,
    /// Index of the first row on the screen.
    pub first: usize,
    /// Returns the text that the filter searches.
    searched: fn(&T) -> String,
}

impl<T> Table<T> {
    pub fn new(
        title: &'static str,
        columns: &'static [Column<T>],
        sorted_by: &str,
        searched: fn(&T) -> String,
    ) -> Self {
        let is_first = |c: &Column<T>| c.head == sorted_by;
        Self {
            title,
            columns,
            rows: Vec::new(),
            shown: Vec::new(),
            sorted_by: columns.iter().position(is_first).unwrap_or(0),
            reversed: false,
            filter: String::new(),
            first: 0,
            searched,
        }
    }

    /// Filters and sorts the rows again, after rows, filter or order have changed.
    pub fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let passes =
            |row: &T| wanted.is_empty() || (self.searched)(row).to_lowercase().contains(&wanted);
        let key = self.columns[self.sorted_by].key;
        let mut keyed: Vec<(Option<Key>, usize)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| passes(row))
            .map(|(i, row)| (key.map(|key| key(row)), i))
            .collect();
        keyed.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) if self.reversed => b.order(a),
            (Some(a), Some(b)) => a.order(b),
            _ => Ordering::Equal,
        });
        self.shown = keyed.into_iter().map(|(_, i)| i).collect();
        self.first = self.first.min(self.shown.len().saturating_sub(1));
    }

    /// The number of rows that pass the filter.
    pub fn count(&self) -> usize {
        self.shown.len()
    }

    /// The rows to show on a screen with `rows` rows.
    pub fn page(&self, rows: usize) -> impl Iterator<Item = &T> {
        let page = self.shown.iter().skip(self.first).take(rows);
        page.filter_map(|i| self.rows.get(*i))
    }

    /// Sorts by the next sortable column that a terminal of this width shows.
    pub fn sort_by_next(&mut self, width: u16) {
        let all = (1..=self.columns.len()).map(|n| (self.sorted_by + n) % self.columns.len());
        let is_able = |c: &Column<T>| c.key.is_some() && c.fits(width);
        let mut able = all.filter(|i| is_able(&self.columns[*i]));
        self.sorted_by = able.next().unwrap_or(self.sorted_by);
        self.arrange();
    }

    pub fn reverse(&mut self) {
        self.reversed = !self.reversed;
        self.arrange();
    }

    /// Scrolls down by `rows` rows, or up if negative.
    pub fn scroll(&mut self, rows: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(rows).min(last);
    }

    /// The columns that a terminal of this width shows, and their widths.
    pub fn layout(&self, width: u16) -> Vec<(&'static Column<T>, u16)> {
        let columns = self.columns.iter().filter(|c| c.fits(width));
        let columns: Vec<&'static Column<T>> = columns.collect();
        let taken: u16 = columns.iter().map(|c| c.width + GAP).sum();
        let parts: u16 = columns.iter().map(|c| c.grows).sum();
        let left = (width + GAP).saturating_sub(taken);
        let width = |c: &Column<T>| c.width + (left * c.grows).checked_div(parts).unwrap_or(0);
        columns.into_iter().map(|c| (c, width(c))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(&'static str, f64);

    const COLUMNS: &[Column<Row>] = &[
        Column {
            head: "NAME",
            width: 4,
            grows: 1,
            wide: false,
            number: false,
            text: |row, _| row.0.into(),
            key: Some(|row| Key::Text(row.0.into())),
        },
        Column {
            head: "PLOT",
            width: 4,
            grows: 1,
            wide: true,
            number: false,
            text: |_, _| String::new(),
            key: None,
        },
        Column {
            head: "SIZE",
            width: 5,
            grows: 0,
            wide: false,
            number: true,
            text: |row, _| row.1.to_string(),
            key: Some(|row| Key::Number(row.1)),
        },
    ];

    fn table() -> Table<Row> {
        let mut table = Table::new("rows", COLUMNS, "SIZE", |row| row.0.into());
        table.rows = vec![Row("b", 2.0), Row("a", 1.0), Row("c", 3.0)];
        table.arrange();
        table
    }

    fn names(table: &Table<Row>, rows: usize) -> String {
        table.page(rows).map(|row| row.0).collect()
    }

    #[test]
    fn rows_are_sorted_by_each_column_and_reversed() {
        let mut table = table();
        assert_eq!(names(&table, 9), "cba", "by the first number, descending");
        table.sort_by_next(80);
        assert_eq!(names(&table, 9), "abc", "by name, ascending");
        table.reverse();
        assert_eq!(names(&table, 9), "cba");
        table.sort_by_next(80);
        assert_eq!(names(&table, 9), "abc", "a column without a key is skipped");
    }

    #[test]
    fn rows_are_filtered_and_scrolled() {
        let mut table = table();
        table.scroll(2);
        assert_eq!(names(&table, 1), "a");
        table.scroll(9);
        assert_eq!(names(&table, 9), "a", "the last row stays");
        table.filter = "C".into();
        table.arrange();
        assert_eq!((table.count(), names(&table, 9).as_str()), (1, "c"));
        table.filter = "x".into();
        table.arrange();
        table.scroll(1);
        assert_eq!(names(&table, 9), "");
    }

    #[test]
    fn columns_fill_the_width() {
        let widths = |width| -> Vec<u16> { table().layout(width).iter().map(|c| c.1).collect() };
        assert_eq!(widths(80), [74, 5]);
        assert_eq!(widths(200), [96, 96, 5], "wide terminals show more columns");
        assert_eq!(widths(3), [4, 5], "columns have their minimum width");
    }
}
