//! Formats of working sets.

mod assessment;
mod comparison;
mod csv;
mod json;
mod summary;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::io;

use memtrace_model::{ComparedSizes, WorkingSets};

use self::comparison::comparison;
use self::summary::summary;

use super::Format;

/// Writes a reading. The first one has the heads of the columns before it.
///
/// # Errors
///
/// Returns the errors of `out`, and one for formats that need all readings.
pub fn write(format: Format, sets: &WorkingSets, is_first: bool, out: &mut dyn io::Write) -> io::Result<()> {
    match format {
        Format::Text => text::write(sets, is_first, out),
        Format::Csv => csv::write(sets, is_first, out),
        Format::Json => json::write(sets, out),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Writes all readings, the text with a summary and a comparison with `sizes`.
///
/// # Errors
///
/// Returns the errors of `out`, and one for formats of stacks.
pub fn write_all(
    format: Format,
    readings: &[WorkingSets],
    sizes: &ComparedSizes,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    if format == Format::Svg {
        return svg::write(readings, out);
    }
    for (index, sets) in readings.iter().enumerate() {
        write(format, sets, index == 0, out)?;
    }
    if format == Format::Text { write_end(readings, sizes, out) } else { Ok(()) }
}

/// Writes the sentences after the text of all readings.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_end(readings: &[WorkingSets], sizes: &ComparedSizes, out: &mut dyn io::Write) -> io::Result<()> {
    let Some(summary) = summary(readings) else { return Ok(()) };
    writeln!(out, "\n{summary}")?;
    if let Some(comparison) = comparison(readings, sizes) {
        writeln!(out, "{comparison}")?;
    }
    let Some(last) = readings.last() else { return Ok(()) };
    if let Some(cache) = assessment::of_cache(last) {
        writeln!(out, "{cache}")?;
    }
    if let Some(fit) = &last.fit {
        writeln!(out, "{}", assessment::of_fit(fit))?;
    }
    writeln!(out, "{}", assessment::of_machine(last, sizes.has_swap))
}
