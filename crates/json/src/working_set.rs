//! Reading of working sets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, Text, Tool};

/// `memtrace wss --format json` writes this object for each reading, in a line of its own.
///
/// CSV has a line of column names, and a line for each process and reading. The columns `at_s` to `hugetlb_bytes`
/// have the values of JSON, for all kinds together. For each kind, `KIND_rss_bytes` and `KIND_referenced_bytes`
/// follow. The numbers of processes that were not measured are not in CSV. Names that begin with `=`, `+`, `-` or `@`
/// have an apostrophe before them, and control characters are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkingSets<'a> {
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// `working-sets`.
    pub kind: Text<'a>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Method of the measurement: `referenced`, `idle`, `written`, `damon` or `faults`.
    pub method: Text<'a>,
    /// `true` if the references were cleared only once, before the first reading. Later readings then contain the
    /// earlier ones.
    pub cumulative: bool,
    /// Requested time between clearing the references and reading them.
    pub requested_s: f64,
    /// Time of the reading since the start.
    pub at_s: f64,
    /// Sum of all processes. Shared pages count in each, except in `pss_bytes`.
    pub total: WorkingSetMemory,
    /// All processes together, with each page once, by its page frame. `null` for a single process without `--fit`, or if
    /// the page frames are unknown.
    pub distinct: Option<DistinctMemory<'a>>,
    /// Reason why the page frames are unknown: `not_permitted` (without CAP_SYS_ADMIN), `late` (counting would have taken
    /// too long) or `unreadable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_frames: Option<Text<'a>>,
    /// The processes, by pid.
    pub processes: Vec<MeasuredProcess<'a>>,
    /// Number of selected processes that exited before they were read, since the references were cleared.
    pub exited: u64,
    /// Number of selected processes that memtrace may not read.
    pub not_permitted: u64,
    /// Number of selected processes that cannot be read for another reason.
    pub unreadable: u64,
    /// Only with `faults`: page faults since clearing that are missing in the reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_page_faults: Option<u64>,
    /// Only with `idle` and `--cgroup`, for cgroups of the hierarchy with the memory controller: page cache that no process
    /// has mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmapped_cache: Option<PageCache>,
    /// Use of the last-level cache in user mode since the references were cleared, by the processes that ran when
    /// they were cleared. `null` if no PMU counts it.
    pub last_level_cache: Option<CacheUse>,
    /// Reclaim of the machine since the start, without reclaim at limits of cgroups.
    pub machine: MachineSeconds,
    /// Cgroups of the processes with memory limits, and such ancestors, by path: at most 1,024.
    pub limits: Vec<LimitedGroup<'a>>,
    /// Number of further such cgroups.
    pub limits_left_out: u64,
    /// Only with `--fit`: estimate of a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
}

/// Memory of several processes. Each page counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistinctMemory<'a> {
    /// Sum of all kinds.
    pub total: DistinctPages,
    /// Memory by kind. A page that is mapped as two kinds counts in both.
    pub kinds: Object<'a, DistinctPages>,
}

/// Resident and referenced memory of several processes. Each page counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DistinctPages {
    /// Resident memory.
    pub rss_bytes: u64,
    /// Memory that was touched since the references were cleared. With `referenced`, it is an upper bound: if processes
    /// touch parts of the same memory, these may be the same pages or others.
    pub referenced_bytes: u64,
    /// Lower bound of `referenced_bytes`.
    pub least_referenced_bytes: u64,
}

/// Page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// Size of the page cache.
    pub bytes: u64,
    /// Part of `bytes` that was read or written since the references were cleared.
    pub referenced_bytes: u64,
}

/// Use of the last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheUse {
    /// Number of references to the cache.
    pub references: u64,
    /// Number of references that missed the cache.
    pub misses: u64,
}

/// Reclaim of the machine since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSeconds {
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Number of seconds with a scan of pages by the kernel for want of memory of the machine.
    pub scanning_seconds: u64,
    /// Number of these seconds with 1 MiB or more that was read back.
    pub paging_seconds: u64,
    /// Number of runs of kswapd.
    pub kswapd_runs: u64,
}

/// Cgroup with a memory limit, of a measured process or above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitedGroup<'a> {
    /// Path of the cgroup.
    pub cgroup: Text<'a>,
    /// The lower of its limits, `memory.max` and `memory.high`.
    pub limit_bytes: u64,
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Number of seconds with reclaim by the kernel, because the cgroup was to exceed the limit.
    pub seconds_at_limit: u64,
    /// Number of these seconds with 1 MiB or more that the cgroup read back.
    pub paging_seconds: u64,
}

/// Estimate of a memory limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// The estimated limit.
    pub needed_bytes: u64,
    /// `true` if the machine has swap.
    pub has_swap: bool,
    /// The lowest `memory.high` of the cgroup of the process and its ancestors; `null` if there is none, or for
    /// several processes.
    pub memory_high_bytes: Option<u64>,
}

/// Process of a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProcess<'a> {
    /// Process id in memtrace's pid namespace.
    pub pid: u32,
    /// Name of the process.
    pub name: Text<'a>,
    /// Measured time from the middle of clearing the references to the middle of reading them. If the process was
    /// frozen during both, from the end of clearing to the start of reading.
    pub estimated_s: f64,
    /// Time that clearing the references took.
    pub clear_s: f64,
    /// Time that reading the references took.
    pub read_s: f64,
    /// Sum of all kinds.
    pub total: WorkingSetMemory,
    /// Memory by kind: `heap` (of `brk`), `anonymous`, `file`, `stack` (of the main thread), `shmem` and `special` (vdso);
    /// without kinds that have no pages, resident or swapped out.
    pub kinds: Object<'a, WorkingSetMemory>,
    /// Pages of hugetlbfs. They are not part of the RSS, and the kernel does not report their references.
    pub hugetlb_bytes: u64,
    /// Resident pages that are locked in memory; `null` for methods other than `idle`.
    pub locked_bytes: Option<u64>,
}

/// Memory of a process or of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkingSetMemory {
    /// Resident memory.
    pub rss_bytes: u64,
    /// Resident memory, each page divided by the number of its mappings.
    pub pss_bytes: u64,
    /// Resident memory on pages that are mapped more than once, by this process or others.
    pub shared_bytes: u64,
    /// Memory that was touched since the references were cleared. A huge page counts as a whole. A page of a file
    /// counts even if [other processes have touched it](guide/working-sets.md#what-counts).
    pub referenced_bytes: u64,
    /// Lower bound of `referenced_bytes`: only one small page counts for each huge page that may have been touched,
    /// and pages that the kernel does not track do not count.
    pub least_referenced_bytes: u64,
    /// Resident memory in huge pages.
    pub huge_bytes: u64,
    /// Memory that is swapped out. It is in no other number.
    pub swap_bytes: u64,
}
