//! Parts of the RSS of a process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTotals, Text, Tool};

/// `memtrace explain --pid N --format json`, or `-o FILE.json`, writes this object with the parts of a process' RSS.
/// Sizes are multiples of a page, except for sizes of blocks.
///
/// `rss_bytes` = `heap` + `heap`, `stacks` and `own` of `go` + `anonymous` + `main_stack` + `thread_stacks` + `files` + `shmem` +
/// `special` + `unexplained_bytes`, by their `resident_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation<'a> {
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// Process id.
    pub pid: u32,
    /// Short name.
    pub comm: Text<'a>,
    /// Path of the executable as the process sees it.
    pub exe: Text<'a>,
    /// Number of threads.
    pub threads: u32,
    /// RSS as the kernel counts it (`VmRSS`).
    pub rss_bytes: u64,
    /// RSS before the mappings were read; `null` if it equals `rss_bytes`.
    pub rss_before_bytes: Option<u64>,
    /// Peak RSS (`VmHWM`).
    pub rss_peak_bytes: u64,
    /// Anonymous part of the RSS, as the kernel counts it. It includes the process' own copies of file pages.
    pub rss_anonymous_bytes: u64,
    /// File part of the RSS, as the kernel counts it.
    pub rss_file_bytes: u64,
    /// Shared memory part of the RSS, as the kernel counts it.
    pub rss_shmem_bytes: u64,
    /// PSS: RSS with each page divided by the number of processes that map it.
    pub pss_bytes: u64,
    /// Mapped memory (`VmSize`). Not all of it is in the RSS.
    pub virtual_bytes: u64,
    /// Swapped-out memory (`VmSwap`), which is not in the RSS.
    pub swap_bytes: u64,
    /// Memory of page tables (`VmPTE`), which is not in the RSS.
    pub page_table_bytes: u64,
    /// RSS as the kernel counts it, minus the resident memory of all mappings. It can be negative.
    pub unexplained_bytes: i64,
    /// 1 minus the absolute value of `unexplained_bytes` divided by `rss_bytes`: from 0 to 1.
    pub explained: f64,
    /// Memory of the allocator.
    pub heap: Heap<'a>,
    /// Memory of Go's runtime; `null` if the program is not written in Go.
    pub go: Option<GoMemory<'a>>,
    /// Other private memory without a file, by name, the largest first. A name is given by the process
    /// (`PR_SET_VMA_ANON_NAME`) or describes the memory.
    pub anonymous: Vec<NamedMemory<'a>>,
    /// Stack of the main thread.
    pub main_stack: Sizes,
    /// Stacks of the other threads with their guard pages.
    pub thread_stacks: ThreadStacks,
    /// Files, the largest first.
    pub files: Vec<FileMemory<'a>>,
    /// Shared memory without a file on disk, by name, the largest first.
    pub shmem: Vec<NamedMemory<'a>>,
    /// Pages of the kernel (vdso) and of devices.
    pub special: Sizes,
    /// Huge pages from the kernel's pool. They are not in the RSS.
    pub hugetlb: Sizes,
    /// Memory of all mappings by kind of mapping.
    pub kinds: Vec<KindMemory<'a>>,
    /// Cgroup of the process in the hierarchy with the memory controller; `null` if its memory could not be read.
    pub cgroup: Option<CgroupUse<'a>>,
    /// Memory pressure of the machine; `null` if the kernel does not measure it.
    pub pressure: Option<Pressure>,
    /// Number of reads that were given up, since a lock of the process or a file system did not answer in time. If it is
    /// not 0, the parts are incomplete.
    pub file_timeouts: u64,
}

/// `memtrace explain` writes this object for several processes: with `--children`, `--cgroup`, `--comm`, `--exe`, `--user`,
/// `--all`, or more than one `--pid`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelectionExplanation<'a> {
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// Description of the selection.
    pub selection: Text<'a>,
    /// Sum of all processes that were read.
    pub total: ProcessSum,
    /// The processes that were read, the largest PSS first: at most 65,536.
    pub processes: Vec<ExplainedProcess<'a>>,
    /// Sum of the processes that were read and are not in `processes`. They are smaller.
    pub others: ProcessSum,
    /// Selected processes that were not read.
    pub unread: UnreadProcesses<'a>,
    /// The cgroups of `--cgroup`; otherwise the cgroup that contains all processes, if there is one.
    pub cgroups: Vec<SelectedCgroup<'a>>,
    /// Paths of `--cgroup` for which the memory controller has no cgroup.
    pub unknown_cgroups: Vec<Text<'a>>,
    /// With `--all`: memory of the machine.
    pub machine: Option<MachineMemory>,
    /// Memory pressure of the machine; `null` if the kernel does not measure it.
    pub pressure: Option<Pressure>,
    /// Number of reads that were given up, since a lock of a process or a file system did not answer in time.
    pub file_timeouts: u64,
}

/// Number of processes, and the sum of their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSum {
    /// Number of processes.
    pub processes: u64,
    /// Sum of the sizes.
    #[serde(flatten)]
    pub sizes: ProcessSizes,
}

/// Sizes of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSizes {
    /// PSS: RSS with each page divided by the number of processes that map it. The sum of several processes counts a page once
    /// that only they share.
    pub pss_bytes: u64,
    /// Anonymous part of the PSS.
    pub pss_anonymous_bytes: u64,
    /// Part of the PSS in files.
    pub pss_file_bytes: u64,
    /// Part of the PSS in shared memory.
    pub pss_shmem_bytes: u64,
    /// Resident pages that no other process maps (USS).
    pub private_bytes: u64,
    /// RSS. The sum of several processes counts shared pages several times.
    pub rss_bytes: u64,
    /// Swapped-out private memory. Pages of several processes are divided, as in the PSS. Swapped-out shared memory is not
    /// included, because the kernel does not divide it among processes.
    pub swap_bytes: u64,
    /// hugetlb pages, which are in neither the RSS nor the PSS. The sum of several processes counts shared pages several times.
    pub hugetlb_bytes: u64,
    /// Memory of page tables, which is not in the RSS.
    pub page_table_bytes: u64,
    /// Part of the PSS that can be returned to the kernel without loss and without swap: the sum of the next three.
    pub returnable_bytes: u64,
    /// Estimate of the free pages of glibc's heap that malloc_trim(3) returns, if they are shared as all anonymous pages of the
    /// process are; 0 if they are not known.
    pub free_heap_bytes: u64,
    /// Pages that the program has freed with `MADV_FREE`.
    pub lazy_free_bytes: u64,
    /// Unmodified pages of files. The number can include unmodified pages of other kinds.
    pub clean_file_bytes: u64,
}

/// Process of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedProcess<'a> {
    /// Process id.
    pub pid: u32,
    /// Short name.
    pub comm: Text<'a>,
    /// `true` if `free_heap_bytes` is known. It is for at most 50 processes with a heap of glibc, the largest ones.
    pub heap_known: bool,
    /// Sizes of the process.
    #[serde(flatten)]
    pub sizes: ProcessSizes,
}

/// Selected processes that were not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadProcesses<'a> {
    /// Number of processes that ended before they were read.
    pub exited: u64,
    /// Number of processes that use the memory of their parent, which is selected too, as after vfork. It counts there.
    pub shares_memory: u64,
    /// Number of processes that memtrace may not read.
    pub not_permitted: u64,
    /// Number of processes that cannot be read for another reason.
    pub unreadable: u64,
    /// Number of processes for which there was no time.
    pub late: u64,
    /// Sum of the known RSS of the processes that are missing in the sums.
    pub rss_bytes: u64,
    /// Some of the processes, at most ten for each reason.
    pub named: Vec<UnreadProcess<'a>>,
}

/// Selected process that was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadProcess<'a> {
    /// Process id.
    pub pid: u32,
    /// Short name; empty if the process had ended.
    pub comm: Text<'a>,
    /// RSS, if known.
    pub rss_bytes: Option<u64>,
    /// `exited`, `shares_memory`, `not_permitted`, `unreadable` or `late`.
    pub reason: Text<'a>,
}

/// Cgroup of a selection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedCgroup<'a> {
    /// `true` if the selection consists of the processes of this cgroup and its descendants.
    pub whole: bool,
    /// Estimate of the part of `shmem_bytes` that no process maps, between the two bounds: without the shared memory in the PSS
    /// of the processes. `null` if the selection does not have all processes of the cgroup.
    pub unmapped_shmem_estimate_bytes: Option<u64>,
    /// Memory of the cgroup.
    #[serde(flatten)]
    pub cgroup: CgroupUse<'a>,
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineMemory {
    /// Memory that the kernel manages.
    pub total_bytes: u64,
    /// Unused memory.
    pub free_bytes: u64,
    /// Memory that programs can get without swapping, as the kernel estimates it.
    pub available_bytes: u64,
    /// Pool of hugetlb pages, used or not; `null` if the kernel does not report it.
    pub hugetlb_bytes: Option<u64>,
    /// Memory by type.
    #[serde(flatten)]
    pub counters: MemoryCounters,
}

/// Sizes of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sizes {
    /// Mapped bytes, touched or not.
    pub reserved_bytes: u64,
    /// Bytes in the RSS.
    pub resident_bytes: u64,
    /// Swapped-out bytes.
    pub swap_bytes: u64,
    /// Part of the resident bytes that is mapped by huge pages.
    pub huge_bytes: u64,
    /// Part of the resident bytes that can be returned to the kernel without loss and without swap: pages that the program has
    /// freed with `MADV_FREE`, unmodified pages of files and, in `heap` only, the free pages that malloc_trim(3) returns.
    pub returnable_bytes: u64,
}

/// Memory of the allocator.
///
/// In terms of mallinfo(3), `in_use_bytes` - `mapped_bytes` + `own_bytes` of `blocks` is `uordblks` + `fsmblks`,
/// `free_bytes` is `fordblks` - `fsmblks`, and `mapped_bytes` is `hblkhd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heap<'a> {
    /// Allocator: `glibc`, `jemalloc`, … For allocators other than glibc, the heap is all anonymous memory without
    /// another name.
    pub allocator: Option<Text<'a>>,
    /// Sizes of the allocator's mappings.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Numbers from glibc's block headers; `null` if they were not read.
    pub blocks: Option<HeapBlocks>,
    /// Reason why the block headers were not read; `null` if they were read.
    pub not_told: Option<Text<'a>>,
}

/// Sums over glibc's block headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapBlocks {
    /// Bytes of blocks in use with their headers, touched or not. Small freed blocks in glibc's caches (tcache,
    /// fastbins) count as in use.
    pub in_use_bytes: u64,
    /// Number of blocks in use.
    pub in_use_count: u64,
    /// Resident bytes of blocks in use.
    pub in_use_resident_bytes: u64,
    /// Bytes of blocks in use that have mappings of their own.
    pub mapped_bytes: u64,
    /// Number of blocks in use that have mappings of their own.
    pub mapped_count: u64,
    /// Bytes of free blocks, and of memory that was never handed out.
    pub free_bytes: u64,
    /// Resident bytes of the free pages that malloc_trim(3) returns. Small freed blocks in glibc's caches can be next to them,
    /// so it may return more.
    pub trimmable_bytes: u64,
    /// Bytes of the arenas' own data.
    pub own_bytes: u64,
    /// Resident bytes of arenas with headers that are swapped out or could not be read consistently.
    pub untold_resident_bytes: u64,
    /// Number of arenas.
    pub arenas: u32,
}

/// Memory of Go's runtime.
///
/// The sizes are 0 if `totals` is `null`: the memory is then part of `anonymous`. Resident pages of the arenas are taken to be
/// stacks, the collector's buffers, spans in use and idle spans, in this order, because the runtime does not count pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoMemory<'a> {
    /// Version of Go, such as `go1.27.3`; `null` if it is not known.
    pub version: Option<Text<'a>>,
    /// Arenas without stacks and buffers of the collector: spans in use, idle and released spans. Idle spans that have not been
    /// released are `returnable_bytes`.
    pub heap: Sizes,
    /// Stacks of goroutines.
    pub stacks: Sizes,
    /// Memory that the runtime has mapped for itself, and buffers of the collector. Memory of the program without a name, such as
    /// an anonymous mapping of its own, counts here up to the number of bytes in the totals.
    pub own: Sizes,
    /// Totals that the runtime keeps; `null` if they were not read.
    pub totals: Option<GoTotals>,
    /// Reason why the totals were not read; `null` if they were read.
    pub not_told: Option<Text<'a>>,
    /// `readable` if `memtrace --pid` reads the heap profile that the program keeps, `off` if the program keeps none, `unreadable`
    /// if memtrace cannot read it.
    pub profile: Text<'a>,
    /// Reason why memtrace cannot read the profile; otherwise `null`.
    pub profile_not_told: Option<Text<'a>>,
}

/// Mappings with the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedMemory<'a> {
    /// Name of the mappings.
    pub name: Text<'a>,
    /// Number of mappings.
    pub mappings: u32,
    /// Sizes of the mappings.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// Stacks of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadStacks {
    /// Number of stacks, including stacks cached for new threads.
    pub count: u32,
    /// Sizes of the stacks.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Id of the thread with the largest stack. Stacks of unknown threads do not count.
    pub largest_thread: Option<u32>,
    /// Resident bytes of the stack of `largest_thread`.
    pub largest_resident_bytes: Option<u64>,
}

/// Mappings of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileMemory<'a> {
    /// Path of the file.
    pub path: Text<'a>,
    /// Sizes of the mappings of the file.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Resident bytes of the process' own copies of pages that it wrote to.
    pub copied_bytes: u64,
}

/// Mappings of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindMemory<'a> {
    /// `heap` (from `brk`), `anonymous`, `file`, `stack` (of the main thread), `shmem`, `hugetlb` or `special`.
    pub kind: Text<'a>,
    /// Sizes of the mappings.
    #[serde(flatten)]
    pub sizes: Sizes,
}

/// Memory of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupUse<'a> {
    /// Path of the cgroup.
    pub path: Text<'a>,
    /// Memory use of the cgroup and its descendants: their processes, their page cache, and kernel memory.
    pub current_bytes: u64,
    /// Highest memory use; `null` if the kernel does not report it.
    pub peak_bytes: Option<u64>,
    /// Memory by type.
    #[serde(flatten)]
    pub counters: MemoryCounters,
    /// Limit with the least headroom, of the cgroup or an ancestor; `null` if there is none.
    pub limit: Option<CgroupLimit<'a>>,
    /// `memory.high` with the least headroom, of the cgroup or an ancestor; `null` if there is none.
    pub high: Option<CgroupLimit<'a>>,
    /// Events of the cgroup.
    pub events: CgroupEvents,
    /// Pressure in the cgroup.
    pub pressure: Option<Pressure>,
}

/// Memory by type, as the kernel counts it. A number is `null` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryCounters {
    /// Anonymous memory of processes.
    pub anonymous_bytes: Option<u64>,
    /// Page cache, including shared memory.
    pub file_bytes: Option<u64>,
    /// Shared memory: files of tmpfs, memfds, System V segments and shared anonymous mappings.
    pub shmem_bytes: Option<u64>,
    /// Part of `file_bytes` that at least one process maps.
    pub mapped_bytes: Option<u64>,
    /// Part of `file_bytes` that no process maps.
    pub unmapped_bytes: Option<u64>,
    /// Lower bound of the part of `shmem_bytes` that no process maps. The kernel counts the mapped part of the whole page cache
    /// only.
    pub unmapped_shmem_least_bytes: Option<u64>,
    /// Upper bound of the part of `shmem_bytes` that no process maps.
    pub unmapped_shmem_most_bytes: Option<u64>,
    /// Part of `file_bytes` that is not on disk yet.
    pub dirty_bytes: Option<u64>,
    /// Part of `file_bytes` that the kernel can drop without writing it: unmodified pages of files on disk.
    pub clean_bytes: Option<u64>,
    /// Swapped-out memory.
    pub swap_bytes: Option<u64>,
    /// Memory of the kernel itself.
    pub kernel: KernelMemory,
}

/// Memory of the kernel itself by use. A number is `null` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelMemory {
    /// Sum of all uses. If the kernel does not report it: sum of the known uses.
    pub bytes: Option<u64>,
    /// Slab memory that the kernel can reclaim, such as cached directory entries and inodes.
    pub slab_reclaimable_bytes: Option<u64>,
    /// Slab memory that the kernel cannot reclaim.
    pub slab_unreclaimable_bytes: Option<u64>,
    /// Kernel stacks of threads.
    pub stack_bytes: Option<u64>,
    /// Page tables.
    pub page_table_bytes: Option<u64>,
    /// Buffers of sockets; in version 1 of TCP only.
    pub socket_bytes: Option<u64>,
    /// Data with a copy for each processor.
    pub per_cpu_bytes: Option<u64>,
    /// Memory that was mapped for the kernel by vmalloc.
    pub vmalloc_bytes: Option<u64>,
    /// Compressed pages of swapped-out memory (zswap).
    pub zswap_bytes: Option<u64>,
}

/// Numbers of events of a cgroup since its creation, in version 2 with events of its descendants. A number is
/// `null` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupEvents {
    /// Reclaims because the use exceeded `memory.high`.
    pub high: Option<u64>,
    /// Attempts to exceed the limit.
    pub max: Option<u64>,
    /// Allocations at the limit for which the kernel found nothing to reclaim.
    pub oom: Option<u64>,
    /// Processes that the OOM killer has killed.
    pub oom_kill: Option<u64>,
}

/// Limit of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupLimit<'a> {
    /// Path of the cgroup that has the limit.
    pub path: Text<'a>,
    /// The limit.
    pub limit_bytes: u64,
    /// Memory use of the cgroup that has the limit.
    pub current_bytes: u64,
}

/// Pressure stall information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// Share of the time that at least one task waited for memory.
    pub some: PressureShares,
    /// Share of the time that all tasks waited for memory; `null` if the kernel does not measure it.
    pub full: Option<PressureShares>,
}

/// Shares of the time that tasks waited for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureShares {
    /// Percent of the last 10 seconds.
    pub percent_10s: f64,
    /// Percent of the last minute.
    pub percent_60s: f64,
    /// Percent of the last five minutes.
    pub percent_300s: f64,
    /// Total waiting time since boot, or since the cgroup was created.
    pub total_s: f64,
}
