//! Working sets as a table.

use std::io;

use memtrace_model::format::{clock, compact_bytes, counted, percent};
use memtrace_model::{Bytes, MappingKind, ReferencedMemory, UnmeasuredProcesses, WorkingSets};

use crate::escape;
use crate::format::shortened;

/// Kinds of memory with a column. The other kinds are small, and are included only in the sum.
const KINDS: [(&str, MappingKind); 5] = [
    ("HEAP", MappingKind::Heap),
    ("ANON", MappingKind::Anonymous),
    ("FILE", MappingKind::File),
    ("STACK", MappingKind::Stack),
    ("SHMEM", MappingKind::Shmem),
];

/// Width of a column of bytes, in characters.
const WIDTH: usize = 6;
/// Maximum length of a name, in characters.
const NAME: usize = 15;

/// Writes a line for each process, the largest working set first. If there are several, a line for all of them follows.
/// The heads of the columns precede the first reading.
///
/// # Errors
///
/// Returns the errors of `out`.
pub(super) fn write(sets: &WorkingSets, is_first: bool, out: &mut dyn io::Write) -> io::Result<()> {
    if is_first {
        writeln!(out, "{}", head())?;
    }
    let mut processes: Vec<_> = sets.processes.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.total().referenced));
    for process in processes {
        let name = shortened(&escape::visible(process.comm.raw()), NAME);
        let kind = |kind| process.of_kind(kind);
        let seconds = process.duration().as_secs_f64();
        let row = row(&clock(process.read.end), seconds, process.total(), kind);
        writeln!(out, "{row}  {:>7}  {name}", process.pid.to_string())?;
    }
    if sets.processes.len() > 1 {
        let kind = |kind| sets.memory_of_kind(kind);
        let row = row(&clock(sets.at()), sets.duration().as_secs_f64(), sets.memory(), kind);
        writeln!(out, "{row}  {:>7}  {}", "", counted(sets.processes.len() as u64, "process", "processes"))?;
        if let Some(Err(reason)) = sets.distinct {
            let (shared, reason) = (percent(sets.shared_part()), reason.reason());
            writeln!(out, "  counted once in each process: {shared} of the pages, which are shared; {reason}")?;
        }
    }
    if sets.hugetlb().0 > 0 {
        writeln!(out, "  not measured: {} of hugetlbfs, which the RSS does not contain", sets.hugetlb())?;
    }
    if let Some((all, touched)) = sets.unmapped_cache {
        writeln!(out, "  page cache that no process has mapped: {touched} of {all} were touched")?;
    }
    if let Some(lost) = sets.lost_faults.filter(|lost| *lost > 0) {
        writeln!(out, "  not counted: {}, which were lost", counted(lost, "page fault", "page faults"))?;
    }
    let UnmeasuredProcesses { exited, not_permitted, unreadable } = sets.unmeasured;
    let unread = [(exited, "exited"), (not_permitted, "may not be read"), (unreadable, "cannot be read")];
    for (count, reason) in unread.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  not measured: {} ({reason})", counted(count, "process", "processes"))?;
    }
    Ok(())
}

fn head() -> String {
    let mut head = format!("{:>7}  {:>8}", "TIME", "EST(s)");
    for name in ["RSS", "PSS", "REF"] {
        head += &format!("  {name:>WIDTH$}");
    }
    head += &format!("  {:>6}  {:>WIDTH$}", "REF%", "LEAST");
    for (name, _) in KINDS {
        head += &format!("  {name:>WIDTH$}");
    }
    head + &format!("  {:>WIDTH$}  {:>WIDTH$}  {:>7}  PROCESS", "HUGE", "SWAP", "PID")
}

fn row(time: &str, seconds: f64, total: ReferencedMemory, of_kind: impl Fn(MappingKind) -> ReferencedMemory) -> String {
    let bytes = |bytes: Bytes| compact_bytes(bytes.0 as f64);
    let mut row = format!("{time:>7}  {seconds:>8.3}");
    for value in [total.resident, total.pss, total.referenced] {
        row += &format!("  {:>WIDTH$}", bytes(value));
    }
    let share = total.share().map_or_else(|| String::from("-"), percent);
    row += &format!("  {share:>6}  {:>WIDTH$}", bytes(total.least_referenced));
    for (_, kind) in KINDS {
        row += &format!("  {:>WIDTH$}", bytes(of_kind(kind).referenced));
    }
    row + &format!("  {:>WIDTH$}  {:>WIDTH$}", bytes(total.huge), bytes(total.swap))
}
