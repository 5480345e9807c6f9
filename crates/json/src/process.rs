//! Processes of a report, traced or not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Blocks, KernelCounts, Numbers, Object, ResidentMemory, Stalls, Text, is_zero};

/// One process image (one executable run by one process) or a [group](#group-runs) of them.
///
/// Processes in scope without an event have an entry with zeros, unless they are [untraced](#untraced) for a known
/// reason. A process that calls `exec` has an entry for each executable, and a pid that was reused has one for each
/// process.
///
/// User and cgroup are the last ones: as the kernel reports them at the exit or exec, or as read when tracing ends.
/// For an entry that ended by an exec, `uid` is the real user id. If the path of the last cgroup is not known, the
/// entry has the cgroup that was read when tracing began or at the last exec, or the cgroup of its parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Process<'a> {
    /// Process id in the root pid namespace; `null` for a group.
    pub pid: Option<u32>,
    /// Short name.
    pub comm: Text<'a>,
    /// Path of the executable as the process sees it.
    pub exe: Option<Text<'a>>,
    /// `exit`: the process exited; memory live at that time is in the numbers of memory held at exit. `oom_kill`: the
    /// same, killed by the kernel for lack of memory. `exec`: the process ran another executable; memory live at that
    /// time is in `discarded`. `null`: it was running when tracing ended.
    pub ended: Option<Text<'a>>,
    /// Time from the start of tracing to the end of the image, in steps of a millisecond; in a report on the changes
    /// between two moments, from the first moment. `null` if the image was running when tracing ended.
    pub ended_s: Option<f64>,
    /// Members of a group.
    #[serde(flatten)]
    pub group: Option<GroupRuns<'a>>,
    /// Sum over the stacks of the process.
    pub totals: Numbers,
    /// Frees of blocks that are not in the ledger, because they were allocated before tracing began or filtered. With
    /// `map`, ranges that were unmapped or moved and had not been seen to be mapped.
    pub unmatched_frees: u64,
    /// Frees of blocks that are not in the ledger, by a process that was seen to be forked. The blocks are inherited
    /// from the parent, were filtered, or were allocated before the process matched the selection. These frees are
    /// not in `unmatched_frees`. After an `exec` nothing is inherited; the new executable has an entry of its own.
    pub inherited_frees: u64,
    /// Frees by the C library of blocks that the program freed before, and of the cache that holds them. glibc makes
    /// them up to 2.41 when a thread exits, and since 2.42 when the first call of a thread is a free. They are in no
    /// other number, even if the blocks were allocated before tracing began.
    pub repeated_frees: u64,
    /// Only with sampled blocks: frees of unknown blocks that samplers reported. The blocks were sampled before tracing
    /// began, or never: gperftools reports each free of a large block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmatched_samples: u64,
    /// Samplers of the process: the sources of its sampled blocks. Empty if all numbers are exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samplers: Vec<Sampler<'a>>,
    /// Only for a process that shares the memory of another process, as after `vfork` or `clone` with `CLONE_VM`: pid
    /// of that process. Its entry has the blocks, pages and mappings of both, with their stacks, until the last of them
    /// ends or calls `exec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_memory_of: Option<u32>,
    /// Only for a demoted process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demotion: Option<Demotion>,
    /// Blocks that were live when an `exec` replaced the process image.
    pub discarded: Blocks,
    /// High-water mark of the live bytes of the process, if kept.
    pub peak_bytes: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `peak_bytes`. The interval is rather too wide, because
    /// blocks at the peak can have been freed: it has the error of all allocated blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_high: Option<u64>,
    /// Effective user id, in memtrace's user namespace.
    pub uid: Option<u32>,
    /// Name of the user in the host's `/etc/passwd`, or else in the `/etc/passwd` that the process sees. Directory
    /// services are not used.
    pub user: Option<Text<'a>>,
    /// Path of the cgroup of the process. With several hierarchies, the most specific path.
    pub cgroup: Option<Text<'a>>,
    /// Innermost systemd unit in the path of `cgroup`: `cron.service`, `session-3.scope`.
    pub unit: Option<Text<'a>>,
    /// Id of the innermost container in the path of `cgroup`, or its name if it has no id (LXC, systemd-nspawn).
    pub container: Option<Text<'a>>,
    /// Runtime of the container, if the path contains it: `docker`, `containerd`, `crio`, `podman`, `lxc` or `nspawn`.
    pub container_runtime: Option<Text<'a>>,
    /// Uid of the Kubernetes pod in the path of `cgroup`.
    pub pod: Option<Text<'a>>,
    /// Number of threads at the last reading: at the end of tracing, or when the executable started if it ended before.
    pub threads: Option<u32>,
    /// The kernel's counts for the process.
    #[serde(flatten)]
    pub kernel: Option<KernelCounts>,
    /// Only with `fault`, if known: highest RSS of the process since its start, over all executables that it ran
    /// (`ru_maxrss` of getrusage(2)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_resident_bytes: Option<u64>,
    /// Only with `fault`, for a running process: resident memory by kind: `heap`, `anonymous`, `file`, `stack`, `shmem`,
    /// `hugetlb` or `special`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<Object<'a, ResidentMemory>>,
    /// Only with `fault` or `map`, for a running process: reason why its resident memory is unknown. Its stacks then have no
    /// `resident_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_unknown: Option<Text<'a>>,
    /// Only with `heap`, for a process that runs at the end of the trace: its RSS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<ResidentSet<'a>>,
    /// Only with `reclaim`: stalls of the process by [kind](#kinds-of-reclaim).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Object<'a, Stalls>>,
    /// Duration of the trace of the process. It begins at the start of the process or of tracing, the later of both,
    /// and ends at the end of the process or of tracing, the earlier of both. For a group, it is the sum.
    pub traced_s: f64,
    /// `alloc_count` divided by the report's `duration_s`; `null` if that is 0, and for a Go program that ran before the
    /// trace, whose profile has older blocks.
    pub allocs_per_s: Option<f64>,
    /// `alloc_bytes` divided by the report's `duration_s`; `null` as `allocs_per_s`.
    pub alloc_bytes_per_s: Option<f64>,
}

/// Sampler of a target. The numbers of blocks from a sampler are estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sampler<'a> {
    /// `go`: the heap profile of Go's runtime. `tcmalloc` and `jemalloc`: the samplers of these allocators. `otel_memory`
    /// and `ddheap`: USDT probes of libraries. `patched`: the allocator of the process, which memtrace has patched.
    pub source: Text<'a>,
    /// Mean number of allocated bytes for each sample; `null` if it is not known.
    pub interval_bytes: Option<u64>,
}

/// Process whose allocator was patched to take samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PatchedProcess<'a> {
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Short name.
    pub comm: Text<'a>,
    /// Number of patched functions.
    pub functions: u16,
    /// Functions of the allocator that are not patched, each with the reason. Their blocks are missing.
    pub gaps: Vec<Text<'a>>,
    /// Bytes that the patched functions have allocated in the trace; `null` if they are not known.
    pub allocated_bytes: Option<u64>,
    /// True if `allocated_bytes` is exact, false if it is an estimate.
    pub exact: bool,
    /// Number of samples that the process has taken.
    pub samples: u64,
    /// Number of samples that were lost because the table of sampled blocks was full. The losses have them as
    /// `patched_table_full`, at most 65,536 of each process, which can state any number.
    pub not_inserted: u64,
    /// Number of times that the table of sampled blocks was full. Each time, half of the samples in it were left out, and the
    /// others stand for twice as much since.
    pub level: u8,
    /// Longest stop of the process: of all its threads, or of the main thread while it maps the stub.
    pub stop_s: f64,
    /// Number of system calls that the stops have restarted with their whole timeout.
    pub restarted_calls: u32,
}

/// RSS of a process, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResidentSet<'a> {
    /// RSS at the start of the trace; `null` if the process has started later.
    pub start_bytes: Option<u64>,
    /// RSS at the end of the trace.
    pub end_bytes: u64,
    /// Part of `end_bytes` that is shared memory.
    pub shared_bytes: u64,
    /// Runtime that the program is, or has loaded, and whose objects malloc does not return: `python`, `ruby`, `node`, `java`, `go` or `erlang`; `null`
    /// if none is known.
    pub runtime: Option<Text<'a>>,
}

/// Demotion of a process. Its user had more live blocks than a fair share of the ledger, so small blocks of the process
/// are not followed.
///
/// Blocks below `min_size_bytes` count as allocated, and not as live, so the numbers of live blocks, of memory held at
/// exit, of discarded blocks and at the peak are lower bounds, and the freed numbers are upper bounds. Blocks that were
/// dropped before their stack was taken have the stack end `merged`, no allocator, thread and tag, and are not in the
/// histograms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demotion {
    /// Time from the start of tracing to the first demotion; in a report on the changes between two moments, from the
    /// first moment, and 0 if it was earlier. `null` for a group.
    pub demoted_s: Option<f64>,
    /// Size of the smallest block that is followed. A process can be demoted several times.
    pub min_size_bytes: u64,
    /// Allocated blocks that are not followed.
    pub dropped: Blocks,
    /// Share of the allocated bytes in blocks that are followed, from 0 to 1; `null` in a report on the changes between two
    /// moments, because blocks of an earlier time can be dropped.
    pub followed_share: Option<f64>,
    /// Frees of unknown blocks since the demotion. They are not in `unmatched_frees`.
    pub demoted_frees: u64,
}

/// Processes of a group. Only groups have these keys.
///
/// Beyond the largest `--keep-ended` entries, processes that have ended are grouped by executable (build ID, else
/// path, else short name), cgroup and user. A group is one entry of `processes`. Its numbers are the exact sums over its
/// processes, and it has the stacks of all its processes. Its `comm` is the short name of more than half of its
/// processes, else the name of the executable. Its `ended` is the most frequent end, its `ended_s` the last end, its
/// `traced_s` the sum, and its `peak_bytes` is `null`.
///
/// If a report would be too large, its smallest processes are merged as well: ended ones into an entry with the
/// `comm` `other ended processes`, running ones into `other processes`. With `--by cgroup`, `user` or `comm`, there
/// is one such entry for each cgroup, user or short name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRuns<'a> {
    /// Only for a group: number of process images.
    pub runs: u64,
    /// Only for a group: number of process images by `ended`; empty for processes that run.
    pub ends: Object<'a, u64>,
    /// Only for a group: time to the first start of a process, from the same moment as `ended_s`; 0 if a process ran
    /// before.
    pub first_start_s: f64,
    /// Only for a group: time to the last end of a process, from the same moment as `ended_s`; `null` for processes
    /// that run.
    pub last_end_s: Option<f64>,
    /// Only for a group: the largest processes of the group, the largest first.
    pub largest_runs: Vec<Run<'a>>,
}

/// Process of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run<'a> {
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Time from the start of tracing to the start of the process.
    pub start_s: f64,
    /// Time from the start of tracing to the end of the process.
    pub end_s: f64,
    /// End of the process: `exit`, `oom_kill` or `exec`, as in `processes`.
    pub ended: Text<'a>,
    /// Sum over the stacks of the process, without errors of estimates.
    pub totals: Numbers,
}

/// Processes that are not traced.
///
/// Every process in scope is either traced or counted here. Only `heap` needs an allocator. `map` leaves out
/// processes only for the reason `architecture`, `fault` only for the reason `sampled`, and `reclaim` leaves out none.
///
/// A process that has ended is in scope if it matched the selection at its end. If its end was lost, the user and the
/// cgroup that were read last count. `--exe` does not list a process that ended before memtrace could open its
/// executable.
///
/// | reason | meaning |
/// |---|---|
/// | `architecture` | The executable is for another architecture, such as 32 bits. |
/// | `stripped` | The executable is statically linked and stripped, so its allocator cannot be found. |
/// | `go` | The executable is written in Go, whose runtime has no malloc, and Go's own heap profile is not read in this trace. |
/// | `go_profile_off` | The executable is written in Go and keeps no heap profile: it links no `runtime/pprof`, or its `MemProfileRate` is 0. |
/// | `go_version` | The executable is written in Go, and the layout of the heap profile of its version is not known. |
/// | `go_unreadable` | The executable is written in Go, and its heap profile cannot be read. |
/// | `go_profiles_full` | The executable is written in Go, and its heap profile does not fit in the memory for profiles. |
/// | `no_own_profile` | The process keeps no heap profile, and `--source own` attaches no probes to allocators. |
/// | `no_allocator` | No mapped file defines malloc and free. |
/// | `unsupported_allocator` | The allocator has no functions that can be probed. |
/// | `damaged` | A mapped file, which may be the allocator, is damaged. |
/// | `not_attached` | The probes could not be attached, or could hold up the machine, because a user serves the file by FUSE, or a process holds the lock of its memory map. |
/// | `not_patched` | Blocks are sampled, and the process neither is patched nor takes samples of its own. |
/// | `sampled` | Only with `fault`: the blocks of the process are sampled, so its page faults are left out. |
/// | `unreadable` | The process or its files cannot be read: no permission, or too many open files. |
/// | `ended` | The process ended before its files could be read. |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Untraced<'a> {
    /// Memory of all processes that are not traced.
    #[serde(flatten)]
    pub total: UntracedMemory,
    /// Memory of these processes by reason, including zeros.
    pub reasons: Object<'a, UntracedMemory>,
    /// The 1,000 largest processes by RSS, the largest first. A process that executed several files has one entry,
    /// for the last file.
    pub processes: Vec<UntracedProcess<'a>>,
}

/// Memory of processes that are not traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UntracedMemory {
    /// Number of processes.
    pub count: u64,
    /// Sum of the RSS of the processes that were running when tracing ended.
    pub rss_bytes: u64,
}

/// Process that is not traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UntracedProcess<'a> {
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Short name.
    pub comm: Text<'a>,
    /// Path of the executable as the process sees it.
    pub exe: Option<Text<'a>>,
    /// Reason why the process is not traced.
    pub reason: Text<'a>,
    /// RSS when tracing ended; `null` if the process had ended.
    pub rss_bytes: Option<u64>,
}
