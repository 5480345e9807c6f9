//! Coverage of a sampled run: the source of the samples of each process, and the reasons of processes without one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memtrace_host::patcher::PatchRefusal;
use memtrace_host::procfs;
use memtrace_model::{Comm, ImageId, Pid, format};

/// Number of refused processes that the report names.
const MOST_NAMED: usize = 20;

/// Source of the samples of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// memtrace has patched the allocator.
    Patched,
    /// The heap profile of Go, the sampler of an allocator, or USDT probes.
    Own,
    /// The process allocates little.
    Idle,
    /// The process has ended before it was examined.
    ShortLived,
    /// The process cannot be patched.
    Refused,
    /// The option is not given.
    NotAllowed,
}

impl Source {
    /// Returns words for a number of processes.
    const fn words(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Own => "by samples of their own",
            Self::Idle => "without samples of allocations because they allocate little",
            Self::ShortLived => "without samples of allocations because they ended within a second",
            Self::Refused => "without samples of allocations because they cannot be patched",
            Self::NotAllowed => "without samples of allocations because --allow-patching is not given",
        }
    }
}

/// Refused process.
#[derive(Debug)]
struct Refused {
    refusal: PatchRefusal,
    comm: Comm,
    /// Minor page faults at the refusal; `None` if they are not known.
    faults: Option<u64>,
}

/// Sources of all processes.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Number of ended processes, by source.
    ended: BTreeMap<Source, u64>,
    refused: BTreeMap<ImageId, Refused>,
    /// Number of refused processes, by the name of the reason.
    reasons: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// Adds a process that is not patched. Returns true if it is the first one for this reason.
    pub(super) fn refuse(&mut self, id: ImageId, refusal: PatchRefusal) -> bool {
        let count = self.reasons.entry(refusal.name()).or_default();
        *count += 1;
        let is_first = *count == 1;
        let comm = procfs::comm(id.pid).unwrap_or_default().into();
        self.refused.insert(id, Refused { refusal, comm, faults: minor_faults(id.pid) });
        is_first
    }

    /// Returns the reason why a process is not patched; `None` if it was not refused.
    pub(super) fn refusal(&self, id: ImageId) -> Option<&PatchRefusal> {
        self.refused.get(&id).map(|refused| &refused.refusal)
    }

    /// Forgets a process that does not count.
    pub(super) fn forget(&mut self, id: ImageId) {
        self.refused.remove(&id);
    }

    /// Counts a process that has ended.
    pub(super) fn end(&mut self, id: ImageId, source: Source) {
        self.refused.remove(&id);
        *self.ended.entry(source).or_default() += 1;
    }

    /// Returns notes about all processes. `running`: sources of the processes that run.
    pub(super) fn notes(&self, running: impl IntoIterator<Item = Source>) -> Vec<String> {
        let mut counts = self.ended.clone();
        running.into_iter().for_each(|source| *counts.entry(source).or_default() += 1);
        let parts: Vec<_> = counts.iter().map(|(source, count)| format!("{count} {}", source.words())).collect();
        let mut notes = Vec::new();
        if counts.values().sum::<u64>() > 1 {
            notes.push(format!("processes: {}", parts.join(", ")));
        }
        if self.reasons.len() > 1 || self.reasons.values().any(|&count| count > 1) {
            let reasons = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
            notes.push(format!("reasons why processes were not patched: {}", reasons.collect::<Vec<_>>().join(", ")));
        }
        notes.extend(self.largest());
        notes
    }

    /// Describes the refused processes that run and have had the most page faults since their refusal.
    fn largest(&self) -> Vec<String> {
        let faults = |(id, refused): (&ImageId, &Refused)| {
            let since = minor_faults(id.pid)?.saturating_sub(refused.faults?);
            Some((since, id.pid, refused.comm.clone(), refused.refusal.clone()))
        };
        let mut largest: Vec<_> = self.refused.iter().filter_map(faults).collect();
        largest.sort_by_key(|(faults, pid, ..)| (Reverse(*faults), *pid));
        let left_out = largest.len().saturating_sub(MOST_NAMED) as u64;
        largest.truncate(MOST_NAMED);
        let line = |(faults, pid, comm, refusal): (u64, Pid, Comm, PatchRefusal)| {
            let faults = format::counted(faults, "page fault", "page faults");
            format!("allocations of process {pid} ({comm}) are not sampled: {refusal}; it had {faults} since")
        };
        let mut lines: Vec<_> = largest.into_iter().map(line).collect();
        if left_out > 0 {
            let others = format::counted(left_out, "other process", "other processes");
            lines.push(format!("allocations of {others} are not sampled for the same reasons"));
        }
        lines
    }
}

fn minor_faults(pid: Pid) -> Option<u64> {
    Some(procfs::page_faults(pid)?.minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    #[test]
    fn processes_are_counted_by_their_source() {
        let mut coverage = Coverage::default();
        assert!(coverage.notes([Source::Patched]).is_empty(), "a single process needs no sum");
        coverage.end(id(1), Source::ShortLived);
        coverage.end(id(2), Source::Patched);
        let notes = coverage.notes([Source::Patched, Source::Own]);
        let expected = "processes: 2 patched, 1 by samples of their own, 1 without samples of allocations because they ended \
                        within a second";
        assert_eq!(notes, [expected]);
    }

    #[test]
    fn refused_processes_are_named_while_they_run() {
        let mut coverage = Coverage::default();
        let own = std::process::id();
        assert!(coverage.refuse(id(own), PatchRefusal::Musl));
        assert_eq!(coverage.refusal(id(own)), Some(&PatchRefusal::Musl));
        // No process has this pid.
        assert!(!coverage.refuse(id(u32::MAX), PatchRefusal::Musl));
        assert!(coverage.refuse(id(u32::MAX - 1), PatchRefusal::Static));
        let notes = coverage.notes([]);
        let [reasons, process] = notes.as_slice() else { panic!("{notes:?}") };
        assert_eq!(reasons, "reasons why processes were not patched: 2 musl, 1 static");
        let start = format!("allocations of process {own} (");
        assert!(process.starts_with(&start) && process.contains(&PatchRefusal::Musl.to_string()), "{process}");
        coverage.forget(id(own));
        assert_eq!((coverage.refusal(id(own)), coverage.notes([]).len()), (None, 1));
    }
}
