//! Report of one event class: for a run, a recording, or a part of a recording.
//!
//! The type parameters of [`Report`] are the lists that can be long, and the activity. A writer can write the elements
//! of a list one at a time ([`Stream`](crate::Stream)), and a reader can skip a list or the activity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Activity, Blocks, Cgroup, Frame, Histograms, KernelCounts, MachineReclaim, Numbers, Object, OomKill,
    PatchedProcess, Process, Sampler, Stack, TagFunction, Text, Tool, Untraced, is_zero,
};

/// `memtrace … -o FILE.json` writes this object.
///
/// With `map` and `fault`, a block is a page of 4 KiB, and the numbers count pages. Mappings and pages do not outlive
/// their process: after its end, they count as freed, and no number is held at exit.
///
/// | | `live` | `alloc` | `free` |
/// |---|---|---|---|
/// | `map` | mapped | mapped since tracing began | unmapped again |
/// | `fault` | touched since tracing began and resident at its end | touched, or mapped by the kernel together with a touched page | no longer resident |
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct Report<
    'a,
    P = Vec<Process<'a>>,
    G = Vec<Group<'a>>,
    F = Vec<Frame<'a>>,
    S = Vec<Stack<'a>>,
    A = Activity<'a>,
> {
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Program that wrote the report.
    pub tool: Tool<'a>,
    /// The traced target, for titles: `pid 4711 (redis-server)`.
    pub subject: Text<'a>,
    /// Event class: `heap` (blocks), `map` (mappings), `fault` (pages) or `reclaim` (stalls).
    pub events: Text<'a>,
    /// Sort order of `stacks`: a [metric](guide/formats.md#metrics), such as `live-bytes`. With `growth`, `live_*` and `free_*`
    /// count only blocks that were allocated within the window.
    pub metric: Text<'a>,
    /// Only with `fault`: N if one page in N was followed; 1 if numbers are exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_sample: Option<u32>,
    /// Kind of the groups in `roots`: `process`, `cgroup`, `user`, `comm`, `allocator`, `thread`, `memory`, `object` or
    /// `tag`.
    pub by: Text<'a>,
    /// Duration of the trace, or of its part in a report of a recording.
    pub duration_s: f64,
    /// Only in a report of the changes between two moments of a recording: the two moments. All numbers are then
    /// changes; `live_bytes` and `live_count` are negative if live memory decreased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Only in a report with [trends](guide/recordings.md#trends): at most 16 consecutive parts, to which `live_changes` of
    /// [stacks](#stack) refer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Window>,
    /// Only in a report of a recording, a recorded run, a run with `--every`, or a run with an output that needs memory
    /// over time (`.html`, `.pftrace`, `.firefox.json`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline<'a>>,
    /// Only if the activity of threads was traced: spans and events of threads over time, and their totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<A>,
    /// Minimum age of the blocks in `live_bytes`, `live_count`, `exit_bytes` and `exit_count`; `null` without that
    /// filter. Allocated and freed numbers are not filtered by age.
    pub older_s: Option<f64>,
    /// Only with `--cold-after`: measurement of hot and cold bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touches: Option<TouchWindow<'a>>,
    /// Sum over all processes.
    pub totals: Numbers,
    /// Frees of blocks that are not in the ledger, because they were allocated before tracing began or filtered. With
    /// `map`, ranges that were unmapped or moved and had not been seen to be mapped. Sum over all processes.
    pub unmatched_frees: u64,
    /// Frees, by forked processes, of blocks that they have from their parents. Sum over all processes.
    pub inherited_frees: u64,
    /// Frees by the C library of blocks that the program freed before. Sum over all processes.
    pub repeated_frees: u64,
    /// Only with sampled blocks: frees of unknown blocks that samplers reported. Sum over all processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmatched_samples: u64,
    /// Different samplers of all processes: the sources of sampled blocks. Empty if all numbers are exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samplers: Vec<Sampler<'a>>,
    /// Only at the end of the trace, with `--allow-patching`: processes whose allocator was patched to take samples. Not in a report
    /// of the changes between two moments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patched_processes: Vec<PatchedProcess<'a>>,
    /// Only with `heap`, if a traced process runs at the end: sentences about the RSS, the part of it that the live blocks
    /// explain, and the command that shows the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_note: Option<Text<'a>>,
    /// Highest value of the live bytes. Only if `processes` has a single entry, because peaks of several processes are
    /// at different times.
    pub peak_bytes: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `peak_bytes`. The interval is rather too wide, because
    /// blocks at the peak can have been freed: it has the error of all allocated blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_high: Option<u64>,
    /// Allocations left out by `--min-size`, `--max-size`, `--thread` and `--exclude thread=NAME`. No other number includes
    /// them.
    pub filtered: Blocks,
    /// Only if the minimum size was raised during the trace to stay below `--max-overhead`: numbers of smaller blocks
    /// are lower bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_min_size: Option<RaisedMinSize>,
    /// Blocks that were live when `exec` replaced their process image. Sum over all processes.
    pub discarded: Blocks,
    /// Only with `--lifetimes`: the sums of the histograms of all stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Histograms>,
    /// [Groups](#group-runs) of processes first, then processes by pid and time.
    pub processes: P,
    /// Groups of stacks, sorted by name.
    pub roots: G,
    /// Only with `reclaim`: cgroups with stalls of the traced processes, or with the limits that caused the stalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups: Option<Vec<Cgroup<'a>>>,
    /// Only with `reclaim`: reclaim activity of the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<MachineReclaim<'a>>,
    /// Processes that the kernel killed for lack of memory during the trace, traced or not, in order of time.
    pub oom_kills: Vec<OomKill<'a>>,
    /// Count of each loss by its name, including zeros.
    pub losses: Object<'a, u64>,
    /// Processes in scope that this event class does not trace.
    pub untraced: Untraced<'a>,
    /// Only with functions that set tags, at the end of the trace: the calls of each function, in the order of the command
    /// line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tag_functions: Vec<TagFunction<'a>>,
    /// Further facts for the reader: parts of the target that were not traced, a high cost of tracing.
    pub notes: Vec<Text<'a>>,
    /// Only if debuginfod servers are allowed: number of objects without debug information by outcome of the search for
    /// it: `cached`, `downloaded`, `not_found`, `timed_out`, `too_large`, `wrong_build_id`, `failed`, and `skipped`
    /// after a signal. `downloaded_bytes` is the size of the downloaded files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug_files: Option<Object<'a, u64>>,
    /// Share of allocations by [stack end](#stack-ends), from 0 to 1, including zeros. All are 0 without allocations.
    pub stack_quality: Object<'a, f64>,
    /// Each frame once, in no particular order.
    pub frames: F,
    /// Stacks, sorted by `metric`, greatest first. The smallest stacks of a large report are
    /// [merged](#merged-stacks).
    pub stacks: S,
    /// Cost of tracing; `null` in a report of a recording whose trace has not ended.
    pub cost: Option<Cost>,
}

/// Part of a trace, in seconds since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Start of the part.
    pub from_s: f64,
    /// End of the part.
    pub to_s: f64,
}

/// Minimum size of recorded allocations that was raised during the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RaisedMinSize {
    /// Time since the start of the trace.
    pub at_s: f64,
    /// Size of the smallest allocation that is recorded from then on.
    pub bytes: u64,
}

/// Measurement of hot and cold bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TouchWindow<'a> {
    /// Method of the measurement: `idle` or `written`.
    pub method: Text<'a>,
    /// Measured duration of the window. Only touches within it count.
    pub duration_s: f64,
}

/// Memory over time.
///
/// A series has a value for each moment, `null` before the first known value. The series are `live_bytes`,
/// `alloc_bytes`, and for processes `rss_anon_bytes`, `rss_file_bytes`, `rss_shmem_bytes` and `swap_bytes`. With page
/// faults, there is no `live_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline<'a> {
    /// Times since the start of the trace.
    pub moments_s: Vec<f64>,
    /// Series of the sums of all processes, by name.
    pub total: Object<'a, Vec<Option<u64>>>,
    /// Series of each process.
    pub processes: Vec<ProcessTimeline<'a>>,
    /// Series `memory_some_ns` and `memory_full_ns`: time since boot for which some task, or all tasks that were not
    /// idle, waited for memory (PSI). Empty if the kernel does not count it.
    pub pressure: Object<'a, Vec<Option<u64>>>,
    /// Number of processes without series.
    pub left_out: u64,
    /// Marks of a recording.
    pub marks: Vec<Mark<'a>>,
}

/// Memory of a process over time. The other keys of the object are the series of the process, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessTimeline<'a> {
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Short name.
    pub comm: Text<'a>,
    /// Series of the process.
    #[serde(flatten)]
    pub series: Object<'a, Vec<Option<u64>>>,
}

/// Mark of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark<'a> {
    /// Time since the start of the trace.
    pub at_s: f64,
    /// Text of the mark.
    pub text: Text<'a>,
}

/// Group of stacks (`--by`), and the first level of the flame graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group<'a> {
    /// The process, as in `redis-server (4711)`; the cgroup's path; the user's name or number; the short name; the
    /// allocator, as in `glibc (libc.so.6)`; the thread, as in `worker (4713)`, with the process if there are several;
    /// the path of the object; or the tag. In brackets if it is unknown, as in `[user not known]` and `[no tag]`.
    pub name: Text<'a>,
    /// Sums over the stacks of the group.
    #[serde(flatten)]
    pub totals: Numbers,
    /// The kernel's counts for the processes of the group.
    #[serde(flatten)]
    pub kernel: Option<KernelCounts>,
    /// Live bytes of the stacks of the group, each at the time of the peak of its process, if kept.
    pub peak_bytes: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `peak_bytes`. The interval is rather too wide, because
    /// blocks at the peak can have been freed: it has the error of all allocated blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_high: Option<u64>,
}

/// Resources that tracing used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Events that arrived from the kernel.
    pub events: u64,
    /// Allocator calls inside others (`calloc` calling `malloc`), which were not counted twice.
    pub nested: u64,
    /// Processor time of memtrace from its start to the report.
    pub cpu_s: f64,
    /// Part of `cpu_s` that was used while events were recorded, for `duration_s`.
    pub tracing_cpu_s: f64,
    /// Peak RSS of memtrace.
    pub peak_rss_bytes: u64,
    /// Number of probe hits in the targets, including probes of tags, spans and marks. `null` without any.
    pub probe_hits: Option<u64>,
    /// Approximate run time of the BPF programs at these hits, without the traps. `null` if `probe_hits` is.
    pub programs_s: Option<f64>,
}
