//! Parts of the RSS of a process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, Tool};

/// `memtrace explain --pid N --format json`, or `-o FILE.json`, writes this object with the parts of a process' RSS.
/// Sizes are multiples of a page, except for sizes of blocks.
///
/// `rss_bytes` = `heap` + `anonymous` + `main_stack` + `thread_stacks` + `files` + `shmem` + `special` +
/// `unexplained_bytes`, by their `resident_bytes`.
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
    /// Bytes of the arenas' own data.
    pub own_bytes: u64,
    /// Resident bytes of arenas with headers that are swapped out or could not be read consistently.
    pub untold_resident_bytes: u64,
    /// Number of arenas.
    pub arenas: u32,
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

/// Memory of the cgroup of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupUse<'a> {
    /// Path of the cgroup.
    pub path: Text<'a>,
    /// Memory use of the cgroup.
    pub current_bytes: u64,
    /// Anonymous part of `current_bytes`.
    pub anonymous_bytes: Option<u64>,
    /// Page cache part of `current_bytes`.
    pub file_bytes: Option<u64>,
    /// The lowest limit of the cgroup and its ancestors; `null` if none has a limit.
    pub limit: Option<CgroupLimit<'a>>,
    /// Pressure in the cgroup.
    pub pressure: Option<Pressure>,
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
