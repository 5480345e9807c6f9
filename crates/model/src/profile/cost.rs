//! Cost of tracing.

use std::time::Duration;

use crate::Bytes;

/// Cost of tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Number of events that memtrace received.
    pub events: u64,
    /// Number of nested allocator calls, which are not recorded.
    pub nested: u64,
    /// Processor time of memtrace, from its start to the report.
    pub cpu: Duration,
    /// Processor time of memtrace while events were recorded. `cpu` includes it.
    pub cpu_tracing: Duration,
    /// High-water mark of memtrace's RSS.
    pub peak_rss: Bytes,
    /// Cost of the BPF programs in the targets; `None` if too few programs ran during the measurement.
    pub programs: Option<ProgramCost>,
}

/// Cost of the BPF programs at the probes in the targets, without the traps. The time is extrapolated from a
/// measurement that covers a part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramCost {
    /// Number of hits of all probes: probes of allocators, tags, spans and marks.
    pub hits: u64,
    /// Run time of the BPF programs at all hits.
    pub time: Duration,
}
