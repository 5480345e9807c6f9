//! Reading of working sets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, Text, Tool};

/// `memtrace wss --format json` writes this object for each reading, in a line of its own.
///
/// CSV has a line of column names, and a line for each process and reading. `at_s` to `hugetlb_bytes` are those of JSON,
/// of all kinds together. For each kind, `KIND_rss_bytes` and `KIND_referenced_bytes` follow. Numbers of processes that
/// were not measured are not in CSV. Names that begin with `=`, `+`, `-` or `@` have an apostrophe before them, and
/// control characters are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkingSets<'a> {
    /// Program that wrote it.
    pub tool: Tool<'a>,
    /// `working-sets`.
    pub kind: Text<'a>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Method of the measurement: `referenced`, `idle`, `written`, `damon` or `faults`.
    pub method: Text<'a>,
    /// The references were cleared once, before the first reading: later readings contain the earlier ones.
    pub cumulative: bool,
    /// Requested time between clearing and reading.
    pub requested_s: f64,
    /// Time of the reading since the start.
    pub at_s: f64,
    /// Sum of all processes. Shared pages count in each, except in `pss_bytes`.
    pub total: WorkingSetMemory,
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
    /// Use of the last-level cache in user mode since the references were cleared, by the processes that ran then. `null`
    /// if no PMU counts it.
    pub last_level_cache: Option<CacheUse>,
    /// Reclaim of the machine since the start.
    pub machine: MachineSeconds,
    /// Only with `--fit`: estimate of a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
}

/// Page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCache {
    /// Its size.
    pub bytes: u64,
    /// The part that was read or written.
    pub referenced_bytes: u64,
}

/// Use of the last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheUse {
    /// References.
    pub references: u64,
    /// Misses.
    pub misses: u64,
}

/// Reclaim of the machine since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineSeconds {
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Seconds in which pages were scanned.
    pub scanning_seconds: u64,
    /// Seconds in which 1 MiB or more was read back.
    pub paging_seconds: u64,
    /// Number of runs of kswapd.
    pub kswapd_runs: u64,
}

/// Estimate of a memory limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// The estimated limit.
    pub needed_bytes: u64,
    /// The machine has swap.
    pub has_swap: bool,
    /// The lowest `memory.high` of the cgroups of the process; `null` for none or for several processes.
    pub memory_high_bytes: Option<u64>,
}

/// Process of a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProcess<'a> {
    /// Process id in memtrace's pid namespace.
    pub pid: u32,
    /// Name of the process.
    pub name: Text<'a>,
    /// Measured time between clearing and reading: from the middle of one to the middle of the other.
    pub estimated_s: f64,
    /// Time that clearing took.
    pub clear_s: f64,
    /// Time that reading took.
    pub read_s: f64,
    /// Sum of all kinds.
    pub total: WorkingSetMemory,
    /// Memory by kind: `heap` (of `brk`), `anonymous`, `file`, `stack` (of the main thread), `shmem` and `special` (vdso);
    /// without kinds that have no resident pages.
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
    /// Memory that was touched since the references were cleared. Huge pages count as a whole, and pages of files also if
    /// [other processes have touched them](guide/working-sets.md#what-counts).
    pub referenced_bytes: u64,
    /// The same with only one small page of each huge page that may have been touched, and without pages that the kernel
    /// does not track.
    pub least_referenced_bytes: u64,
    /// Resident memory in huge pages.
    pub huge_bytes: u64,
}
