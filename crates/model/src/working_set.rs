//! Working sets: resident memory of processes, and the memory that was touched within a period.

mod cache_use;
mod distinct;
mod faulted_pages;
mod fit;
mod frame_set;
mod method;
mod page_bits;
mod process;
mod touched_pages;

pub use self::cache_use::{CacheFit, CacheUse};
pub use self::distinct::{
    DistinctFrames, DistinctMemory, DistinctPages, MappingFrames, MeasuredMapping, ProcessFrames, UnknownFrames,
};
pub use self::faulted_pages::FaultedPages;
pub use self::fit::Fit;
pub use self::method::WorkingSetMethod;
pub use self::process::{ProcessWorkingSet, ReferencedMemory};
pub use self::touched_pages::{PagePart, PageState, TouchWindow, TouchedPages, TouchedProcesses};

use std::time::Duration;

use super::PerSecond;
use super::memory::MappingKind;
use super::units::Bytes;

/// Maximum share of shared pages for an estimate that adds up the pages of several processes.
const MOST_SHARED: f64 = 0.01;

/// Working sets of all selected processes at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingSets {
    /// Method of the measurement.
    pub method: WorkingSetMethod,
    /// Requested time between clearing and reading the references.
    pub requested: Duration,
    /// True if the references were cleared only once, before the first reading. Each later reading then includes the
    /// references of the earlier readings.
    pub is_cumulative: bool,
    /// Processes ordered by pid.
    pub processes: Vec<ProcessWorkingSet>,
    /// Memory of all processes together, with each page once, or the reason if it is not known; `None` if it was not
    /// counted, because there is a single process.
    pub distinct: Option<Result<DistinctMemory, UnknownFrames>>,
    /// Time that counting the page frames took.
    pub frames_time: Duration,
    /// Number of seconds of the measurement with scanning and with paging on the machine.
    pub seconds: PerSecond,
    /// Number of runs of kswapd during the measurement.
    pub kswapd_runs: u64,
    /// Cgroups with a memory limit, ordered by path: cgroups of the processes, and their ancestors.
    pub limits: Vec<LimitedGroup>,
    /// Number of further such cgroups.
    pub limits_left_out: u64,
    /// Page cache of the selected cgroups that no process has mapped: all bytes, and the touched bytes; `None` if it is
    /// not measured.
    pub unmapped_cache: Option<(Bytes, Bytes)>,
    /// Estimate of the memory that the processes need, if it was requested.
    pub fit: Option<Fit>,
    /// Use of the last-level cache since clearing, by the processes that ran at that time; `None` if it is not
    /// measured.
    pub cache: Option<CacheUse>,
    /// Number of page faults lost since clearing; `None` if the method does not trace page faults.
    pub lost_faults: Option<u64>,
    /// Number of selected processes that could not be measured since clearing.
    pub unmeasured: UnmeasuredProcesses,
}

/// A cgroup with a memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedGroup {
    pub path: String,
    /// The lower of `memory.max` and `memory.high`.
    pub limit: Bytes,
    /// Number of seconds of the measurement: all seconds, seconds at the limit (scanning), and seconds with paging of the
    /// cgroup.
    pub seconds: PerSecond,
}

/// Number of selected processes that could not be measured, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmeasuredProcesses {
    /// Number of processes that exited before they were read.
    pub exited: u64,
    /// Number of processes that memtrace has no permission to read.
    pub not_permitted: u64,
    /// Number of processes that could not be read for another reason.
    pub unreadable: u64,
}

impl WorkingSets {
    /// Returns the time when the reading of the last process ended.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.processes.iter().map(|process| process.read.end).max().unwrap_or_default()
    }

    /// Returns the sum of all processes. A page that several processes map counts several times, except in the PSS.
    #[must_use]
    pub fn total(&self) -> ReferencedMemory {
        self.processes.iter().map(ProcessWorkingSet::total).sum()
    }

    /// Returns the memory of all processes together. Unless the page frames are unknown, each resident page and each
    /// referenced page counts once. Huge pages and swapped out pages count once in each process.
    #[must_use]
    pub fn memory(&self) -> ReferencedMemory {
        self.with_distinct(self.total(), DistinctMemory::total)
    }

    /// Returns the memory of one kind, as [`Self::memory`] does.
    #[must_use]
    pub fn memory_of_kind(&self, kind: MappingKind) -> ReferencedMemory {
        let sum = self.processes.iter().map(|process| process.of_kind(kind)).sum();
        self.with_distinct(sum, |memory| memory.of_kind(kind))
    }

    /// Returns `sum` with the numbers of `pages`, which counts each page once, if the page frames are known.
    fn with_distinct(
        &self,
        sum: ReferencedMemory,
        pages: impl FnOnce(&DistinctMemory) -> DistinctPages,
    ) -> ReferencedMemory {
        let Some(Ok(memory)) = &self.distinct else { return sum };
        let DistinctPages { resident, referenced, least_referenced } = pages(memory);
        ReferencedMemory { resident, referenced, least_referenced, ..sum }
    }

    /// Returns the share of the resident pages of all processes that is mapped more than once, from 0 to 1.
    #[must_use]
    pub fn shared_part(&self) -> f64 {
        let total = self.total();
        total.shared.0 as f64 / total.resident.0.max(1) as f64
    }

    /// Returns the memory for the estimate of a limit: each page once, or the sum of the processes if the difference is small.
    ///
    /// # Errors
    ///
    /// The reason that the page frames are unknown, if more than 1 % of the pages of several processes are shared.
    pub fn memory_for_limit(&self) -> Result<DistinctMemory, UnknownFrames> {
        match &self.distinct {
            Some(Ok(memory)) => Ok(memory.clone()),
            Some(Err(reason)) if self.processes.len() > 1 && self.shared_part() > MOST_SHARED => Err(*reason),
            _ => Ok(DistinctMemory::of_processes(&self.processes)),
        }
    }

    /// Returns the size of the hugetlbfs pages of all processes.
    #[must_use]
    pub fn hugetlb(&self) -> Bytes {
        Bytes(self.processes.iter().map(|process| process.hugetlb.0).sum())
    }

    /// Returns the mean of the processes' estimated times ([`ProcessWorkingSet::duration`]).
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

/// Level and size of a processor cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Level of the cache: 2 or more.
    pub level: u8,
    /// Size of the cache.
    pub size: Bytes,
}

/// Sizes to compare with a working set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedSizes {
    /// True if there is a swap device or file.
    pub has_swap: bool,
    /// Caches of a processor, ordered by level.
    pub caches: Vec<CacheSize>,
    /// Memory that the entries of the largest data TLB cover with small pages; `None` if it is not known.
    pub tlb_reach: Option<Bytes>,
    /// Memory limit of the measured process's cgroup; `None` if there is no limit, or if several processes are
    /// measured.
    pub memory_limit: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Comm, Pid};

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

    /// Returns processes with a heap of 64 MiB each, including `shared` bytes of shared memory.
    fn sharing(processes: u32, shared: u64) -> WorkingSets {
        let heap = ReferencedMemory { shared: Bytes(shared), ..mapping(16 * MIB, 0) };
        let process = |pid| ProcessWorkingSet {
            pid: Pid(pid),
            comm: Comm::from("server"),
            cleared: Duration::ZERO..Duration::ZERO,
            read: Duration::ZERO..Duration::ZERO,
            kinds: vec![(MappingKind::Heap, heap)],
            hugetlb: Bytes(0),
            locked: None,
            paused: false,
            sizes_time: Duration::ZERO,
        };
        WorkingSets { processes: (1..=processes).map(process).collect(), ..WorkingSets::default() }
    }

    #[test]
    fn sums_count_known_frames_once() {
        let pages =
            DistinctPages { resident: Bytes(70 * MIB), referenced: Bytes(20 * MIB), ..DistinctPages::default() };
        let memory = DistinctMemory { kinds: vec![(MappingKind::Heap, pages)] };
        let sets = WorkingSets { distinct: Some(Ok(memory.clone())), ..sharing(3, 61 * MIB) };
        let expected = ReferencedMemory {
            resident: Bytes(70 * MIB),
            referenced: Bytes(20 * MIB),
            least_referenced: Bytes(0),
            ..sets.total()
        };
        assert_eq!((sets.memory(), sets.memory_of_kind(MappingKind::Heap)), (expected, expected));
        assert_eq!((sets.total().resident, sets.memory_for_limit()), (Bytes(192 * MIB), Ok(memory)));
        assert_eq!(sets.memory_of_kind(MappingKind::File), ReferencedMemory::default());
    }

    #[test]
    fn limit_of_sharing_processes_needs_frames() {
        let limit = |processes, shared| {
            let sets = sharing(processes, shared);
            WorkingSets { distinct: Some(Err(UnknownFrames::NotPermitted)), ..sets }.memory_for_limit()
        };
        let resident = |memory: DistinctMemory| memory.total().resident;
        assert_eq!(limit(2, 32 * MIB), Err(UnknownFrames::NotPermitted));
        assert_eq!(limit(2, 512 * KIB).map(resident), Ok(Bytes(128 * MIB)));
        assert_eq!(limit(1, 64 * MIB).map(resident), Ok(Bytes(64 * MIB)));
    }
}
