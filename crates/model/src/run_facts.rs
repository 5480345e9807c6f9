//! Facts of a run that reports show in addition to its totals.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Activity, AllocatorId, Amount, Bytes, CgroupId, Comm, Cost, DebugFileCounts, EventClass, MachineReclaim,
    MemcgMemory, MemoryTimeline, Pid, Samplers, TagFormat, TagFunctionCalls, TagId, TagName, TouchWindow, Untraced,
    format,
};

/// Facts of a run for the profile of one event class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// Event class of the profile.
    pub class: EventClass,
    /// N, if one page in N is recorded; 0 if pages are not traced.
    pub page_sample: u32,
    /// True if all processes started in the trace, so that no block is older.
    pub from_start: bool,
    /// Duration of the trace, or of the `window`.
    pub duration: Duration,
    /// Period of a recording, as times since the start of the trace. The numbers are the changes in this period; `None`
    /// if the numbers are totals.
    pub window: Option<Range<Duration>>,
    /// Consecutive periods of a run, as times since the start of the trace. Each stack has its [`crate::LiveChanges`] in
    /// these periods.
    pub parts: Vec<Range<Duration>>,
    /// Memory over time, if an output shows it.
    pub timeline: Option<MemoryTimeline>,
    /// Activity of threads, if it was traced.
    pub activity: Option<Arc<Activity>>,
    /// Samplers of the targets with blocks in the profile. The numbers of these blocks are estimates.
    pub samplers: Samplers,
    /// Processes whose allocator was patched to take samples. Only a profile at the end of the run has them.
    pub patched: Vec<PatchedProcess>,
    /// Names of allocators, if blocks are grouped by them.
    pub allocators: BTreeMap<AllocatorId, String>,
    /// Names of tags that processes have set, if blocks are grouped by them.
    pub tags: BTreeMap<TagId, TagName>,
    /// Format of tags that are numbers, if one was chosen.
    pub tag_format: Option<TagFormat>,
    /// Calls of the functions that change tags, in the order of the command line. Only a profile at the end of the run has
    /// them.
    pub tag_functions: Vec<TagFunctionCalls>,
    /// Paths of the control groups with OOM kills, if they still exist.
    pub killed_cgroups: BTreeMap<CgroupId, String>,
    /// Reclaim activity of the whole machine, if it was traced.
    pub reclaim: Option<MachineReclaim>,
    /// Path and memory of the control groups with stalls.
    pub cgroups: BTreeMap<CgroupId, (PathBuf, MemcgMemory)>,
    /// Allocations that filters excluded.
    pub filtered: Amount,
    /// Minimum size that was raised during the trace, because tracing cost the targets too much.
    pub raised: Option<RaisedMinSize>,
    /// Minimum age of blocks that count as live (`--older`).
    pub older: Option<Duration>,
    /// Time window of the measurement of hot and cold bytes; `None` if they were not measured.
    pub touches: Option<TouchWindow>,
    /// Processes in scope that are not traced.
    pub untraced: Untraced,
    /// Notes for the reader, such as allocators that were not traced.
    pub notes: Vec<String>,
    /// Outcomes of the search for debug files, if the user has named servers.
    pub debug_files: Option<DebugFileCounts>,
    /// Cost of tracing; `None` before the end of the trace.
    pub cost: Option<Cost>,
}

/// Process whose allocator was patched to take samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchedProcess {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process.
    pub comm: Comm,
    /// Number of patched functions.
    pub functions: u16,
    /// Functions of the allocator that are not patched, each with the reason. Their blocks are missing. Processes of the same
    /// program share the list.
    pub gaps: Arc<[String]>,
    /// Bytes that the patched functions have allocated in the trace, if known.
    pub allocated: Option<Bytes>,
    /// True if `allocated` is exact, false if it is an estimate.
    pub exact: bool,
    /// Number of samples that the process has taken.
    pub samples: u64,
    /// Number of samples that found the table of sampled blocks full at the highest level of thinning.
    pub not_inserted: u64,
    /// Level of thinning at the end.
    pub level: u8,
    /// Longest stop of the process: of all its threads, or of the main thread while it maps the stub.
    pub stop: Duration,
    /// Number of system calls that the stops have restarted with their whole timeout.
    pub rewound: u32,
}

/// Minimum size of recorded allocations that was raised during a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaisedMinSize {
    /// Time since the start of the trace.
    pub at: Duration,
    /// Size of the smallest allocation that is recorded from then on.
    pub min_size: Bytes,
}

impl fmt::Display for RaisedMinSize {
    /// Writes a sentence without its full stop.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, min_size } = *self;
        let at = format::duration(at);
        write!(
            out,
            "after {at}, only allocations of at least {min_size} were recorded, because of --max-overhead; numbers of \
             smaller blocks are lower bounds"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_minimum_is_described_with_its_time() {
        let raised = RaisedMinSize { at: Duration::from_millis(15_200), min_size: Bytes(4096) };
        assert_eq!(
            raised.to_string(),
            "after 15.2 s, only allocations of at least 4.00 KiB were recorded, because of --max-overhead; numbers of \
             smaller blocks are lower bounds"
        );
    }
}
