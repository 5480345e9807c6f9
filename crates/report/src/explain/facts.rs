//! Writes facts, each with a name before its text.

use std::io;

use memtrace_model::plain;

use crate::text::text_writer::TextWriter;

/// Writes facts. A text may have several lines.
pub(super) fn write(facts: &[(&str, String)], out: &mut TextWriter<'_>) -> io::Result<()> {
    facts.iter().try_for_each(|(name, text)| {
        let text = out.wrapped(&plain(text), 18);
        writeln!(out, "  {name:<15} {}", text.trim_start())
    })
}
