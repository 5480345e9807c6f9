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
/// | `memcg` | A task reclaims pages of its cgroup, which is at its limit. |
/// | `compaction` | Pages are moved so that free pages become contiguous. |
/// | `kswapd` | The kernel's own thread reclaims pages before tasks have to. |
/// | `throttled` | Tasks sleep so that others can free pages. Time asleep within another kind counts there too. |
/// | `other` | Other reclaim, such as `madvise(MADV_PAGEOUT)`. |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// Number of stalls.
    pub count: u64,
    /// Sum of their durations.
    pub time_ns: u64,
    /// The longest one.
    pub longest_ns: u64,
    /// Part of the time in which the task slept so that others could free pages.
    pub throttled_ns: u64,
    /// Inactive pages that the waiting tasks examined.
    pub scanned_pages: u64,
    /// Pages that they freed, including those of the kernel's own caches.
    pub reclaimed_pages: u64,
    /// Histogram of durations. Empty classes are left out.
    pub latencies: Vec<LatencyClass>,
    /// Stalls by order of the allocation. Empty classes are left out.
    pub orders: Vec<OrderStalls>,
}

/// Class of durations of stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyClass {
    /// The stalls took less, and at least half of that. A power of two, 1 for less than a microsecond, and `null` for
    /// 2^30 or more.
    pub below_us: Option<u64>,
    /// Number of stalls.
    pub count: u64,
}

/// Stalls for allocations of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderStalls {
    /// The stalls were for 2^`order` contiguous pages. `null` if all memory was compacted, or if the kernel does not
    /// provide it, as some older ones for compaction.
    pub order: Option<u32>,
    /// Number of stalls.
    pub count: u64,
    /// Sum of their durations.
    pub time_ns: u64,
}

/// Cgroup of the memory controller, with stalls.
///
/// A stall of kind `memcg` counts for the cgroup that has the limit, which can be an ancestor of the process' own. All
/// other stalls count for the process' own cgroup. The kernel names the limiting cgroup since Linux 7.2. On older kernels
/// it is the innermost cgroup that is full when the stall starts, or else the one with the least free space, if that is
/// at most an eighth of its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup<'a> {
    /// Inode number of the cgroup's directory. `null` for stalls of an unknown cgroup: those of kernel threads, and those
    /// for a limit outside of the process' own cgroups.
    pub id: Option<u64>,
    /// Path of the cgroup. `null` if it was removed before it could be read, or is outside of the mounted hierarchy.
    pub path: Option<Text<'a>>,
    /// Its stalls by [kind](#kinds-of-reclaim).
    pub stalls: Object<'a, Stalls>,
    /// Its memory, if it could be read.
    pub memory: Option<CgroupMemory<'a>>,
}

/// Memory of a cgroup. Values that the kernel does not provide are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CgroupMemory<'a> {
    /// Version of the cgroup hierarchy: 1 or 2.
    pub version: u32,
    /// Its own limit (`memory.max`, `memory.limit_in_bytes`); `null` without one.
    pub limit_bytes: Option<u64>,
    /// Its throttling threshold (`memory.high`); `null` without one.
    pub high_bytes: Option<u64>,
    /// Use at the end.
    pub current_bytes: Option<u64>,
    /// Time for which it was observed: from the start if it had a limit then, otherwise since the first stall in it. The
    /// following values refer to this time.
    pub watched_s: f64,
    /// Pages that were needed again soon after they had been freed, in this cgroup and those below it.
    pub refaulted_pages: Option<u64>,
    /// Pressure in the cgroup. Version 1 has none.
    pub pressure: Option<StallPressure>,
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Seconds in which pages were scanned for its limit, by any task.
    pub scanning_seconds: u64,
    /// Seconds in which 256 or more pages came back.
    pub paging_seconds: Option<u64>,
    /// As for [the machine](#machine-reclaim). Without `refaulted_pages`, `near` can also mean `beyond`.
    pub assessment: Text<'a>,
}

/// Pressure stall information of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StallPressure {
    /// Time in which at least one task waited for memory.
    pub some_s: f64,
    /// Time in which all tasks with work waited for memory; `null` if the kernel does not provide it.
    pub full_s: Option<f64>,
}

/// Reclaim activity of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineReclaim<'a> {
    /// Activity by [kind](#kinds-of-reclaim), of all tasks. Kinds without activity are left out.
    pub efforts: Object<'a, Effort>,
    /// The part of kernel threads, sorted by time, longest first.
    pub kernel_threads: Vec<KernelThread<'a>>,
    /// Differences of `/proc/vmstat`.
    pub vmstat: Vmstat,
    /// Number of whole seconds that were examined.
    pub seconds: u64,
    /// Seconds in which pages were scanned.
    pub scanning_seconds: u64,
    /// Seconds in which 256 or more pages came back, by refaults or from swap.
    pub paging_seconds: u64,
    /// Assessment of the run. `beyond`: paging in at least half of the seconds; the working set is larger than the
    /// available memory. `near`: scanning in at least half of them; it is about as large. `bursts`: scanning in some.
    /// `quiet`: in none. `too_short`: fewer than 4 seconds.
    pub assessment: Text<'a>,
    /// Pressure stall information; `null` if the kernel does not provide it.
    pub pressure: Option<StallPressure>,
    /// Tracepoints that this kernel lacks.
    pub missing_tracepoints: Vec<Text<'a>>,
}

/// Reclaim activity of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Effort {
    /// Number of runs.
    pub times: u64,
    /// Sum of their durations.
    pub time_ns: u64,
    /// Inactive pages examined.
    pub scanned_pages: u64,
    /// Active pages examined.
    pub scanned_active_pages: u64,
    /// Inactive pages isolated.
    pub taken_pages: u64,
    /// Pages freed, of those isolated.
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
    /// Number of runs.
    pub times: u64,
    /// Sum of their durations.
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
    /// Pages needed again soon after they had been freed.
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
    /// The killed process.
    pub pid: u32,
    /// Name of its thread; empty if the kernel does not provide it.
    pub comm: Text<'a>,
    /// The process with the failed allocation.
    pub by_pid: u32,
    /// Name of its thread.
    pub by_comm: Text<'a>,
    /// Path of the cgroup that the killed process' memory was charged to; `null` if unknown or removed.
    pub cgroup: Option<Text<'a>>,
    /// Path of the cgroup that was full: that of the process with the failed allocation, or an ancestor. `null` if none
    /// was full, or if it is unknown or removed.
    pub full_cgroup: Option<Text<'a>>,
    /// Time since memtrace started.
    pub at_s: f64,
}
