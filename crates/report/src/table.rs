//! Text tables. A column is as wide as its widest cell. Numbers are never cut: a table without enough room leaves out
//! columns, or has longer lines.

use std::io;

use memtrace_model::{columns_of, padded, padded_left};

use crate::{Format, format};

/// Maximum width of a table in columns of a terminal, unless the columns with numbers take more.
pub(super) const COLUMNS: usize = 100;
/// Importance of a column that is never left out.
const ALWAYS: u8 = u8::MAX;
/// Minimum width of the last column, if it contains text. It gets the width that the other columns leave.
const LEAST: usize = 12;
/// Width to which names are shortened before columns are left out. The name of a thread with its ID has at most 25
/// characters.
const READABLE: usize = 25;
/// Minimum width of a column with names.
const SHORTEST: usize = 12;
const GAP: &str = "  ";

/// A column of a table.
pub(super) struct Column {
    head: &'static str,
    kind: Kind,
    cells: Vec<String>,
    importance: u8,
    least: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// Names, which the function shortens if there is not enough room.
    Names(fn(&str, usize) -> String),
    Numbers,
}

impl Column {
    /// Returns a column of text, aligned at the left.
    pub(super) fn text(head: &'static str, cells: impl IntoIterator<Item = String>) -> Self {
        Self::new(head, Kind::Text, cells)
    }

    /// Returns a column of names, aligned at the left. `shorten` returns a name in at most this number of columns.
    pub(super) fn names(
        head: &'static str,
        cells: impl IntoIterator<Item = String>,
        shorten: fn(&str, usize) -> String,
    ) -> Self {
        Self::new(head, Kind::Names(shorten), cells)
    }

    /// Returns a column of numbers, aligned at the right.
    pub(super) fn numbers(head: &'static str, cells: impl IntoIterator<Item = String>) -> Self {
        Self::new(head, Kind::Numbers, cells)
    }

    fn new(head: &'static str, kind: Kind, cells: impl IntoIterator<Item = String>) -> Self {
        Self { head, kind, cells: cells.into_iter().collect(), importance: ALWAYS, least: 0 }
    }

    /// Sets the importance: [`fit`] leaves out the columns with the lowest importance first.
    pub(super) fn with_importance(self, importance: u8) -> Self {
        Self { importance, ..self }
    }

    /// Sets the minimum width. It keeps columns from moving between intervals.
    pub(super) fn at_least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub(super) const fn head(&self) -> &'static str {
        self.head
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| columns_of(cell)).chain([self.head.len(), self.least]).max().unwrap_or(0)
    }

    /// Returns the minimum width if names are shortened to `name` columns of a terminal: [`READABLE`] or [`SHORTEST`].
    fn least_width(&self, is_last: bool, name: usize) -> usize {
        match self.kind {
            Kind::Names(_) => self.width().min(name.max(self.head.len())),
            Kind::Text if is_last => self.width().min(LEAST),
            Kind::Text | Kind::Numbers => self.width(),
        }
    }

    /// Returns a cell of exactly `width` columns, provided that `width` is not below the minimum width.
    fn cell(&self, text: &str, width: usize) -> String {
        match self.kind {
            Kind::Text => padded(&format::shortened(text, width), width),
            Kind::Names(shorten) => padded(&shorten(text, width), width),
            Kind::Numbers => padded_left(text, width),
        }
    }
}

/// Columns of a table that has a maximum width.
#[derive(Default)]
pub(super) struct Fit {
    pub(super) columns: Vec<Column>,
    /// Heads of the columns that are left out.
    pub(super) left_out: Vec<&'static str>,
}

/// Leaves out the least important columns until the others fit in `width`.
pub(super) fn fit(columns: Vec<Column>, width: usize) -> Fit {
    let mut order: Vec<usize> = (0..columns.len()).filter(|&index| columns[index].importance < ALWAYS).collect();
    order.sort_by_key(|&index| columns[index].importance);
    let needed = |index: usize| GAP.len() + columns[index].least_width(index + 1 == columns.len(), READABLE);
    let mut excess = (0..columns.len()).map(needed).sum::<usize>().saturating_sub(width);
    let mut is_left_out = vec![false; columns.len()];
    for index in order {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(needed(index));
        is_left_out[index] = true;
    }
    let mut fit = Fit::default();
    for (column, is_left_out) in columns.into_iter().zip(is_left_out) {
        if is_left_out {
            fit.left_out.push(column.head);
        } else {
            fit.columns.push(column);
        }
    }
    fit
}

impl Fit {
    /// Returns the lines of the table. If even the most important columns need more than `width`, the only line says
    /// so.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let needed = shortest(&self.columns).map(|shortest| GAP.len() + shortest).sum::<usize>();
        if needed > width {
            return vec![format!("too narrow: {needed} columns are needed, and there are {width}")];
        }
        self.wide_lines(width)
    }

    /// Returns the lines of the table. They are longer than `width` if even the most important columns need more.
    pub(super) fn wide_lines(&self, width: usize) -> Vec<String> {
        lines(&self.columns, width)
    }

    /// Returns the sentence about the columns that are left out; `None` if there are none. `complete`: a format with all
    /// numbers.
    pub(super) fn note_of_left_out(&self, complete: Format) -> Option<String> {
        (!self.left_out.is_empty()).then(|| note_of_left_out(&self.left_out.join(", "), complete))
    }
}

/// Returns the sentence about columns that a table leaves out. `heads`: their heads. `complete`: a format with all
/// numbers.
pub(super) fn note_of_left_out(heads: &str, complete: Format) -> String {
    format!("left out: {heads} (to see them: a wider terminal, or --format {})", complete.name())
}

/// Writes the table. Text in the last column is cut at the maximum width of a table.
pub(super) fn write(columns: &[Column], out: &mut dyn io::Write) -> io::Result<()> {
    lines(columns, COLUMNS).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Returns the lines of the table. Names, and text in the last column, are shortened so that the lines fit in `width`,
/// if that is possible.
fn lines(columns: &[Column], width: usize) -> Vec<String> {
    let widths = widths(columns, width);
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let row = |row: usize| {
        let cells = columns.iter().zip(&widths);
        let cell =
            |(column, &width): (&Column, &usize)| column.cell(column.cells.get(row).map_or("", String::as_str), width);
        line(cells.map(cell))
    };
    let head = |(column, &width): (&Column, &usize)| {
        let head = format::shortened(column.head, width);
        if matches!(column.kind, Kind::Numbers) { padded_left(&head, width) } else { padded(&head, width) }
    };
    let head = line(columns.iter().zip(&widths).map(head));
    std::iter::once(head).chain((0..rows).map(row)).collect()
}

/// Returns the width of each column in a table of at most `width` columns of a terminal, if that is possible. The
/// widest columns are narrowed first.
fn widths(columns: &[Column], width: usize) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(Column::width).collect();
    let shortest: Vec<_> = shortest(columns).collect();
    let mut excess = (widths.iter().sum::<usize>() + GAP.len() * columns.len()).saturating_sub(width);
    while excess > 0 {
        let mut narrowable: Vec<_> = (0..widths.len()).filter(|&index| widths[index] > shortest[index]).collect();
        narrowable.sort_by_key(|&index| widths[index]);
        let Some(widest) = narrowable.pop() else { break };
        let next = narrowable.last().map_or(0, |&next| widths[next]);
        let least = shortest[widest].max(next).min(widths[widest] - 1);
        let step = (widths[widest] - least).min(excess);
        widths[widest] -= step;
        excess -= step;
    }
    widths
}

/// Returns the minimum width of each column.
fn shortest(columns: &[Column]) -> impl Iterator<Item = usize> {
    columns.iter().enumerate().map(move |(index, column)| column.least_width(index + 1 == columns.len(), SHORTEST))
}

/// Returns the width of columns, each with the gap before it.
pub(super) fn total_width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + GAP.len()).sum()
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for cell in cells {
        line.push_str(GAP);
        line.push_str(&cell);
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{shortened, shortened_left};

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
    fn text_in_the_last_column_is_narrowed_before_columns_are_left_out() {
        let heads = |width| {
            let columns = vec![
                Column::numbers("PID", cells(["4711"])),
                Column::numbers("ALLOC/s", cells(["54.8"])).with_importance(2),
                Column::numbers("B/s", cells(["93.1K"])).with_importance(1),
                Column::text("CGROUP", cells(["redis-server.service"])),
            ];
            fit(columns, width).columns.iter().map(Column::head).collect::<Vec<_>>()
        };
        // The last column needs 12 characters of its 20.
        assert_eq!(heads(36), ["PID", "ALLOC/s", "B/s", "CGROUP"]);
        assert_eq!(heads(35), ["PID", "ALLOC/s", "CGROUP"]);
        assert_eq!(heads(28), ["PID", "CGROUP"]);
        assert_eq!(heads(0), ["PID", "CGROUP"]);
    }

    #[test]
    fn wide_characters_and_marks_keep_columns_aligned() {
        let table = [
            Column::text("COMMAND", cells(["数据库服务器", "gro\u{308}ße", "sh"])),
            Column::numbers("LIVE", cells(["1,234", "7", "100"])),
        ];
        let expected =
            "  COMMAND        LIVE\n  数据库服务器  1,234\n  gro\u{308}ße             7\n  sh              100\n";
        assert_eq!(written(&table), expected);
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

    #[test]
    fn numbers_in_the_last_column_are_not_cut() {
        let number = "1,234,567,890,123,456";
        let table = [Column::text("A", ["a".repeat(98)]), Column::numbers("B", cells([number]))];
        assert!(written(&table).ends_with(&format!("a  {number}\n")), "{}", written(&table));
    }

    /// Returns a table with two columns of names, and numbers of which the last one is the least important.
    fn table() -> Vec<Column> {
        vec![
            Column::names("PATH", cells(["/system.slice/a-service-with-a-long-name.service", "/b"]), shortened_left),
            Column::numbers("LIVE", cells(["1,234,567", "8"])),
            Column::numbers("ALLOC", cells(["123,456,789", "9"])).with_importance(2),
            Column::names("USER", cells(["someone", "root"]), shortened),
            Column::numbers("PEAK", cells(["1.573 s", "-"])).with_importance(1),
        ]
    }

    #[test]
    fn least_important_columns_are_left_out_first() {
        let left_out = |width| fit(table(), width).left_out;
        // Names of 25 and 7 columns, numbers of 9, 11 and 7, and five gaps.
        assert_eq!(left_out(69), [""; 0]);
        assert_eq!(left_out(68), ["PEAK"]);
        assert_eq!(left_out(60), ["PEAK"]);
        assert_eq!(left_out(59), ["ALLOC", "PEAK"]);
        assert_eq!(left_out(0), ["ALLOC", "PEAK"]);
        let note = "left out: ALLOC, PEAK (to see them: a wider terminal, or --format csv)";
        assert_eq!(note_of_left_out(&left_out(0).join(", "), Format::Csv), note);
    }

    #[test]
    fn names_are_shortened_and_numbers_are_not() {
        let expected = [
            "  PATH                         LIVE        ALLOC  USER        PEAK",
            "  …h-a-long-name.service  1,234,567  123,456,789  someone  1.573 s",
            "  /b                              8            9  root           -",
        ];
        assert_eq!(lines(&table(), 66), expected);
        let fitting = |width| fit(table(), width).lines(width);
        for width in 34..140 {
            let lines = fitting(width);
            assert!(lines.iter().all(|line| columns_of(line) <= width), "{width}: {lines:?}");
            assert!(lines[1].contains("  1,234,567  "), "{width}: {lines:?}");
        }
        assert_eq!(fitting(34)[1], "  …ame.service  1,234,567  someone");
        assert_eq!(fitting(33), ["too narrow: 34 columns are needed, and there are 33"]);
        assert_eq!(fit(table(), 33).wide_lines(33), fitting(34));
    }

    #[test]
    fn minimum_width_keeps_columns_in_place() {
        let table = [Column::numbers("TID", cells(["7"])).at_least(7), Column::text("NAME", cells(["a"]))];
        assert_eq!(written(&table), "      TID  NAME\n        7  a\n");
    }
}
