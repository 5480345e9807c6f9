//! Table of resident memory by kind, from the page tables, with the share that has a stack.

use super::cells;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, MappingKind, Measure, Profile, Residency, ResidentKind};

use super::text_writer::TextWriter;
use crate::table::Column;
use crate::{estimate, format};

/// Writes a table by kind of memory, and a sentence with the shares of the total.
pub(super) fn write(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    let mut all = Residency::default();
    for (kind, resident) in profile.processes.iter().filter_map(|process| process.resident.as_ref()).flat_map(|r| &r.0)
    {
        all.0.entry(*kind).or_default().add(resident);
    }
    let total = all.sum();
    if profile.run.class.counts_pages()
        && let Some(unknown) = format::unknown_residency(profile)
    {
        writeln!(out, "\n{}", out.wrapped(&format!("The resident memory is {unknown}."), 0))?;
    }
    if total.total == Bytes(0) {
        return Ok(());
    }
    writeln!(out, "\nResident memory by kind, from the page tables\n")?;
    let rows: Vec<(&str, ResidentKind)> = all
        .0
        .iter()
        .filter(|(_, resident)| resident.total != Bytes(0))
        .map(|(kind, resident)| (MappingKind::name(*kind), *resident))
        .chain([("all", total)])
        .collect();
    let column = |head, of: fn(&ResidentKind) -> Bytes| {
        Column::numbers(head, rows.iter().map(|(_, resident)| Bytes::compact(of(resident))))
    };
    let estimated = |head, of: fn(&ResidentKind) -> Bytes, error: fn(&Profile, &ResidentKind) -> Option<u64>| {
        let cell = |(_, resident): &(&str, ResidentKind)| {
            Bytes::compact(of(resident)) + &cells::error(Measure::Bytes, error(profile, resident))
        };
        Column::numbers(head, rows.iter().map(cell))
    };
    let columns = vec![
        Column::text("MEMORY", rows.iter().map(|(name, _)| (*name).to_owned())),
        column("RESIDENT", |resident| resident.total),
        estimated("WITH STACK", ResidentKind::explained, estimate::kind_error),
        column("BEFORE", |resident| resident.before),
        estimated("OTHER", ResidentKind::other, estimate::other_error),
    ];
    out.table(columns)?;
    let parts = [total.explained(), total.before, total.other()];
    let [with_stack, before, other] = number::percents(parts.map(|part| part.0));
    let error = estimate::kind_error(profile, &total).map(estimate::size_of_pages);
    let share = |bytes: Bytes| number::percent(bytes.0 as f64 / total.total.0 as f64);
    let off = error.map(|error| format!(" ± {}", share(error))).unwrap_or_default();
    let about = if off.is_empty() { "" } else { "about " };
    let mut sentence = format!("{about}{with_stack}{off} of it has a stack");
    if total.before != Bytes(0) {
        sentence.push_str(&format!(", {before} was resident when tracing began"));
    }
    // Even a value below its error is shown: the shares must add up.
    if total.other() != Bytes(0) {
        sentence.push_str(&format!(", {other} became resident without a recorded touch"));
    }
    writeln!(out, "\n{}", out.wrapped(&format!("{}.", format::capitalised(&sentence)), 0))
}
