//! Working sets: the resident memory of processes, and the part of it that was used within a time.

mod cache_use;
mod faulted_pages;
mod fit;
mod knee;
mod method;
mod page_bits;
mod process;
mod touched_pages;

pub use self::cache_use::{CacheFit, CacheUse};
pub use self::faulted_pages::FaultedPages;
pub use self::fit::Fit;
pub use self::knee::knee;
pub use self::method::WorkingSetMethod;
pub use self::process::{ProcessWorkingSet, ReferencedMemory};
pub use self::touched_pages::{PagePart, PageState, TouchWindow, TouchedPages, TouchedProcesses};

use std::time::Duration;

use super::PerSecond;
use super::units::Bytes;

/// Working sets of all selected processes at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingSets {
    /// Method of the measurement.
    pub method: WorkingSetMethod,
    /// Requested time between clearing and reading.
    pub requested: Duration,
    /// The references were cleared once, before the first reading: later readings contain the earlier ones.
    pub is_cumulative: bool,
    /// Processes in the order of their pids.
    pub processes: Vec<ProcessWorkingSet>,
    /// Seconds of the measurement with scanning and paging of the machine.
    pub seconds: PerSecond,
    /// Runs of kswapd during the measurement.
    pub kswapd_runs: u64,
    /// Page cache of the selected cgroups that no process has mapped, and its touched part; `None` if it is not measured.
    pub unmapped_cache: Option<(Bytes, Bytes)>,
    /// Memory that the processes need, if it was requested.
    pub fit: Option<Fit>,
    /// Use of the last-level cache since clearing, by the processes that ran then; `None` if it is not measured.
    pub cache: Option<CacheUse>,
    /// Page faults that were lost since clearing; `None` if the method traces none.
    pub lost_faults: Option<u64>,
    /// Selected processes that are missing, since the references were cleared.
    pub unmeasured: UnmeasuredProcesses,
}

/// Number of selected processes that could not be measured, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmeasuredProcesses {
    /// They exited before they were read.
    pub exited: u64,
    /// memtrace may not read them.
    pub not_permitted: u64,
    /// Reading failed for another reason.
    pub unreadable: u64,
}

impl WorkingSets {
    /// Returns the end of the reading.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.processes.iter().map(|process| process.read.end).max().unwrap_or_default()
    }

    /// Returns the sum of all processes. A page that several of them map is in the sum several times, except for the PSS.
    #[must_use]
    pub fn total(&self) -> ReferencedMemory {
        self.processes.iter().map(ProcessWorkingSet::total).sum()
    }

    /// Returns the pages of hugetlbfs of all processes.
    #[must_use]
    pub fn hugetlb(&self) -> Bytes {
        Bytes(self.processes.iter().map(|process| process.hugetlb.0).sum())
    }

    /// Returns the mean of the estimated times; that of the process if there is one.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let sum: Duration = self.processes.iter().map(ProcessWorkingSet::duration).sum();
        sum.checked_div(u32::try_from(self.processes.len()).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    /// Returns the longest time that clearing and reading a process took together.
    #[must_use]
    pub fn longest_cost(&self) -> Duration {
        let cost = |process: &ProcessWorkingSet| process.clear_time() + process.read_time() + process.sizes_time;
        self.processes.iter().map(cost).max().unwrap_or_default()
    }
}

/// Cache of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Its level: 2 or more.
    pub level: u8,
    /// Its size.
    pub size: Bytes,
}

/// Sizes to compare with a working set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedSizes {
    /// There is a swap device.
    pub has_swap: bool,
    /// Caches of a processor, by level.
    pub caches: Vec<CacheSize>,
    /// Memory that the pages of the largest TLB for data cover, in small pages; `None` if it is not known.
    pub tlb_reach: Option<Bytes>,
    /// Limit of the memory of the measured process, by its cgroup; `None` for none, or for several processes.
    pub memory_limit: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Comm, MappingKind, Pid};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn mapping(referenced: u64, huge: u64) -> ReferencedMemory {
        ReferencedMemory::of_mapping(Bytes(64 * MIB), Bytes(64 * MIB), Bytes(referenced), Bytes(huge), Bytes(2 * MIB))
    }

    #[test]
    fn huge_pages_count_between_one_small_page_and_the_whole() {
        assert_eq!(mapping(40 * KIB, 0).least_referenced, Bytes(40 * KIB));
        // Two huge pages and ten small ones.
        assert_eq!(mapping(4 * MIB + 40 * KIB, 32 * MIB).least_referenced, Bytes(8 * KIB + 40 * KIB));
        // There is only one huge page.
        assert_eq!(mapping(4 * MIB, 2 * MIB).least_referenced, Bytes(2 * MIB + 4 * KIB));
        assert_eq!(mapping(0, 2 * MIB).least_referenced, Bytes(0));
        let unknown = ReferencedMemory::of_mapping(Bytes(MIB), Bytes(MIB), Bytes(MIB), Bytes(MIB), Bytes(0));
        assert_eq!(unknown.least_referenced, Bytes(MIB));
    }

    #[test]
    fn duration_is_that_between_the_middles() {
        let seconds = Duration::from_secs;
        let process = ProcessWorkingSet {
            pid: Pid(7),
            comm: Comm::from("server"),
            cleared: seconds(2)..seconds(4),
            read: seconds(10)..seconds(20),
            kinds: vec![(MappingKind::Heap, mapping(8, 0)), (MappingKind::File, mapping(16, 0))],
            hugetlb: Bytes(2 * MIB),
            locked: None,
            paused: false,
            sizes_time: Duration::ZERO,
        };
        assert_eq!(process.duration(), seconds(12));
        assert_eq!(ProcessWorkingSet { paused: true, ..process.clone() }.duration(), seconds(6));
        assert_eq!(process.total().referenced, Bytes(24));
        assert_eq!(process.of_kind(MappingKind::File).referenced, Bytes(16));
        assert_eq!(process.of_kind(MappingKind::Stack), ReferencedMemory::default());
        let sets = WorkingSets { processes: vec![process.clone(), process], ..WorkingSets::default() };
        assert_eq!(
            (sets.total().referenced, sets.duration(), sets.longest_cost()),
            (Bytes(48), seconds(12), seconds(12))
        );
        assert_eq!((sets.at(), sets.hugetlb()), (seconds(20), Bytes(4 * MIB)));
        assert_eq!(WorkingSets::default().duration(), Duration::ZERO);
    }
}
