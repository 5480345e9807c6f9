//! Memory of a process at one moment, from kernel and allocator metadata.

use std::ops::AddAssign;
use std::path::PathBuf;

use crate::{Bytes, Comm, GoTotals, MappingKind, MemoryCounters, Pid, Pressure, Runtime, Tid};

/// Memory of a process by purpose. The sum, [`held`](Self::held), equals the RSS in `/proc/PID/smaps`.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process.
    pub comm: Comm,
    /// Path of the executable in the mount namespace of the process.
    pub exe: PathBuf,
    /// Language runtime of the program, if it is known.
    pub runtime: Option<Runtime>,
    /// Number of threads.
    pub threads: u32,
    /// The kernel's counters of the process.
    pub counted: StatusCounters,
    /// RSS before the analysis, if it changed during the analysis.
    pub before: Option<Bytes>,
    /// Heap of the allocator.
    pub heap: HeapMemory,
    /// Memory of Go's runtime; `None` if the program is not written in Go. Without totals, the memory is in `anonymous`.
    pub go: Option<GoMemory>,
    /// Anonymous memory outside the heap and the stacks, by name, the largest first.
    pub anonymous: Vec<NamedMemory>,
    /// Stack of the main thread.
    pub main_stack: MemorySizes,
    /// Stacks of the other threads, including cached stacks.
    pub thread_stacks: ThreadStacks,
    /// Mapped files, the largest first.
    pub files: Vec<FileMemory>,
    /// Shared memory by name, the largest first.
    pub shmem: Vec<NamedMemory>,
    /// Memory of the kernel (vdso) and of devices.
    pub special: MemorySizes,
    /// Huge pages from the kernel's pool (hugetlb). They are not in the RSS.
    pub hugetlb: MemorySizes,
    /// The memory of all mappings by kind of mapping.
    pub kinds: Vec<(MappingKind, MemorySizes)>,
    /// Proportional set size (PSS): a page that n processes map counts as 1/n.
    pub pss: Bytes,
    /// Memory of the process's control group, if the memory controller is enabled.
    pub cgroup: Option<CgroupMemory>,
    /// Memory pressure of the machine, if the kernel measures it.
    pub pressure: Option<Pressure>,
    /// Number of reads that were given up, because a lock of the process or a file system did not answer in time. The memory
    /// that these reads cover is in no part, or in a part with less detail.
    pub file_timeouts: u64,
}

/// Counters of a process (`/proc/PID/status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounters {
    /// Resident set size.
    pub rss: Bytes,
    /// Resident bytes of anonymous memory (`RssAnon`).
    pub anonymous: Bytes,
    /// Resident bytes of files (`RssFile`).
    pub file: Bytes,
    /// Resident bytes of shared memory (`RssShmem`).
    pub shmem: Bytes,
    /// High-water mark of the RSS.
    pub peak: Bytes,
    /// Mapped bytes, resident or not.
    pub virtual_size: Bytes,
    /// Swapped-out memory.
    pub swap: Bytes,
    /// Size of the page tables, which are not in the RSS.
    pub page_tables: Bytes,
}

/// Mapped, resident, swapped-out, huge-page and returnable bytes of some mappings. The sizes of different mappings can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySizes {
    /// Mapped bytes, resident or not.
    pub reserved: Bytes,
    /// Resident bytes.
    pub resident: Bytes,
    /// Swapped-out bytes.
    pub swap: Bytes,
    /// Resident bytes in huge pages.
    pub huge: Bytes,
    /// Resident bytes that can be returned to the kernel without loss and without swap: pages that the program has freed with
    /// `MADV_FREE`, unmodified pages of files, and free pages of the heap.
    pub returnable: Bytes,
}

impl AddAssign for MemorySizes {
    fn add_assign(&mut self, other: Self) {
        self.reserved.0 += other.reserved.0;
        self.resident.0 += other.resident.0;
        self.swap.0 += other.swap.0;
        self.huge.0 += other.huge.0;
        self.returnable.0 += other.returnable.0;
    }
}

impl MemorySizes {
    /// Subtracts the sizes of `part`. No result is less than 0.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self {
            reserved: Bytes(self.reserved.0.saturating_sub(part.reserved.0)),
            resident: Bytes(self.resident.0.saturating_sub(part.resident.0)),
            swap: Bytes(self.swap.0.saturating_sub(part.swap.0)),
            huge: Bytes(self.huge.0.saturating_sub(part.huge.0)),
            returnable: Bytes(self.returnable.0.saturating_sub(part.returnable.0)),
        }
    }
}

/// Heap of an allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapMemory {
    /// Name of the allocator; `None` if it is not known.
    pub allocator: Option<String>,
    /// Sizes of the allocator's mappings.
    pub held: MemorySizes,
    /// Statistics about blocks in use and free blocks, or the reason for their absence.
    pub source: HeapSource,
}

/// Source of the statistics about used and free heap memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapSource {
    /// The statistics are known from the allocator's metadata.
    Known(HeapStats),
    /// The statistics are not known. The text is the reason: `jemalloc does not mark its blocks`.
    Unknown(String),
}

impl Default for HeapSource {
    fn default() -> Self {
        Self::Unknown(String::from("there is none"))
    }
}

/// Statistics from the metadata of an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of blocks in use, with their headers. Blocks in thread caches and fast bins count as used.
    pub in_use: Bytes,
    /// Number of blocks in use.
    pub blocks: u64,
    /// Bytes of used blocks with mappings of their own.
    pub mapped: Bytes,
    /// Number of used blocks with mappings of their own.
    pub mapped_blocks: u64,
    /// Bytes of free blocks and of memory that was never allocated.
    pub free: Bytes,
    /// Resident bytes of the free pages that malloc_trim(3) returns to the kernel.
    pub trimmable: Bytes,
    /// Bytes of the allocator's metadata.
    pub own: Bytes,
    /// Number of arenas.
    pub arenas: u32,
    /// Resident bytes of blocks in use.
    pub in_use_resident: Bytes,
    /// Resident bytes of arenas that could not be read.
    pub undetermined: Bytes,
}

/// Memory that the runtime of a Go program has taken from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoMemory {
    /// Version of Go: `go1.27.3`; `None` if it is not known.
    pub version: Option<String>,
    /// The totals with the sizes of the memory, or the reason for their absence.
    pub source: GoSource,
    /// Heap profile that the runtime keeps.
    pub profile: GoProfile,
}

/// Source of the numbers of a Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoSource {
    /// The totals are known.
    Known(Box<GoSizes>),
    /// The totals are not known. The text is the reason: `the layout of the totals of go1.18 is not known`.
    Unknown(String),
}

/// Heap profile that the runtime of a Go program keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoProfile {
    /// memtrace can read the profile.
    Readable,
    /// The program keeps no profile.
    Off,
    /// memtrace cannot read the profile. The text is the reason.
    Unreadable(String),
}

/// Totals of a Go program, with the sizes of its memory as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoSizes {
    /// Totals that the runtime keeps.
    pub totals: GoTotals,
    /// Arenas without the stacks and the buffers of the collector.
    pub heap: MemorySizes,
    /// Stacks of goroutines. They are in the arenas.
    pub stacks: MemorySizes,
    /// Memory of the runtime itself, with the buffers of the collector.
    pub own: MemorySizes,
    /// Resident bytes of spans in use.
    pub in_use_resident: Bytes,
    /// Resident bytes of idle spans that have not been released. They can be returned to the kernel.
    pub idle_resident: Bytes,
}

/// Memory of all mappings with the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedMemory {
    /// Name that the process or the kernel has given; empty if there is none.
    pub name: String,
    /// Number of mappings with the name.
    pub mappings: u32,
    /// Sizes of the mappings.
    pub held: MemorySizes,
}

/// Stacks of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStacks {
    /// Sizes of all stacks together.
    pub held: MemorySizes,
    /// Number of stacks.
    pub stacks: u32,
    /// Running thread with the largest stack by resident bytes, and these bytes; `None` if no stack has a known thread.
    pub largest: Option<(Tid, Bytes)>,
}

/// A file that is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMemory {
    /// Path in the mount namespace of the process.
    pub path: String,
    /// Sizes of the file's mappings, with private copies of pages.
    pub held: MemorySizes,
    /// Resident bytes of private copies, which writes to private mappings have made.
    pub copied: Bytes,
}

/// Memory of a control group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupMemory {
    /// Path of the control group.
    pub path: String,
    /// Memory usage of the control group: all processes in it, its page cache, and kernel memory.
    pub current: Bytes,
    /// Highest usage so far, if the kernel reports it.
    pub peak: Option<Bytes>,
    /// Limit of the group or of an ancestor: the one with the least headroom; `None` if there is no limit.
    pub limit: Option<CgroupLimit>,
    /// Usage above which the kernel throttles and reclaims (`memory.high`), of the group or of an ancestor: the one
    /// with the least headroom; `None` if it is not set.
    pub high: Option<CgroupLimit>,
    /// Memory by type.
    pub counters: MemoryCounters,
    /// Events of the group.
    pub events: CgroupEvents,
    /// Pressure of the group, if the kernel measures it.
    pub pressure: Option<Pressure>,
}

/// Numbers of events of a control group since its creation. In version 2, they include the events of its descendants. A
/// number is `None` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupEvents {
    /// Reclaims because the usage exceeded `memory.high`.
    pub high: Option<u64>,
    /// Attempts to exceed the limit.
    pub max: Option<u64>,
    /// Allocations at the limit for which the kernel found nothing to reclaim.
    pub oom: Option<u64>,
    /// Processes that the OOM killer has killed.
    pub oom_kill: Option<u64>,
}

/// Limit of a control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Path of the group with the limit.
    pub path: String,
    /// Maximum memory usage of the group with the limit.
    pub most: Bytes,
    /// Memory usage of the group with the limit.
    pub current: Bytes,
}

impl Explanation {
    /// Returns the sum of heap, memory of Go's runtime, anonymous memory, stacks, files, shared memory and special memory.
    #[must_use]
    pub fn held(&self) -> MemorySizes {
        let mut sum = self.heap.held;
        if let Some(GoMemory { source: GoSource::Known(sizes), .. }) = &self.go {
            for part in [sizes.heap, sizes.stacks, sizes.own] {
                sum += part;
            }
        }
        for part in [self.main_stack, self.thread_stacks.held, self.special] {
            sum += part;
        }
        for part in self.anonymous.iter().chain(&self.shmem).map(|named| named.held) {
            sum += part;
        }
        for file in &self.files {
            sum += file.held;
        }
        sum
    }

    /// Returns the counted RSS minus the resident bytes in `held`; negative if `held` has more.
    #[must_use]
    pub const fn unexplained(&self, held: MemorySizes) -> i64 {
        self.counted.rss.0.wrapping_sub(held.resident.0).cast_signed()
    }

    /// Returns the explained share of the RSS, from 0 to 1. It is 1 minus the relative difference of RSS and sum.
    #[must_use]
    pub fn explained(&self) -> f64 {
        let rss = self.counted.rss.0;
        if rss == 0 {
            return 1.0;
        }
        let off = self.unexplained(self.held()).unsigned_abs();
        (1.0 - off as f64 / rss as f64).max(0.0)
    }
}
