//! Cost of tracing.

use std::time::Duration;

use crate::Bytes;

/// Cost of tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Received events.
    pub events: u64,
    /// Nested allocator calls, which are not counted as allocations.
    pub nested: u64,
    /// Processor time of memtrace, from its start to the report.
    pub cpu: Duration,
    /// The part of it that was used while events were recorded.
    pub cpu_tracing: Duration,
    /// High-water mark of memtrace's RSS.
    pub peak_rss: Bytes,
    /// Cost of the BPF programs in the targets; `None` if too few ran to measure.
    pub programs: Option<ProgramCost>,
}

/// Cost of the BPF programs in the targets, without the traps that lead to them. Measured on a part of the time, so
/// inexact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramCost {
    /// Number of probe hits.
    pub hits: u64,
    /// Run time of the programs.
    pub time: Duration,
}
