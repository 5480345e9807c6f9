//! Stalls, reclaim activity and OOM kills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, Text};

/// Stalls of one kind of reclaim, of a process or of a cgroup.
///
/// ### Kinds of reclaim
///
/// | name | meaning |
/// |---|---|
/// | `direct` | A task reclaims pages because its allocation finds too few free ones. |
/// | `memcg` | A task reclaims pages because its cgroup is at its limit. |
/// | `compaction` | Pages are moved so that free pages become contiguous. |
/// | `kswapd` | The kernel's own thread reclaims pages before tasks have to. |
/// | `throttled` | Tasks sleep so that others can free pages. Time asleep within another kind counts there too. |
/// | `other` | Other reclaim, such as `madvise(MADV_PAGEOUT)`. |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Sum of the durations of the stalls.
    pub time_ns: u64,
    /// Duration of the longest stall.
    pub longest_ns: u64,
    /// Part of `time_ns` that the task slept so that other tasks could free pages.
    pub throttled_ns: u64,
    /// Inactive pages that the waiting tasks examined.
    pub scanned_pages: u64,
    /// Pages that the waiting tasks freed, including pages of the kernel's own caches.
    pub reclaimed_pages: u64,
    /// Histogram of durations. Empty classes are left out.
    pub latencies: Vec<LatencyClass>,
    /// Stalls by order of the allocation. Empty classes are left out.
    pub orders: Vec<OrderStalls>,
}

/// Class of durations of stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyClass {
    /// Upper bound of the durations: the stalls took less than this, and at least half of it. It is a power of two, 1
    /// for all durations below a microsecond, and `null` for 2^30 µs or more.
    pub below_us: Option<u64>,
    /// Number of stalls.
    pub count: u64,
}

/// Stalls for allocations of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStalls {
    /// The stalls were for 2^`order` contiguous pages. `null` if all memory was compacted, or if the kernel does not
    /// provide the order, as some older kernels do not for compaction.
    pub order: Option<u32>,
    /// Number of stalls.
    pub count: u64,
    /// Sum of the durations of the stalls.
    pub time_ns: u64,
}

/// Cgroup of the memory controller, with stalls.
///
/// A stall of kind `memcg` counts for the limiting cgroup, which is the process' own or an ancestor. All other stalls
/// count for the process' own cgroup. The kernel names the limiting cgroup since Linux 7.2. On older kernels it is
/// the innermost cgroup that is full when the stall starts. If none is full, it is the cgroup with the least free
/// space, if this space is at most an eighth of its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup<'a> {
    /// Inode number of the cgroup's directory. `null` for stalls of an unknown cgroup: stalls of kernel threads, and
    /// stalls for a limit outside of the process' own cgroups.
    pub id: Option<u64>,
    /// Path of the cgroup. `null` if the cgroup was removed before its path could be read, or is outside of the
    /// mounted hierarchy.
    pub path: Option<Text<'a>>,
    /// Stalls of the cgroup by [kind](#kinds-of-reclaim).
    pub stalls: Object<'a, Stalls>,
    /// Memory of the cgroup, if it could be read.
    pub memory: Option<CgroupMemory<'a>>,
}

/// Memory of a cgroup. Values that the kernel does not provide are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupMemory<'a> {
    /// Version of the cgroup hierarchy: 1 or 2.
    pub version: u32,
    /// Limit of the cgroup itself (`memory.max`, `memory.limit_in_bytes`); `null` without one.
    pub limit_bytes: Option<u64>,
    /// Throttling threshold of the cgroup itself (`memory.high`); `null` without one.
    pub high_bytes: Option<u64>,
    /// Memory use at the end of tracing.
    pub current_bytes: Option<u64>,
    /// Duration of the observation of the cgroup: since the start of tracing if it had a limit then, otherwise since
    /// the first stall in it. The following values refer to this time.
    pub watched_s: f64,
    /// Refaults in this cgroup and its descendants: pages that were needed again soon after they had been freed.
    pub refaulted_pages: Option<u64>,
    /// Pressure in the cgroup. Version 1 of the hierarchy has none.
    pub pressure: Option<StallPressure>,
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Number of seconds with pages that any task scanned for the limit of the cgroup.
    pub scanning_seconds: u64,
    /// Number of seconds with 256 or more refaults.
    pub paging_seconds: Option<u64>,
    /// Assessment of the cgroup, with the same values as for [the machine](#machine-reclaim). Without
    /// `refaulted_pages`, `near` can also mean `beyond`.
    pub assessment: Text<'a>,
}

/// Pressure stall information of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StallPressure {
    /// Time that at least one task waited for memory.
    pub some_s: f64,
    /// Time that all tasks with work waited for memory; `null` if the kernel does not provide it.
    pub full_s: Option<f64>,
}

/// Reclaim activity of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineReclaim<'a> {
    /// Activity of all tasks by [kind](#kinds-of-reclaim). Kinds without activity are left out.
    pub efforts: Object<'a, Effort>,
    /// Activity of each kernel thread, the longest time first. `efforts` include it.
    pub kernel_threads: Vec<KernelThread<'a>>,
    /// Differences of `/proc/vmstat`.
    pub vmstat: Vmstat,
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Number of seconds with scanned pages.
    pub scanning_seconds: u64,
    /// Number of seconds with 256 or more pages that were read back, by refaults or from swap.
    pub paging_seconds: u64,
    /// Assessment of the run. `beyond`: paging in at least half of the seconds; the working set is larger than the
    /// available memory. `near`: scanning in at least half of the seconds; the working set is about as large as the
    /// available memory. `bursts`: scanning in some seconds. `quiet`: scanning in no second. `too_short`: fewer than
    /// 4 seconds.
    pub assessment: Text<'a>,
    /// Pressure stall information; `null` if the kernel does not provide it.
    pub pressure: Option<StallPressure>,
    /// Tracepoints that this kernel lacks.
    pub missing_tracepoints: Vec<Text<'a>>,
}

/// Reclaim activity of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Effort {
    /// Number of runs of reclaim.
    pub times: u64,
    /// Sum of the durations of the runs.
    pub time_ns: u64,
    /// Inactive pages examined.
    pub scanned_pages: u64,
    /// Active pages examined.
    pub scanned_active_pages: u64,
    /// Inactive pages isolated.
    pub taken_pages: u64,
    /// Isolated pages that were freed.
    pub reclaimed_pages: u64,
    /// Pages deactivated.
    pub deactivated_pages: u64,
    /// Pages written out.
    pub written_pages: u64,
}

/// Reclaim activity of a kernel thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelThread<'a> {
    /// Name of the thread.
    pub name: Text<'a>,
    /// [Kind of reclaim](#kinds-of-reclaim).
    pub work: Text<'a>,
    /// Number of runs of reclaim.
    pub times: u64,
    /// Sum of the durations of the runs.
    pub time_ns: u64,
    /// Inactive pages examined.
    pub scanned_pages: u64,
    /// Pages freed.
    pub reclaimed_pages: u64,
}

/// Differences of `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Vmstat {
    /// Pages examined.
    pub scanned_pages: u64,
    /// Pages freed.
    pub reclaimed_pages: u64,
    /// Refaults: pages needed again soon after they had been freed.
    pub refaulted_pages: u64,
    /// Pages read from swap.
    pub swapped_in_pages: u64,
    /// Pages written to swap.
    pub swapped_out_pages: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
}

/// Process that the kernel killed for lack of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OomKill<'a> {
    /// Process id of the killed process.
    pub pid: u32,
    /// Name of the killed thread; empty if the kernel does not provide it.
    pub comm: Text<'a>,
    /// Process id of the process with the failed allocation.
    pub by_pid: u32,
    /// Name of the thread with the failed allocation.
    pub by_comm: Text<'a>,
    /// Path of the cgroup that the killed process' memory was charged to; `null` if unknown or removed.
    pub cgroup: Option<Text<'a>>,
    /// Path of the cgroup that was full: the cgroup of the process with the failed allocation, or an ancestor. `null`
    /// if none was full, or if the full cgroup is unknown or removed.
    pub full_cgroup: Option<Text<'a>>,
    /// Time of the kill since memtrace started.
    pub at_s: f64,
}
