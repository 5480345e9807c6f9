//! Facts of a run that reports show and that are not in its snapshot.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Activity, AllocatorId, Amount, CgroupId, Cost, DebugFileCounts, EventClass, MachineReclaim, MemcgMemory,
    MemoryTimeline, TagId, TagName, TouchWindow, Untraced,
};

/// Facts of a run for the profile of one event class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// The event class of the profile.
    pub class: EventClass,
    /// One page in this number is traced; 0 if pages are not traced.
    pub page_sample: u32,
    /// Duration of the trace.
    pub duration: Duration,
    /// Part of a recording, since the start of the trace, of which numbers are changes; `None` for totals.
    pub window: Option<Range<Duration>>,
    /// Parts of a recorded run in which the changes of live memory are known.
    pub parts: Vec<Range<Duration>>,
    /// Memory over time, if an output shows it.
    pub timeline: Option<MemoryTimeline>,
    /// Activity of threads, if it was traced.
    pub activity: Option<Arc<Activity>>,
    /// Names of allocators, if blocks are grouped by them.
    pub allocators: BTreeMap<AllocatorId, String>,
    /// Tags that programs have set, if blocks are grouped by them.
    pub tags: BTreeMap<TagId, TagName>,
    /// Paths of the control groups of OOM kills that still exist.
    pub killed_cgroups: BTreeMap<CgroupId, String>,
    /// Reclaim of the whole machine, if it was traced.
    pub reclaim: Option<MachineReclaim>,
    /// Path and memory of the control groups in which processes waited.
    pub cgroups: BTreeMap<CgroupId, (PathBuf, MemcgMemory)>,
    /// Allocations that the size filter dropped.
    pub filtered: Amount,
    /// Minimum age of blocks that count as live.
    pub older: Option<Duration>,
    /// How hot and cold bytes were measured; `None` if they were not.
    pub touches: Option<TouchWindow>,
    /// Processes in scope that are not traced.
    pub untraced: Untraced,
    /// Notes for the reader, such as allocators that were not traced.
    pub notes: Vec<String>,
    /// Outcome of the search for debug files, if servers were allowed.
    pub debug_files: Option<DebugFileCounts>,
    /// Cost of tracing.
    pub cost: Cost,
}
