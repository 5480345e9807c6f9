//! Memory of processes over time.

mod counter;
mod pressure;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Comm, ImageId};

pub use self::counter::MemoryCounter;
pub use self::pressure::PressureCounter;
pub use self::steps::Steps;

/// Values of counters at moments of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTimeline {
    /// Start of tracing, as the time since tick 0.
    pub start: Duration,
    /// Moments in order, as the time since the start of tracing. Each is the end of one or more intervals.
    pub moments: Vec<Duration>,
    /// Sums of live and allocated memory over all traced processes, including processes that are left out.
    pub total: BTreeMap<MemoryCounter, Steps>,
    /// Processes, ordered by their IDs.
    pub processes: Vec<ProcessTimeline>,
    /// Memory pressure of the machine.
    pub pressure: BTreeMap<PressureCounter, Steps>,
    /// Number of processes that are left out, because their values are the smallest.
    pub left_out: u64,
    /// Marks in order: the time since the start of tracing, and the text.
    pub marks: Vec<(Duration, String)>,
}

/// Values of the counters of a process image.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessTimeline {
    /// Identity of the process image.
    pub id: ImageId,
    /// Short name of the process.
    pub comm: Comm,
    /// Values by counter.
    pub counters: BTreeMap<MemoryCounter, Steps>,
}
