//! What is resident, as the kernel counts it, and how much of that the stacks account for.

use std::io;

use super::super::phrase;
use super::table::{self, Column};
use super::wrapped;
use crate::model::{Bytes, MappingKind, Profile, Residence, ResidentKind};

/// Writes a table by kind of memory, and in words what is left.
pub(super) fn write(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let mut all = Residence::default();
    for (kind, resident) in profile.processes.iter().filter_map(|process| process.resident.as_ref()).flat_map(|r| &r.0)
    {
        let sum = all.0.entry(*kind).or_default();
        sum.total.0 += resident.total.0;
        sum.with_stack.0 += resident.with_stack.0;
        sum.before.0 += resident.before.0;
    }
    let total = all.sum();
    if total.total == Bytes(0) {
        return Ok(());
    }
    writeln!(out, "\nResident, as the page tables say, by kind of memory\n")?;
    let rows: Vec<(&str, ResidentKind)> = all
        .0
        .iter()
        .filter(|(_, resident)| resident.total != Bytes(0))
        .map(|(kind, resident)| (MappingKind::name(*kind), *resident))
        .chain([("all", total)])
        .collect();
    let column = |head, of: fn(&ResidentKind) -> Bytes| {
        Column::numbers(head, rows.iter().map(|(_, resident)| phrase::compact_bytes(of(resident))))
    };
    let columns = [
        Column::text("MEMORY", rows.iter().map(|(name, _)| (*name).to_owned())),
        column("RESIDENT", |resident| resident.total),
        column("WITH STACK", |resident| resident.with_stack),
        column("BEFORE", |resident| resident.before),
        column("OTHER", ResidentKind::other),
    ];
    table::write(&columns, out)?;
    let share = |bytes: Bytes| phrase::percent(bytes.0 as f64 / total.total.0 as f64);
    let about = if profile.page_sample > 1 { "about " } else { "" };
    let mut sentence = format!("{about}{} of it has a stack", share(total.with_stack));
    if total.before != Bytes(0) {
        sentence.push_str(&format!(", {} was there when tracing began", share(total.before)));
    }
    if total.other() != Bytes(0) {
        sentence.push_str(&format!(", {} came without a touch that was seen", share(total.other())));
    }
    writeln!(out, "\n{}", wrapped(&format!("{}.", phrase::capitalised(&sentence)), 0))
}
