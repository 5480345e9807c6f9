//! Groups of ended processes that share one row.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ImageEnd, Pid, Quantities};

/// Ended process images of one executable, cgroup and user that share one row. Times count from the start of tracing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedGroup {
    /// Number of process images.
    pub runs: u64,
    /// Number of process images by their end.
    pub ends: BTreeMap<ImageEnd, u64>,
    /// Start of the first one; zero if it ran before.
    pub first_start: Duration,
    /// End of the last one.
    pub last_end: Duration,
    /// The largest of them that were kept, the largest first.
    pub largest: Vec<EndedRun>,
}

/// A process image that has ended, without its stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// The process.
    pub pid: Pid,
    /// Start; zero if it ran before tracing began.
    pub start: Duration,
    /// End.
    pub end: Duration,
    /// Kind of the end.
    pub ended: ImageEnd,
    /// Sum of its stacks.
    pub total: Quantities,
}
