//! Memory of several processes at one moment. Each shared page counts once.

use std::ops::AddAssign;

use crate::{Bytes, CgroupMemory, Comm, MemoryCounters, Pid, Pressure};

/// Maximum number of processes in [`UnreadProcesses::named`] for each reason. The counts include all unread processes.
const MAX_NAMED: usize = 10;

/// Memory of the selected processes, and of their control groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectionExplanation {
    /// Description of the selection: `the processes of user www-data`.
    pub name: String,
    /// The largest processes by PSS, the largest first.
    pub processes: Vec<ProcessUse>,
    /// Other processes together.
    pub others: ProcessesUse,
    /// Processes that were not read.
    pub unread: UnreadProcesses,
    /// Control groups of the selection.
    pub cgroups: Vec<SelectedCgroup>,
    /// Paths of selected control groups whose memory is unknown, because the memory controller does not have the group.
    pub unknown_cgroups: Vec<String>,
    /// Memory of the machine, if all its processes are selected.
    pub machine: Option<MachineMemory>,
    /// Memory pressure of the machine, if the kernel measures it.
    pub pressure: Option<Pressure>,
    /// Number of reads that were given up, because a lock of a process or a file system did not answer in time.
    pub file_timeouts: u64,
}

/// Memory of a process of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process.
    pub comm: Comm,
    /// Sizes of the process.
    pub sizes: ProcessSizes,
    /// True if the free pages of the heap are known.
    pub is_heap_known: bool,
}

/// Number of processes with their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessesUse {
    /// Number of processes.
    pub processes: u64,
    /// Sum of the sizes.
    pub sizes: ProcessSizes,
}

/// Sizes of a process. Sizes of several processes can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSizes {
    /// Proportional set size (PSS): a page that n processes map counts as 1/n.
    pub pss: Bytes,
    /// Anonymous part of the PSS.
    pub anonymous: Bytes,
    /// Part of the PSS in files.
    pub file: Bytes,
    /// Part of the PSS in shared memory.
    pub shmem: Bytes,
    /// Resident pages that no other process maps (USS).
    pub private: Bytes,
    /// Resident set size. The sum of several processes counts shared pages several times.
    pub resident: Bytes,
    /// Swapped-out private memory. A page that n processes use counts as 1/n. The kernel does not divide swapped-out shared
    /// memory among processes, so it is not included.
    pub swap: Bytes,
    /// hugetlb pages, which are in neither the RSS nor the PSS. The sum of several processes counts shared pages several times.
    pub hugetlb: Bytes,
    /// Size of the page tables.
    pub page_tables: Bytes,
    /// Part of the PSS that can be returned to the kernel without loss and without swap.
    pub returnable: Returnable,
}

/// Memory that can be returned to the kernel, as parts of the PSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returnable {
    /// Estimate of the free pages of glibc's heap that malloc_trim(3) returns. They are known for the largest processes only.
    pub heap: Bytes,
    /// Pages that the program has freed with `MADV_FREE` and that are still resident.
    pub lazy_free: Bytes,
    /// Unmodified pages of files. The number can include unmodified pages of other kinds.
    pub clean_file: Bytes,
}

/// Control group of a selection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectedCgroup {
    /// Memory of the control group.
    pub memory: CgroupMemory,
    /// Path or directory that the user named to select the group; `None` if it is the common group of the processes.
    pub given: Option<String>,
    /// True if the selection consists of the processes of this group and its descendants.
    pub is_whole: bool,
}

/// Memory of the machine (`/proc/meminfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// Memory that the kernel manages.
    pub total: Bytes,
    /// Unused memory.
    pub free: Bytes,
    /// Memory that programs can get without swapping, as the kernel estimates it.
    pub available: Bytes,
    /// Pool of hugetlb pages, used or not, if the kernel reports it.
    pub hugetlb: Option<Bytes>,
    /// Memory by type.
    pub counters: MemoryCounters,
}

/// Reason that a selected process was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadReason {
    /// The process ended before it was read.
    Exited,
    /// The process uses the memory of its parent, which is selected too.
    SharesMemory,
    /// memtrace has no permission to read the process.
    NotPermitted,
    /// The process holds a lock of its memory, or its main thread has ended.
    Unreadable,
    /// The time for all processes was over.
    Late,
}

/// Selected process that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadProcess {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process; empty if it had ended.
    pub comm: Comm,
    /// RSS, if known. The kernel shows it to all users.
    pub rss: Option<Bytes>,
    /// Reason that the process was not read.
    pub reason: UnreadReason,
}

/// Selected processes that were not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadProcesses {
    /// Number of processes that ended before they were read.
    pub exited: u64,
    /// Number of processes that use the memory of their parent, which is selected too.
    pub shares_memory: u64,
    /// Number of processes that memtrace may not read.
    pub not_permitted: u64,
    /// Number of processes that cannot be read for another reason.
    pub unreadable: u64,
    /// Number of processes for which there was no time.
    pub late: u64,
    /// Sum of the known RSS of the processes that are missing in the sums.
    pub rss: Bytes,
    /// Some of the processes, at most ten for each reason.
    pub named: Vec<UnreadProcess>,
}

impl SelectionExplanation {
    /// Returns the number of all processes that were read, and the sum of their sizes.
    #[must_use]
    pub fn total(&self) -> ProcessesUse {
        self.rest(0)
    }

    /// Returns the number of processes with known free pages of the heap.
    #[must_use]
    pub fn known_heaps(&self) -> usize {
        self.processes.iter().filter(|process| process.is_heap_known).count()
    }

    /// Returns the sizes of the processes from `first` on.
    #[must_use]
    pub fn rest(&self, first: usize) -> ProcessesUse {
        let mut sum = self.others;
        self.processes.iter().skip(first).for_each(|process| sum.add(process.sizes));
        sum
    }

    /// Estimates the shared memory of a control group that no process maps: its shared memory without the part that the
    /// selected processes map. Returns `None` if the selection does not have all processes of the group.
    #[must_use]
    pub fn unmapped_shmem(&self, group: &SelectedCgroup) -> Option<Bytes> {
        if !group.is_whole || !self.unread.is_complete() {
            return None;
        }
        let counters = &group.memory.counters;
        let (least, most) = counters.unmapped_shmem()?;
        let mapped = self.total().sizes.shmem;
        Some(Bytes(counters.shmem?.0.saturating_sub(mapped.0)).clamp(least, most))
    }
}

impl ProcessesUse {
    /// Adds a process.
    pub fn add(&mut self, sizes: ProcessSizes) {
        self.processes += 1;
        self.sizes += sizes;
    }
}

impl AddAssign for ProcessSizes {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.pss, other.pss),
            (&mut self.anonymous, other.anonymous),
            (&mut self.file, other.file),
            (&mut self.shmem, other.shmem),
            (&mut self.private, other.private),
            (&mut self.resident, other.resident),
            (&mut self.swap, other.swap),
            (&mut self.hugetlb, other.hugetlb),
            (&mut self.page_tables, other.page_tables),
            (&mut self.returnable.heap, other.returnable.heap),
            (&mut self.returnable.lazy_free, other.returnable.lazy_free),
            (&mut self.returnable.clean_file, other.returnable.clean_file),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

impl Returnable {
    /// Returns the sum of all parts.
    #[must_use]
    pub const fn sum(&self) -> Bytes {
        Bytes(self.heap.0.saturating_add(self.lazy_free.0).saturating_add(self.clean_file.0))
    }
}

impl UnreadReason {
    /// All reasons, ordered as in reports.
    pub const ALL: [Self; 5] = [Self::Exited, Self::SharesMemory, Self::NotPermitted, Self::Unreadable, Self::Late];

    /// Returns true if the sums lack memory of the process.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::NotPermitted | Self::Unreadable | Self::Late)
    }

    /// Returns the name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::SharesMemory => "shares_memory",
            Self::NotPermitted => "not_permitted",
            Self::Unreadable => "unreadable",
            Self::Late => "late",
        }
    }

    /// Returns an explanation for the user.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Exited => "ended in the meantime",
            Self::SharesMemory => "the memory is that of the parent, and counts there, as after vfork",
            Self::NotPermitted => "no permission: this takes CAP_SYS_PTRACE",
            Self::Unreadable => "a lock of the memory is held, or the main thread has ended",
            Self::Late => "no time was left",
        }
    }
}

impl UnreadProcesses {
    /// Adds a process.
    pub fn add(&mut self, process: UnreadProcess) {
        *self.count_mut(process.reason) += 1;
        if process.reason.is_loss() {
            self.rss.0 = self.rss.0.saturating_add(process.rss.unwrap_or_default().0);
        }
        if self.named(process.reason).count() < MAX_NAMED {
            self.named.push(process);
        }
    }

    /// Returns the number of processes with this reason.
    #[must_use]
    pub const fn count(&self, reason: UnreadReason) -> u64 {
        match reason {
            UnreadReason::Exited => self.exited,
            UnreadReason::SharesMemory => self.shares_memory,
            UnreadReason::NotPermitted => self.not_permitted,
            UnreadReason::Unreadable => self.unreadable,
            UnreadReason::Late => self.late,
        }
    }

    const fn count_mut(&mut self, reason: UnreadReason) -> &mut u64 {
        match reason {
            UnreadReason::Exited => &mut self.exited,
            UnreadReason::SharesMemory => &mut self.shares_memory,
            UnreadReason::NotPermitted => &mut self.not_permitted,
            UnreadReason::Unreadable => &mut self.unreadable,
            UnreadReason::Late => &mut self.late,
        }
    }

    /// Returns the named processes with this reason.
    pub fn named(&self, reason: UnreadReason) -> impl Iterator<Item = &UnreadProcess> {
        self.named.iter().filter(move |process| process.reason == reason)
    }

    /// Returns true if the sums lack no memory of a process that still runs.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        UnreadReason::ALL.into_iter().all(|reason| !reason.is_loss() || self.count(reason) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, pss: u64, shmem: u64) -> ProcessUse {
        let sizes = ProcessSizes { pss: Bytes(pss), shmem: Bytes(shmem), ..ProcessSizes::default() };
        ProcessUse { pid: Pid(pid), comm: Comm::default(), sizes, is_heap_known: false }
    }

    #[test]
    fn the_total_includes_the_processes_beyond_the_list() {
        let mut others = ProcessesUse::default();
        others.add(process(9, 1, 0).sizes);
        others.add(process(8, 2, 0).sizes);
        let page = SelectionExplanation {
            processes: vec![process(1, 50, 0), process(2, 20, 0)],
            others,
            ..SelectionExplanation::default()
        };
        let sums = |found: ProcessesUse| (found.processes, found.sizes.pss.0);
        assert_eq!(sums(page.total()), (4, 73));
        assert_eq!([0, 1, 2, 9].map(|first| sums(page.rest(first))), [(4, 73), (3, 23), (2, 3), (2, 3)]);
    }

    #[test]
    fn unmapped_shared_memory_is_estimated_for_whole_groups_only() {
        let counters = MemoryCounters {
            file: Some(Bytes(500)),
            shmem: Some(Bytes(100)),
            mapped: Some(Bytes(80)),
            ..MemoryCounters::default()
        };
        let memory = CgroupMemory { counters, ..CgroupMemory::default() };
        let whole = SelectedCgroup { memory, given: None, is_whole: true };
        let mut page = SelectionExplanation { processes: vec![process(1, 40, 30)], ..SelectionExplanation::default() };
        assert_eq!(page.unmapped_shmem(&whole), Some(Bytes(70)));
        page.processes[0].sizes.shmem = Bytes(95);
        assert_eq!(page.unmapped_shmem(&whole), Some(Bytes(20)), "the kernel's counters are bounds");
        assert_eq!(page.unmapped_shmem(&SelectedCgroup { is_whole: false, ..whole.clone() }), None);
        page.unread.late = 1;
        assert_eq!(page.unmapped_shmem(&whole), None);
    }

    #[test]
    fn unread_processes_are_counted_and_some_are_named() {
        let mut unread = UnreadProcesses::default();
        let process = |pid, reason| UnreadProcess { pid: Pid(pid), comm: "a".into(), rss: Some(Bytes(7)), reason };
        (0..30).for_each(|pid| unread.add(process(pid, UnreadReason::Exited)));
        unread.add(process(30, UnreadReason::SharesMemory));
        assert!(unread.is_complete());
        unread.add(process(40, UnreadReason::Late));
        assert_eq!(UnreadReason::ALL.map(|reason| unread.count(reason)), [30, 1, 0, 0, 1]);
        assert_eq!((unread.rss, unread.is_complete()), (Bytes(7), false));
        assert_eq!(UnreadReason::ALL.map(|reason| unread.named(reason).count()), [MAX_NAMED, 1, 0, 0, 1]);
    }

    #[test]
    fn sums_of_hostile_sizes_saturate() {
        let most = ProcessSizes { pss: Bytes(u64::MAX), ..ProcessSizes::default() };
        let mut sum = ProcessesUse { processes: 1, sizes: most };
        sum.add(most);
        assert_eq!((sum.processes, sum.sizes.pss), (2, Bytes(u64::MAX)));
        let returnable = Returnable { heap: Bytes(u64::MAX), lazy_free: Bytes(1), clean_file: Bytes(1) };
        assert_eq!(returnable.sum(), Bytes(u64::MAX));
    }
}
