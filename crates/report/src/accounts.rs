//! Writes tables of accounts as text, CSV or JSON.

mod csv;
mod json;
mod stacks;
mod text;

pub use stacks::of_stacks;
pub use text::AccountTextOptions;

use std::io;

use memtrace_model::AccountTable;

use crate::Format;

/// Writes a table of accounts to `out`. `options`: extent of the text; the other formats have all rows and numbers.
///
/// # Errors
///
/// Returns the errors of `out`, and `Unsupported` for formats other than text, CSV and JSON.
pub fn write(
    format: Format,
    table: &AccountTable,
    options: &AccountTextOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    match format {
        Format::Text => text::write(table, options, &mut out)?,
        Format::Csv => csv::write(table, &mut out)?,
        Format::Json => json::write(table, &mut out)?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    io::Write::flush(&mut out)
}

#[cfg(test)]
mod tests;
