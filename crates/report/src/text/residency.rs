//! Table of resident memory by kind, from the page tables, with the share that has a stack.

use super::cells;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, MappingKind, Measure, Profile, Residency, ResidentKind};

use crate::table::{self, Column};
use crate::wrap::wrapped;
use crate::{estimate, format};

/// Writes a table by kind of memory, and a sentence with the shares of the total.
pub(super) fn write(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let mut all = Residency::default();
    for (kind, resident) in profile.processes.iter().filter_map(|process| process.resident.as_ref()).flat_map(|r| &r.0)
    {
        all.0.entry(*kind).or_default().add(resident);
    }
    let total = all.sum();
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
    // Other memory is a difference, so it has the same error as the memory with a stack.
    let estimated = |head, of: fn(&ResidentKind) -> Bytes| {
        let cell = |(_, resident): &(&str, ResidentKind)| {
            let pages = estimate::kind_error(profile, resident);
            Bytes::compact(of(resident)) + &cells::error(Measure::Bytes, pages)
        };
        Column::numbers(head, rows.iter().map(cell))
    };
    let columns = [
        Column::text("MEMORY", rows.iter().map(|(name, _)| (*name).to_owned())),
        column("RESIDENT", |resident| resident.total),
        estimated("WITH STACK", |resident| resident.with_stack),
        column("BEFORE", |resident| resident.before),
        estimated("OTHER", ResidentKind::other),
    ];
    table::write(&columns, out)?;
    let share = |bytes: Bytes| number::percent(bytes.0 as f64 / total.total.0 as f64);
    let error = estimate::kind_error(profile, &total).map(estimate::size_of_pages);
    let off = error.map(|error| format!(" ± {}", share(error))).unwrap_or_default();
    let about = if off.is_empty() { "" } else { "about " };
    let mut sentence = format!("{about}{}{off} of it has a stack", share(total.with_stack));
    if total.before != Bytes(0) {
        sentence.push_str(&format!(", {} was resident when tracing began", share(total.before)));
    }
    // A value that is not above its error may be zero.
    if total.other() > error.unwrap_or_default() {
        sentence.push_str(&format!(", {} became resident without a recorded touch", share(total.other())));
    }
    writeln!(out, "\n{}", wrapped(&format!("{}.", format::capitalised(&sentence)), 0))
}
