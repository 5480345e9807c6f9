//! Memory of processes over time.

mod builder;
mod counter;
mod pressure;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Comm, ImageId};

pub use self::builder::MemoryTimelineBuilder;
pub use self::counter::MemoryCounter;
pub use self::pressure::PressureCounter;
pub use self::steps::Steps;

/// Values of counters at moments of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTimeline {
    /// Start of tracing, since the start of the clock of ticks.
    pub start: Duration,
    /// The moments, since the start of tracing, in order: ends of intervals, at most [`MemoryTimelineBuilder::MAX_MOMENTS`].
    pub moments: Vec<Duration>,
    /// Sums of live and allocated memory over all traced processes, also those that are left out.
    pub total: BTreeMap<MemoryCounter, Steps>,
    /// Processes, ordered by their IDs.
    pub processes: Vec<ProcessTimeline>,
    /// Pressure of the machine.
    pub pressure: BTreeMap<PressureCounter, Steps>,
    /// Number of processes without a row of their own: those with the smallest values.
    pub left_out: u64,
    /// Marks of the user in order of time, since the start of tracing.
    pub marks: Vec<(Duration, String)>,
}

/// Values of the counters of a process image.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessTimeline {
    /// The process image.
    pub id: ImageId,
    /// Short name.
    pub comm: Comm,
    /// Values by counter.
    pub counters: BTreeMap<MemoryCounter, Steps>,
}
