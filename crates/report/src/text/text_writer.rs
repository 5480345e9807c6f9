//! Writer of the text report. It knows the width of the lines.

use std::{fmt, io};

use crate::Format;
use crate::table::{self, Column};
use crate::wrap::wrapped;

/// A text with a maximum width of its lines.
pub(crate) struct TextWriter<'a> {
    out: &'a mut dyn io::Write,
    columns: usize,
}

impl<'a> TextWriter<'a> {
    /// `columns`: maximum width of a line, in characters.
    pub(crate) fn new(out: &'a mut dyn io::Write, columns: usize) -> Self {
        Self { out, columns }
    }

    /// Returns the maximum width of a line, in characters.
    pub(crate) const fn columns(&self) -> usize {
        self.columns
    }

    /// Breaks a text into lines, each indented by `indent` spaces.
    pub(crate) fn wrapped(&self, text: &str, indent: usize) -> String {
        wrapped(text, indent, self.columns)
    }

    /// Writes formatted text. The macro `writeln` calls this function.
    pub(crate) fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_fmt(text)
    }

    /// Writes lines that have the width already.
    pub(crate) fn write_all(&mut self, lines: &[u8]) -> io::Result<()> {
        self.out.write_all(lines)
    }

    /// Writes a line of the totals: the name of a value, the value, and a text that explains it.
    pub(super) fn total(&mut self, name: &str, value: &dyn fmt::Display, text: &str) -> io::Result<()> {
        let head = format!("  {name:<10}{:>12} ", value.to_string());
        let text = self.wrapped(text, head.chars().count());
        writeln!(self.out, "{head}{}", text.trim_start())
    }

    /// Writes a table. Columns that do not fit are left out, and a line names them. Cells of the last column are cut.
    /// Lines are longer if even the most important columns do not fit, because a report has to contain them.
    pub(crate) fn table(&mut self, columns: Vec<Column>) -> io::Result<()> {
        let fit = table::fit(columns, self.columns);
        for line in fit.wide_lines(self.columns) {
            writeln!(self.out, "{line}")?;
        }
        let Some(note) = fit.note_of_left_out(Format::Json) else { return Ok(()) };
        let note = self.wrapped(&note, 0);
        writeln!(self.out, "{note}")
    }
}

/// Returns the number of lines of a text.
pub(super) fn line_count(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_named() {
        let text = |width| {
            let cells = |cell: &str| [cell.to_owned()];
            let columns = vec![
                Column::numbers("LIVE", cells("1.75M")),
                Column::numbers("B/s", cells("93.1K")).with_importance(1),
                Column::text("CGROUP", cells("a.service")),
            ];
            let mut text = Vec::new();
            TextWriter::new(&mut text, width).table(columns).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(text(25), "   LIVE    B/s  CGROUP\n  1.75M  93.1K  a.service\n");
        let note = "left out: B/s (to see\nthem: a wider terminal,\nor --format json)\n";
        assert_eq!(text(24), format!("   LIVE  CGROUP\n  1.75M  a.service\n{note}"));
    }
}
