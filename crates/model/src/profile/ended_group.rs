//! Groups of ended processes that share one row.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{ImageEnd, Pid, Quantities};

/// Ended process images of one executable, cgroup and user that share one row. Times are since the start of tracing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedGroup {
    /// Number of process images.
    pub runs: u64,
    /// Number of process images by kind of end.
    pub ends: BTreeMap<ImageEnd, u64>,
    /// Start of the first image; zero if it ran before tracing began.
    pub first_start: Duration,
    /// End of the last image.
    pub last_end: Duration,
    /// Largest images of the group, the largest first. Small images are not listed.
    pub largest: Vec<EndedRun>,
}

/// A process image that has ended, without its stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// Process id.
    pub pid: Pid,
    /// Start of the image; zero if it ran before tracing began.
    pub start: Duration,
    /// Time of the end.
    pub end: Duration,
    /// Kind of end.
    pub ended: ImageEnd,
    /// Sum of the image's stacks.
    pub total: Quantities,
}
