//! Usage of monitored threads and processes.

use std::time::Duration;

use memtrace_model::{Comm, ImageId, SourceState, TaskState, ThreadUsage, Tid};
use rustc_hash::FxHashSet;

/// Number of a monitored thread in a recording. Later threads have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNumber(pub u64);

/// Facts of a monitored thread. They are sent together with its first usage, and again after a change of its name
/// and after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedThread {
    /// Number of the thread.
    pub number: ThreadNumber,
    /// Process image of the thread.
    pub image: ImageId,
    /// ID of the thread in the kernel. A later thread can have the same ID.
    pub tid: Tid,
    /// Name.
    pub name: Comm,
    /// Start, in nanoseconds since the start of the recording; negative if the thread is older. It is before the
    /// end of the first interval with the thread.
    pub start_ns: i64,
    /// Latest possible end of the thread, since the start of the recording; `None` while it runs. No later interval has
    /// the thread.
    pub end: Option<Duration>,
}

/// Usage of a thread in an interval. An interval has no usage of a thread if neither the state nor a counter of the
/// thread has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedThreadUsage {
    /// The thread.
    pub thread: ThreadNumber,
    /// State at the end of the interval.
    pub state: TaskState,
    /// Usage within the interval.
    pub usage: ThreadUsage,
}

impl RecordedThreadUsage {
    /// Adds the usage of the same thread in a later interval. The later state replaces the state.
    pub fn merge(&mut self, later: Self) {
        *self = Self { usage: self.usage.plus(later.usage), ..later };
    }
}

/// Usage of a process in an interval. An interval has no usage of a process if nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedProcessUsage {
    /// Process image.
    pub image: ImageId,
    /// Usage of all threads within the interval, including ended threads.
    pub usage: ThreadUsage,
    /// Number of threads that ended in the interval.
    pub ended_threads: u64,
    /// Number of threads that started in the interval.
    pub started_threads: u64,
    /// Number of threads at the end of the interval that exceed the limit of the monitor and have no
    /// [`RecordedThreadUsage`].
    pub other_threads: u64,
    /// Origin of the heap counters at the end of the interval.
    pub source: SourceState,
}

impl RecordedProcessUsage {
    /// Adds the usage of the same process in a later interval.
    pub fn merge(&mut self, later: Self) {
        *self = Self {
            usage: self.usage.plus(later.usage),
            ended_threads: self.ended_threads.saturating_add(later.ended_threads),
            started_threads: self.started_threads.saturating_add(later.started_threads),
            ..later
        };
    }
}

/// Removes the threads that started and ended in an interval that begins at `start`. Their usage remains part of
/// the usage of their process.
pub(super) fn remove_short_threads(
    start: Duration,
    threads: &mut Vec<RecordedThread>,
    usage: &mut Vec<RecordedThreadUsage>,
) {
    let start = i64::try_from(start.as_nanos()).unwrap_or(i64::MAX);
    let is_short = |thread: &RecordedThread| thread.end.is_some() && thread.start_ns >= start;
    let short: FxHashSet<ThreadNumber> =
        threads.iter().filter(|thread| is_short(thread)).map(|thread| thread.number).collect();
    if !short.is_empty() {
        threads.retain(|thread| !short.contains(&thread.number));
        usage.retain(|row| !short.contains(&row.thread));
    }
}
