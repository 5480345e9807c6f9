//! Working sets: the resident memory of processes, and the part of it that was used within a time.

mod comparison;
mod fit;
mod knee;
mod method;
mod touched_pages;

pub use self::comparison::{CacheSize, ComparedSizes};
pub use self::fit::Fit;
pub use self::knee::knee;
pub use self::method::WorkingSetMethod;
pub use self::touched_pages::{PagePart, PageState, TouchWindow, TouchedPages, TouchedProcesses};

use std::iter::Sum;
use std::ops::{AddAssign, Range};
use std::time::Duration;

use super::Comm;
use super::PerSecond;
use super::memory::MappingKind;
use super::process::Pid;
use super::units::{Bytes, PAGE};

/// Resident memory, and its referenced part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferencedMemory {
    /// Resident pages.
    pub resident: Bytes,
    /// Resident, each page divided by the number of its mappings.
    pub pss: Bytes,
    /// Pages with a reference. A huge page counts as a whole: this is an upper bound.
    pub referenced: Bytes,
    /// Lower bound of the referenced bytes: one small page of each huge page, and no page that the kernel does not track.
    pub least_referenced: Bytes,
    /// Resident in huge pages.
    pub huge: Bytes,
}

impl ReferencedMemory {
    /// Returns the memory of a mapping with `huge` bytes in huge pages of `huge_page` bytes.
    ///
    /// The kernel reports references of a mapping, but not which of them are to huge pages. At most as many huge pages were
    /// referenced as fit into the referenced bytes.
    #[must_use]
    pub fn of_mapping(resident: Bytes, pss: Bytes, referenced: Bytes, huge: Bytes, huge_page: Bytes) -> Self {
        let most_huge = referenced.0.min(huge.0).checked_div(huge_page.0).unwrap_or(0);
        let untouched = huge_page.0.saturating_sub(PAGE.0).saturating_mul(most_huge);
        let least_referenced = Bytes(referenced.0.saturating_sub(untouched));
        Self { resident, pss, referenced, least_referenced, huge }
    }

    /// Returns the referenced share of the resident memory, from 0 to 1; `None` without resident memory.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.resident.0 > 0).then(|| self.referenced.0 as f64 / self.resident.0 as f64)
    }
}

impl AddAssign for ReferencedMemory {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.resident, other.resident),
            (&mut self.pss, other.pss),
            (&mut self.referenced, other.referenced),
            (&mut self.least_referenced, other.least_referenced),
            (&mut self.huge, other.huge),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

impl Sum for ReferencedMemory {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// Working set of a process. Times are those since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessWorkingSet {
    /// Its pid.
    pub pid: Pid,
    /// Its name when the references were cleared.
    pub comm: Comm,
    /// While the references were cleared.
    pub cleared: Range<Duration>,
    /// While they were read.
    pub read: Range<Duration>,
    /// Kinds of memory with resident pages, in the order of [`MappingKind::ALL`].
    pub kinds: Vec<(MappingKind, ReferencedMemory)>,
    /// Pages of hugetlbfs. They are no part of the RSS, and the kernel does not report their references.
    pub hugetlb: Bytes,
    /// Resident pages that are locked in memory (`mlock`); `None` if the method does not determine them.
    pub locked: Option<Bytes>,
    /// It was frozen while it was cleared and while it was read.
    pub paused: bool,
    /// Time in which the sizes of the mappings were read after the references; 0 for methods that read both at once.
    pub sizes_time: Duration,
}

impl ProcessWorkingSet {
    /// Returns the estimated time in which the references were made: from the middle of clearing to the middle of reading. A page
    /// in the middle of the address space is cleared and read at about these times. Pages with entries in a TLB count from the end
    /// of clearing on, so the error is half of the clearing time at most. A paused process touches nothing meanwhile.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if self.paused {
            return self.read.start.saturating_sub(self.cleared.end);
        }
        middle(&self.read).saturating_sub(middle(&self.cleared))
    }

    /// Returns the time that clearing took.
    #[must_use]
    pub fn clear_time(&self) -> Duration {
        length(&self.cleared)
    }

    /// Returns the time that reading took.
    #[must_use]
    pub fn read_time(&self) -> Duration {
        length(&self.read)
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> ReferencedMemory {
        self.kinds.iter().map(|(_, memory)| *memory).sum()
    }

    /// Returns the memory of a kind.
    #[must_use]
    pub fn of_kind(&self, kind: MappingKind) -> ReferencedMemory {
        self.kinds.iter().find(|(other, _)| *other == kind).map(|(_, memory)| *memory).unwrap_or_default()
    }
}

fn middle(span: &Range<Duration>) -> Duration {
    span.start + length(span) / 2
}

fn length(span: &Range<Duration>) -> Duration {
    span.end.saturating_sub(span.start)
}

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
    /// Memory that the processes need, if it was requested.
    pub fit: Option<Fit>,
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

#[cfg(test)]
mod tests {
    use super::*;

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
