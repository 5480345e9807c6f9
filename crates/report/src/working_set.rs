//! Reports of working sets: text, CSV, JSON and a picture.

mod assessment;
mod csv;
mod json;
mod knee;
mod summary;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::io;

use memtrace_model::{Bytes, ComparedSizes, WorkingSetMethod, WorkingSets};

use self::summary::summary;

use super::Format;

/// Writes a reading. In text and CSV, the heads of the columns precede the first reading.
///
/// # Errors
///
/// Returns the errors of `out`, and `Unsupported` for formats other than text, CSV and JSON.
pub fn write(format: Format, sets: &WorkingSets, is_first: bool, out: &mut dyn io::Write) -> io::Result<()> {
    match format {
        Format::Text => text::write(sets, is_first, out),
        Format::Csv => csv::write(sets, is_first, out),
        Format::Json => json::write(sets, out),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Writes all readings. The text also has a summary, and a comparison with `sizes`.
///
/// # Errors
///
/// Returns the errors of `out`, and `Unsupported` for formats that are not in [`Format::OF_WORKING_SETS`].
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

/// Writes the sentences that follow all readings in the text.
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
    for sentence in assessment::of_limits(last) {
        writeln!(out, "{sentence}")?;
    }
    writeln!(out, "{}", assessment::of_machine(last, sizes.has_swap))
}

/// Returns a sentence that compares the last reading with the reach of the TLB, the caches and the memory limit.
/// Returns `None` if no size is known, if there is no process, or if the reading is only a lower bound.
fn comparison(readings: &[WorkingSets], sizes: &ComparedSizes) -> Option<String> {
    let last = readings.last().filter(|sets| !sets.processes.is_empty() && sets.method != WorkingSetMethod::Faults)?;
    let touched = last.memory().referenced;
    let reach = sizes.tlb_reach.map(|reach| (String::from("the TLB reach"), reach));
    let caches = sizes.caches.iter().map(|cache| (format!("the L{} cache", cache.level), cache.size));
    let limit = sizes.memory_limit.map(|limit| (String::from("the memory limit"), limit));
    let parts: Vec<_> =
        reach.into_iter().chain(caches).chain(limit).map(|(name, size)| part(touched, &name, size)).collect();
    let (last, others) = parts.split_last()?;
    let list = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!("{touched} are {list}."))
}

/// Returns a part of the comparison: `31.0 times the L2 cache (1.00 MiB)` or `5% of the memory limit (1.00 GiB)`.
fn part(touched: Bytes, name: &str, size: Bytes) -> String {
    let ratio = touched.0 as f64 / size.0.max(1) as f64;
    let amount = if ratio < 1.995 { format!("{:.0}% of", ratio * 100.0) } else { format!("{ratio:.1} times") };
    format!("{amount} {name} ({size})")
}
