//! Writer of the text report. It knows the width of the lines.

use std::{fmt, io};

use crate::table::{self, Column};
use crate::wrap::wrapped_to;

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
    pub(super) const fn columns(&self) -> usize {
        self.columns
    }

    /// Breaks a text into lines, each indented by `indent` spaces.
    pub(super) fn wrapped(&self, text: &str, indent: usize) -> String {
        wrapped_to(text, indent, self.columns)
    }

    /// Writes formatted text. The macro `writeln` calls this function.
    pub(super) fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_fmt(text)
    }

    /// Writes lines that have the width already.
    pub(super) fn write_all(&mut self, lines: &[u8]) -> io::Result<()> {
        self.out.write_all(lines)
    }

    /// Writes a line of the totals: the name of a value, the value, and a text that explains it.
    pub(super) fn total(&mut self, name: &str, value: &dyn fmt::Display, text: &str) -> io::Result<()> {
        let head = format!("  {name:<10}{:>12} ", value.to_string());
        let text = self.wrapped(text, head.chars().count());
        writeln!(self.out, "{head}{}", text.trim_start())
    }

    /// Writes a table. Columns that do not fit are left out, and cells of the last column are cut.
    pub(super) fn table(&mut self, columns: Vec<Column>) -> io::Result<()> {
        let lines = table::fit(columns, self.columns).lines(self.columns);
        lines.iter().try_for_each(|line| writeln!(self.out, "{line}"))
    }
}

/// Returns the number of lines of a text.
pub(super) fn line_count(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}
