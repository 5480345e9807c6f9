//! Processes in scope that are not traced.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::id::Pid;
use crate::{Bytes, Comm, EventClass};

/// Maximum number of processes that [`Untraced`] lists. The totals include all processes.
const MAX_LISTED: usize = 1000;

/// Reason that a process is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UntracedReason {
    /// The executable of the process is for another architecture than memtrace.
    Architecture,
    /// The executable of the process is statically linked and stripped.
    Stripped,
    /// The executable of the process is written in Go. The runtime of Go has no malloc, and Go's own heap profile is not read
    /// in this trace.
    Go,
    /// The executable of the process is written in Go, and keeps no heap profile.
    GoProfileOff,
    /// The executable of the process is written in Go, and the layout of its heap profile is not known.
    GoVersion,
    /// The executable of the process is written in Go, and its heap profile cannot be read.
    GoUnreadable,
    /// The executable of the process is written in Go, and its heap profile does not fit in the memory of memtrace.
    GoProfilesFull,
    /// The process keeps no heap profile, and no probes are attached to allocators.
    NoOwnProfile,
    /// No object of the process defines malloc and free.
    NoAllocator,
    /// An allocator was recognized, but one of its functions cannot be probed.
    UnsupportedAllocator,
    /// A mapped file that may be the allocator is damaged.
    Damaged,
    /// The probes could not be attached to the allocator of the process.
    NotAttached,
    /// Blocks are sampled only, and the process neither has a sampler nor is patched.
    NotPatched,
    /// The blocks of the process are sampled, and its page faults are therefore left out.
    Sampled,
    /// The process or its files cannot be read.
    Unreadable,
    /// The process ended before its files could be read.
    Ended,
}

impl UntracedReason {
    /// All reasons, ordered as in reports.
    pub const ALL: [Self; 16] = [
        Self::Architecture,
        Self::Stripped,
        Self::Go,
        Self::GoProfileOff,
        Self::GoVersion,
        Self::GoUnreadable,
        Self::GoProfilesFull,
        Self::NoOwnProfile,
        Self::NoAllocator,
        Self::UnsupportedAllocator,
        Self::Damaged,
        Self::NotAttached,
        Self::NotPatched,
        Self::Sampled,
        Self::Unreadable,
        Self::Ended,
    ];

    /// Returns the name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Architecture => "architecture",
            Self::Stripped => "stripped",
            Self::Go => "go",
            Self::GoProfileOff => "go_profile_off",
            Self::GoVersion => "go_version",
            Self::GoUnreadable => "go_unreadable",
            Self::GoProfilesFull => "go_profiles_full",
            Self::NoOwnProfile => "no_own_profile",
            Self::NoAllocator => "no_allocator",
            Self::UnsupportedAllocator => "unsupported_allocator",
            Self::Damaged => "damaged",
            Self::NotAttached => "not_attached",
            Self::NotPatched => "not_patched",
            Self::Sampled => "sampled",
            Self::Unreadable => "unreadable",
            Self::Ended => "ended",
        }
    }

    /// Returns an explanation for the user.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Architecture => "made for another architecture, such as 32 bits",
            Self::Stripped => "statically linked and stripped: its allocator cannot be found",
            Self::Go => "written in Go, whose runtime has no malloc",
            Self::GoProfileOff => "written in Go without a heap profile: no runtime/pprof, or MemProfileRate is 0",
            Self::GoVersion => "written in Go, and the heap profile of its version is not known",
            Self::GoUnreadable => "written in Go, and its heap profile cannot be read",
            Self::GoProfilesFull => {
                "written in Go, and its heap profile exceeds the memory for profiles (--memory-limit)"
            }
            Self::NoOwnProfile => "keeps no heap profile, and --source own attaches no probes to allocators",
            Self::NoAllocator => "no mapped object defines malloc and free",
            Self::UnsupportedAllocator => "its allocator has no functions that can be probed",
            Self::Damaged => "a mapped file, which may be its allocator, is damaged",
            Self::NotAttached => "the probes could not be attached to its allocator",
            Self::NotPatched => "it is not patched, and takes no samples of its own",
            Self::Sampled => "its allocations are sampled, so its page faults are left out",
            Self::Unreadable => "not readable: no permission, or too many open files",
            Self::Ended => "ended before its files could be read",
        }
    }

    /// Returns true if the executable is written in Go. Its C code may still use an allocator that has probes.
    #[must_use]
    pub const fn is_go(self) -> bool {
        matches!(self, Self::Go | Self::GoProfileOff | Self::GoVersion | Self::GoUnreadable | Self::GoProfilesFull)
    }

    /// Returns true if events of `class` are not recorded in a process with this reason. Only heap events need an allocator.
    /// Mappings of a process of another architecture are not recorded, because its system calls have other numbers.
    #[must_use]
    pub fn applies_to(self, class: EventClass) -> bool {
        if self == Self::Sampled {
            return class.counts_pages();
        }
        class.probes_allocators() || class.holds_mappings() && self == Self::Architecture
    }
}

/// A process in scope that is not traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntracedProcess {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process.
    pub comm: Comm,
    /// Path of the executable in the mount namespace of the process, if known.
    pub exe: Option<PathBuf>,
    /// Reason that the process is not traced.
    pub reason: UntracedReason,
    /// RSS at the end of tracing; `None` if the process had ended.
    pub rss: Option<Bytes>,
}

/// Number and RSS of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Number of processes.
    pub processes: u64,
    /// Sum of the known RSS of the processes.
    pub rss: Bytes,
}

impl ProcessMemory {
    fn add(&mut self, process: &UntracedProcess) {
        self.processes += 1;
        self.rss.0 = self.rss.0.saturating_add(process.rss.unwrap_or(Bytes(0)).0);
    }
}

/// The processes in scope that are not traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untraced {
    listed: Vec<UntracedProcess>,
    by_reason: BTreeMap<UntracedReason, ProcessMemory>,
}

impl Untraced {
    /// Returns the sums of `processes`, and a list of the largest ones.
    #[must_use]
    pub fn new(processes: Vec<UntracedProcess>) -> Self {
        let mut all = Self::default();
        processes.into_iter().for_each(|process| all.add(process));
        all
    }

    /// Constructs the value from its fields. `listed`: the processes with the largest RSS, the largest first.
    #[must_use]
    pub const fn from_parts(listed: Vec<UntracedProcess>, by_reason: BTreeMap<UntracedReason, ProcessMemory>) -> Self {
        Self { listed, by_reason }
    }

    /// Adds a process to the sums, and to the list if it is one of the largest.
    pub fn add(&mut self, process: UntracedProcess) {
        self.by_reason.entry(process.reason).or_default().add(&process);
        self.list(process);
    }

    /// Adds the processes in `other`.
    pub fn merge(&mut self, other: &Self) {
        for (&reason, memory) in &other.by_reason {
            let ours = self.by_reason.entry(reason).or_default();
            ours.processes += memory.processes;
            ours.rss.0 = ours.rss.0.saturating_add(memory.rss.0);
        }
        other.listed.iter().cloned().for_each(|process| self.list(process));
    }

    fn list(&mut self, process: UntracedProcess) {
        let order = |one: &UntracedProcess| (Reverse(one.rss), one.pid);
        let index = self.listed.partition_point(|other| order(other) <= order(&process));
        if index < MAX_LISTED {
            self.listed.truncate(MAX_LISTED - 1);
            self.listed.insert(index, process);
        }
    }

    /// Returns true if there are no untraced processes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_reason.is_empty()
    }

    /// Returns the processes with the largest RSS, the largest first; at most 1,000.
    #[must_use]
    pub fn listed(&self) -> &[UntracedProcess] {
        &self.listed
    }

    /// Returns the number and the RSS of all processes with this reason.
    #[must_use]
    pub fn with_reason(&self, reason: UntracedReason) -> ProcessMemory {
        self.by_reason.get(&reason).copied().unwrap_or_default()
    }

    /// Returns the number and the RSS of all processes.
    #[must_use]
    pub fn total(&self) -> ProcessMemory {
        self.by_reason.values().fold(ProcessMemory::default(), |sum, part| ProcessMemory {
            processes: sum.processes + part.processes,
            rss: Bytes(sum.rss.0.saturating_add(part.rss.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, reason: UntracedReason, rss: Option<u64>) -> UntracedProcess {
        UntracedProcess { pid: Pid(pid), comm: Comm::default(), exe: None, reason, rss: rss.map(Bytes) }
    }

    #[test]
    fn processes_beyond_the_list_are_in_the_totals() {
        let of_go = (1..=MAX_LISTED as u32).map(|pid| process(pid, UntracedReason::Go, Some(u64::from(pid))));
        let ended = [process(5000, UntracedReason::Ended, None), process(5001, UntracedReason::Stripped, Some(7000))];
        let untraced = Untraced::new(of_go.chain(ended).collect());
        assert_eq!(untraced.listed().len(), MAX_LISTED);
        assert_eq!(untraced.listed()[0].pid, Pid(5001));
        assert_eq!(untraced.listed()[1].pid, Pid(MAX_LISTED as u32));
        assert_eq!(untraced.total(), ProcessMemory { processes: 1002, rss: Bytes(500_500 + 7000) });
        assert_eq!(untraced.with_reason(UntracedReason::Go), ProcessMemory { processes: 1000, rss: Bytes(500_500) });
        assert_eq!(untraced.with_reason(UntracedReason::Ended), ProcessMemory { processes: 1, rss: Bytes(0) });
        assert_eq!(untraced.with_reason(UntracedReason::Damaged), ProcessMemory::default());
    }

    #[test]
    fn merged_lists_are_those_of_all_processes() {
        let processes: Vec<_> = (1..=3 * MAX_LISTED as u32)
            .map(|pid| process(pid, UntracedReason::Go, (pid % 3 > 0).then_some(u64::from(pid % 7))))
            .collect();
        let (first, second) = processes.split_at(MAX_LISTED + 7);
        let mut merged = Untraced::new(first.to_vec());
        merged.merge(&Untraced::new(second.to_vec()));
        assert_eq!(merged, Untraced::new(processes));
        assert!(!merged.is_empty() && Untraced::default().is_empty());
    }

    #[test]
    fn only_heap_events_need_an_allocator() {
        let classes = |reason: UntracedReason| {
            let classes = [EventClass::Heap, EventClass::Map, EventClass::Fault, EventClass::Reclaim];
            classes.map(|class| reason.applies_to(class))
        };
        assert_eq!(classes(UntracedReason::Go), [true, false, false, false]);
        assert_eq!(classes(UntracedReason::Architecture), [true, true, false, false]);
        assert_eq!(classes(UntracedReason::Sampled), [false, false, true, false]);
    }
}
