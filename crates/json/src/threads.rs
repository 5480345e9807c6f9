//! Usage of threads in an interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Object, Text, Tool};

/// `memtrace threads --format json` writes this object for each interval, in a line of its own. Usage is counted
/// within the interval.
///
/// ### Example of an interval
///
/// The line breaks are not part of the object.
///
/// ```json
/// {"tool":{"name":"memtrace","version":"0.1.0"},"kind":"threads","schema_version":1,"from_s":2.0,"to_s":3.0,
/// "machine":{"cpu.user_ns":650000000,"cpu.system_ns":75000000,"cpu.idle_ns":3200000000,"cpu.iowait_ns":70000000,"cpu.steal_ns":5000000,"disk.read_bytes":0,"disk.write_bytes":8192,"pressure.cpu_some_ns":12000000,"pressure.memory_some_ns":0,"pressure.io_some_ns":3000000,"meminfo.MemAvailable_bytes":6442450944,"meminfo.MemTotal_bytes":17179869184,"meminfo.SwapFree_bytes":null},
/// "processes":[{"pid":812,"start_ns":4940000000000,"name":"redis-server","source":"bpf","stale":false,"started":0,"exited":false,
///  "values":{"rss_anon_bytes":251658240,"rss_file_bytes":12582912,"rss_shmem_bytes":1048576,"swap_bytes":0,"descriptors":38,"threads":2},
///  "usage":{"alloc_bytes":1134592,"alloc_count":3324,"free_bytes":716800,"free_count":2100,"user_ns":635400000,"system_ns":70600000,"run_delay_ns":7060000,"voluntary_switches":706,"involuntary_switches":0,"read_bytes":0,"write_bytes":0,"minor_faults":277,"major_faults":0},
///  "threads":[
///   {"tid":812,"start_ns":5000812000000,"name":"redis-server","state":"R","ended":false,"usage":{"alloc_bytes":1126400,"alloc_count":3300,"free_bytes":307200,"free_count":900,"user_ns":549000000,"system_ns":61000000,"run_delay_ns":6100000,"voluntary_switches":610,"involuntary_switches":0,"read_bytes":0,"write_bytes":0,"minor_faults":275,"major_faults":0}},
///   {"tid":815,"start_ns":5000815000000,"name":"bio_lazy_free","state":"S","ended":false,"usage":{"alloc_bytes":0,"alloc_count":0,"free_bytes":409600,"free_count":1200,"user_ns":85500000,"system_ns":9500000,"run_delay_ns":950000,"voluntary_switches":95,"involuntary_switches":0,"read_bytes":0,"write_bytes":0,"minor_faults":0,"major_faults":0}}],
///  "ended":{"count":1,"usage":{"alloc_bytes":8192,"alloc_count":24,"free_bytes":0,"free_count":0,"user_ns":900000,"system_ns":100000,"run_delay_ns":10000,"voluntary_switches":1,"involuntary_switches":0,"read_bytes":0,"write_bytes":0,"minor_faults":2,"major_faults":0}},
///  "others":{"count":0,"usage":{"alloc_bytes":0,"alloc_count":0,"free_bytes":0,"free_count":0,"user_ns":0,"system_ns":0,"run_delay_ns":0,"voluntary_switches":0,"involuntary_switches":0,"read_bytes":0,"write_bytes":0,"minor_faults":0,"major_faults":0}}}],
/// "events":[{"at_s":2.25,"kind":"mark","text":"flush <all>"}],"losses":{}}
/// ```
///
/// ### CSV of threads
///
/// CSV has a line of column names, and a line for the machine, each process and each thread in each interval. The first
/// column, `kind`, is `machine`, `process`, `thread`, `ended` or `others`. Cells that do not apply or are unknown are
/// empty. Events and losses are not in CSV.
///
/// | columns | kinds | meaning |
/// |---|---|---|
/// | `from_s`, `to_s` | all | As in JSON, with nine decimals. |
/// | `pid`, `process` | all but `machine` | Process and its name. |
/// | `tid`, `name`, `state` | `thread` | Thread. The state is `X` if the thread ended in the interval. |
/// | `start_ns` | `process`, `thread` | Start of the process or the thread. |
/// | `source`, `stale` | all but `machine` | As in JSON. |
/// | `count` | `ended`, `others` | Number of threads. A line is written only if there are any. |
/// | `started`, `exited` | `process` | As in JSON. |
/// | `alloc_bytes` to `major_faults` | all but `machine` | [Usage](#thread-usage). The lines of kind `thread`, `ended` and `others` of a process add up to its line of kind `process`. |
/// | `rss_anon_bytes` to `threads` | `process` | Values at the end of the interval. |
/// | `cpu.user_ns` to `meminfo.SwapFree_bytes` | `machine` | [Usage of the machine](#machine-usage). |
///
/// Names that begin with `=`, `+`, `-` or `@` have an apostrophe before them, and control characters are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval<'a> {
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// `threads`.
    pub kind: Text<'a>,
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Time from the start of the monitor to the start of the interval, with nanoseconds.
    pub from_s: f64,
    /// Time from the start of the monitor to the end of the interval.
    pub to_s: f64,
    /// Usage of the whole machine.
    pub machine: MachineUsage<'a>,
    /// The monitored processes, by pid.
    pub processes: Vec<MonitoredProcess<'a>>,
    /// Events within the interval, by time.
    pub events: Vec<IntervalEvent<'a>>,
    /// Number of lost events within the interval by [reason](#json-of-a-report), without zeros.
    pub losses: Object<'a, u64>,
}

/// Usage of the machine, by name.
///
/// | key | meaning |
/// |---|---|
/// | `cpu.user_ns`, `cpu.system_ns`, `cpu.idle_ns`, `cpu.iowait_ns`, `cpu.steal_ns` | Processor time of all processors. |
/// | `disk.read_bytes`, `disk.write_bytes` | Bytes read from and written to block devices. |
/// | `pressure.cpu_some_ns`, `pressure.memory_some_ns`, `pressure.io_some_ns` | Time while at least one task waited for a processor, for memory or for I/O (PSI). |
/// | `meminfo.MemAvailable_bytes`, `meminfo.MemTotal_bytes`, `meminfo.SwapFree_bytes` | Memory at the end of the interval. |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineUsage<'a>(pub Object<'a, Option<u64>>);

/// Process in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MonitoredProcess<'a> {
    /// Process id in the root pid namespace.
    pub pid: u32,
    /// Start of the process since the boot of the machine. A pid can be reused, but not with the same start. In reports of
    /// recordings, a number that distinguishes processes with the same pid.
    pub start_ns: u64,
    /// Name of the first thread of the process.
    pub name: Text<'a>,
    /// Origin of the counters of the heap: `bpf` (probes), `jemalloc` (counters of the allocator, which does not count
    /// blocks) or `none`.
    pub source: Text<'a>,
    /// `true` if the counters of the heap could not be read in time. Their changes follow in a later interval.
    pub stale: bool,
    /// Number of threads that started in the interval.
    pub started: u64,
    /// `true` if the process ended in the interval.
    pub exited: bool,
    /// Values at the end of the interval: `rss_anon_bytes`, `rss_file_bytes`, `rss_shmem_bytes`, `swap_bytes`, and the
    /// numbers of open `descriptors` and of `threads`.
    pub values: Object<'a, Option<u64>>,
    /// Sum over all threads of the process: `threads`, `ended` and `others`.
    pub usage: ThreadUsage<'a>,
    /// Threads with entries of their own.
    pub threads: Vec<MonitoredThread<'a>>,
    /// Ended threads without entries, with their usage since the end of the previous interval: if there are too many
    /// threads, and in reports of recordings the threads that lived for less than an interval.
    pub ended: OtherThreads<'a>,
    /// Running threads beyond the maximum number of threads with entries.
    pub others: OtherThreads<'a>,
}

/// Usage of a thread or of several, by name.
///
/// | key | meaning |
/// |---|---|
/// | `alloc_bytes`, `free_bytes` | Usable bytes of allocated and of freed blocks. A freed block counts for the freeing thread, even if another thread has allocated it. `null` if `source` is `none`. |
/// | `alloc_count`, `free_count` | Number of these blocks; `null` unless `source` is `bpf`. |
/// | `user_ns`, `system_ns` | Processor time in user mode and in the kernel. |
/// | `run_delay_ns` | Time that the thread waited for a processor although it could run. |
/// | `voluntary_switches`, `involuntary_switches` | Context switches because the thread waited, and because another one was to run. |
/// | `read_bytes`, `write_bytes` | Bytes read from storage, and bytes written that are to be sent to storage. |
/// | `minor_faults`, `major_faults` | Page faults without and with I/O. |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage<'a>(pub Object<'a, Option<u64>>);

/// Thread in an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MonitoredThread<'a> {
    /// Thread id in the root pid namespace.
    pub tid: u32,
    /// Start of the thread since the boot of the machine.
    pub start_ns: u64,
    /// Name of the thread.
    pub name: Text<'a>,
    /// State of the thread at the end of the interval: the letter of ps(1).
    pub state: char,
    /// `true` if the thread ended in the interval. Its state is then `X`.
    pub ended: bool,
    /// Usage of the thread.
    pub usage: ThreadUsage<'a>,
}

/// Threads without entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherThreads<'a> {
    /// Number of threads.
    pub count: u64,
    /// Sum of the usage of these threads.
    pub usage: ThreadUsage<'a>,
}

/// Event in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalEvent<'a> {
    /// Time since the start of the monitor.
    pub at_s: f64,
    /// `oom_kill`, `exit`, `mark` or `trigger`.
    pub kind: Text<'a>,
    /// Only of `oom_kill` and `exit`: id of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Only of `mark` and `trigger`: text of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Text<'a>>,
}
