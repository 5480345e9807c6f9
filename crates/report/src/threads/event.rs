//! Describes events of the thread monitor in words.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memtrace_model::format::counted;
use memtrace_model::{Comm, Pid, ThreadsEventKind};

use crate::escape;

/// Maximum number of names in a description of several exits.
const MOST_NAMES: usize = 4;

/// Describes an event in words, without control characters. `name` returns the short name of a process, if known.
pub(super) fn text<'a>(kind: &ThreadsEventKind, name: impl Fn(Pid) -> Option<&'a Comm>) -> String {
    let process = |pid: Pid| match name(pid) {
        Some(comm) => format!("{} ({pid})", escape::visible(comm.raw())),
        None => format!("process {pid}"),
    };
    match kind {
        ThreadsEventKind::OomKill(pid) => format!("OOM kill of {}", process(*pid)),
        ThreadsEventKind::Exit(pid) => format!("exit of {}", process(*pid)),
        ThreadsEventKind::Mark(text) => format!("mark: {}", escape::visible(text)),
        ThreadsEventKind::Trigger(text) => format!("trigger: {}", escape::visible(text)),
    }
}

/// Returns the process that has exited.
pub(super) const fn exited(kind: &ThreadsEventKind) -> Option<Pid> {
    match kind {
        ThreadsEventKind::Exit(pid) => Some(*pid),
        ThreadsEventKind::OomKill(_) | ThreadsEventKind::Mark(_) | ThreadsEventKind::Trigger(_) => None,
    }
}

/// Describes the exits of processes, the most frequent names first: `exits of 20 processes: cc1 ×12, as ×8`. A process
/// without a known name is `None`.
pub(super) fn exits<'a>(names: impl Iterator<Item = Option<&'a Comm>>) -> String {
    let mut counts: BTreeMap<Option<&Comm>, u64> = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let shown = counts.iter().take(MOST_NAMES).map(|(name, count)| {
        let name = name.map_or(String::from("[unknown]"), |comm| escape::visible(comm.raw()));
        format!("{name} {}", escape::times(*count))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match counts.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {}", counted(more as u64, "other name", "other names")),
    };
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    format!("exits of {}: {shown}{more}", counted(total, "process", "processes"))
}
