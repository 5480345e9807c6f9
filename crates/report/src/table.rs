//! Text tables. A column is as wide as its widest cell.

use std::io;

use crate::format;

/// Maximum width of a table in characters, unless the last column already has its minimum width.
pub(super) const COLUMNS: usize = 100;
/// Minimum width of the last column, in characters. The last column gets the width that the others leave.
const LEAST: usize = 12;
const GAP: &str = "  ";

/// A column of a table.
pub(super) struct Column {
    head: &'static str,
    right: bool,
    cells: Vec<String>,
}

impl Column {
    /// Returns a column of text, aligned at the left.
    pub(super) fn text(head: &'static str, cells: impl IntoIterator<Item = String>) -> Self {
        Self { head, right: false, cells: cells.into_iter().collect() }
    }

    /// Returns a column of numbers, aligned at the right.
    pub(super) fn numbers(head: &'static str, cells: impl IntoIterator<Item = String>) -> Self {
        Self { head, right: true, cells: cells.into_iter().collect() }
    }

    pub(super) const fn head(&self) -> &'static str {
        self.head
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.chars().count()).chain([self.head.len()]).max().unwrap_or(0)
    }
}

/// Writes the table. Cells of the last column are cut at the maximum width of a table.
pub(super) fn write(columns: &[Column], out: &mut dyn io::Write) -> io::Result<()> {
    lines(columns, COLUMNS).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Returns the lines of the table. Cells of the last column are cut at `width`.
pub(super) fn lines(columns: &[Column], width: usize) -> Vec<String> {
    let Some((last, others)) = columns.split_last() else { return Vec::new() };
    let mut widths: Vec<_> = others.iter().map(Column::width).collect();
    let taken = total_width(others) + GAP.len();
    widths.push(last.width().min(width.saturating_sub(taken).max(LEAST)));
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let head = line(columns, &widths, columns.iter().map(|column| column.head));
    let row = |row: usize| {
        let cells = columns.iter().map(|column| column.cells.get(row).map_or("", String::as_str));
        line(columns, &widths, cells)
    };
    std::iter::once(head).chain((0..rows).map(row)).collect()
}

/// Returns the width of columns, each with the gap before it.
pub(super) fn total_width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + GAP.len()).sum()
}

fn line<'cell>(columns: &[Column], widths: &[usize], cells: impl Iterator<Item = &'cell str>) -> String {
    let mut line = String::new();
    for ((column, &width), cell) in columns.iter().zip(widths).zip(cells) {
        let cell = format::shortened(cell, width);
        line.push_str(GAP);
        line.push_str(&if column.right { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(columns: &[Column]) -> String {
        let mut bytes = Vec::new();
        write(columns, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn cells<const N: usize>(cells: [&str; N]) -> [String; N] {
        cells.map(str::to_owned)
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let table = [
            Column::numbers("PID", cells(["7", "4711"])),
            Column::text("COMMAND", cells(["größe", "sh"])),
            Column::text("USER", cells(["", "root"])),
        ];
        assert_eq!(written(&table), "   PID  COMMAND  USER\n     7  größe\n  4711  sh       root\n");
    }

    #[test]
    fn the_last_column_is_cut_at_the_line_end() {
        let table = |first: usize| {
            [Column::text("A", ["a".repeat(first)]), Column::text("B", ["b".repeat(200)])].map(|column| column)
        };
        let lines = written(&table(60));
        assert_eq!(lines.lines().last().unwrap().chars().count(), COLUMNS);
        assert!(lines.ends_with("b…\n"), "{lines}");
        let narrow = written(&table(98));
        assert!(narrow.ends_with(&format!("a  {}…\n", "b".repeat(LEAST - 1))), "{narrow}");
    }
}
