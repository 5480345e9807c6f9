//! The summary for the person on call: how much, who, where from, and how far the numbers can be trusted.

mod counts;
mod frames;
mod groups;
mod library;
mod memory;
mod oom;
mod processes;
mod reclaim;
mod residence;
mod roots;
mod sites;
mod stack;
pub(super) mod table;
mod trust;

use std::io;

use super::known::{self, Known};
use super::roots::Roots;
use super::words::Words;
use super::{Options, allocators, estimate, label, phrase, sole_peak};
use crate::model::{Bytes, EventClass, Metric, Profile};

/// Writes the summary, without colours and without any control character but the line end.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "memtrace: {}, traced for {}\n", label::plain(&options.subject), phrase::duration(profile.duration))?;
    totals(profile, out)?;
    oom::write(profile, out)?;
    residence::write(profile, out)?;
    reclaim::write(profile, options, out)?;
    if profile.processes.len() > 1 {
        processes::write(profile, options, out)?;
    }
    let roots = Roots::of(profile, options.by);
    roots::write(profile, options, &roots, out)?;
    sites::write(profile, options, &roots, out)?;
    trust::write(profile, out)
}

fn totals(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let total = profile.total();
    let words = Words::of(profile.class);
    if profile.class == EventClass::Reclaim {
        let waits = phrase::blocks(profile.class, total.stalls.count);
        return writeln!(out, "  {:<10}{:>12} in {waits} for memory", "stalled", total.stalls.time.to_string());
    }
    let variance = estimate::of_all(profile);
    let live_error = known::live_error(Some(Known::of_all(profile)), profile, &total, variance)
        .map(|pages| estimate::bytes(pages).0);
    for (name, amount) in [(words.live, total.live), (words.alloc, total.alloc), (words.free, total.free)] {
        let age = match profile.older {
            Some(age) if name == words.live => format!(", only what is at least {} old", phrase::duration(age)),
            _ => String::new(),
        };
        let error = match name {
            _ if name == words.live => live_error,
            _ if name == words.alloc => estimate::error(profile, Metric::AllocBytes, &total, variance),
            _ => estimate::of_released(profile, Metric::LiveBytes, &total, variance),
        };
        let error = estimate::shown(error, Metric::LiveBytes);
        writeln!(
            out,
            "  {name:<10}{:>12}{error} in {}{age}",
            amount.bytes,
            phrase::blocks(profile.class, amount.count)
        )?;
    }
    if profile.class == EventClass::Fault {
        counts::write(profile, out)?;
    }
    if profile.class == EventClass::Map {
        let resident = Bytes(profile.stacks.iter().map(|stack| stack.resident.0).sum());
        writeln!(out, "  {:<10}{resident:>12} of what is mapped is resident; the rest is reserved", "touched")?;
        let own = allocators::mapped(profile);
        writeln!(
            out,
            "  {:<10}{own:>12} of what is mapped is allocators' own, which heap events count in blocks",
            "heap"
        )?;
    }
    if profile.page_sample > 1 {
        let sampled = phrase::grouped(profile.page_sample.into());
        writeln!(
            out,
            "\n  Estimated from one page in {sampled} is what has a ±; three estimates in a thousand are further off."
        )?;
    }
    if let Some(peak) = sole_peak(profile) {
        writeln!(out, "  {:<10}{peak:>12} {} at once", "peak", words.live)?;
    }
    Ok(())
}

/// `text` in lines of at most a hundred columns, each behind `indent` spaces; words are not cut.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    const COLUMNS: usize = table::COLUMNS;
    let mut lines = String::new();
    let mut column = COLUMNS;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column + 1 + width > COLUMNS {
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words_within_a_hundred_columns() {
        let lines = wrapped(&"word ".repeat(40), 4);
        assert_eq!(lines.lines().map(|line| line.trim_end().len()).collect::<Vec<_>>(), [98, 98, 13]);
        assert!(lines.lines().all(|line| line.starts_with("    word")));
        assert_eq!(wrapped("one", 2), "  one");
    }
}
