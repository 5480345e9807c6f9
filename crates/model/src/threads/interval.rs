//! An interval of the thread monitor.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::machine::MachineUsage;
use super::process_memory::ProcessValues;
use super::source::SourceState;
use super::task_state::TaskState;
use super::usage::ThreadUsage;
use crate::{Comm, Losses, Pid, Tid};

/// Identity of a thread. A thread ID may be reused, but not with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIdentity {
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Start of the thread since the boot of the machine, in nanoseconds.
    pub start_ns: u64,
}

/// Usage of a thread in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInterval {
    /// Identity of the thread.
    pub thread: ThreadIdentity,
    /// Name of the thread.
    pub comm: Comm,
    /// Scheduling state at the end of the interval: [`TaskState::Dead`] if the thread ended in the interval.
    pub state: TaskState,
    /// Usage within the interval.
    pub usage: ThreadUsage,
}

impl ThreadInterval {
    /// Returns true if the thread ended in the interval.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, TaskState::Dead)
    }
}

/// Sum over the threads of a process that are not listed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherThreads {
    /// Number of threads.
    pub count: u64,
    /// Sum of the threads' usage within the interval.
    pub usage: ThreadUsage,
}

/// Usage of a process in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInterval {
    /// Process id.
    pub pid: Pid,
    /// Start of the process since the boot of the machine, in nanoseconds.
    pub start_ns: u64,
    /// Name of the process's first thread.
    pub comm: Comm,
    /// Origin of the counters of the heap.
    pub source: SourceState,
    /// Usage of all threads of the process within the interval: the sum of `threads`, `ended` and `others`.
    pub usage: ThreadUsage,
    /// Threads that are listed one by one.
    pub threads: Vec<ThreadInterval>,
    /// Other threads that ended in the interval, with their usage since the begin of the interval.
    pub ended: OtherThreads,
    /// Other running threads, if the process has more threads than the list may have.
    pub others: OtherThreads,
    /// Number of threads that started in the interval.
    pub started: u64,
    /// Memory and other values of the process at the end of the interval.
    pub values: ProcessValues,
    /// True if the process ended in the interval.
    pub has_exited: bool,
}

impl ProcessInterval {
    /// Returns the number of threads that ended in the interval.
    #[must_use]
    pub fn ended_threads(&self) -> u64 {
        self.ended.count + self.threads.iter().filter(|thread| thread.has_ended()).count() as u64
    }

    fn append(&mut self, next: &Self) {
        let mut threads = std::mem::take(&mut self.threads);
        let mut known: BTreeMap<ThreadIdentity, usize> =
            threads.iter().enumerate().map(|(place, thread)| (thread.thread, place)).collect();
        for thread in &next.threads {
            let place = *known.entry(thread.thread).or_insert_with(|| {
                threads.push(ThreadInterval { usage: ThreadUsage::default(), ..thread.clone() });
                threads.len() - 1
            });
            let usage = threads[place].usage.plus(thread.usage);
            threads[place] = ThreadInterval { usage, ..thread.clone() };
        }
        *self = Self {
            usage: self.usage.plus(next.usage),
            threads,
            ended: self.ended.followed_by(next.ended, self.ended.count + next.ended.count),
            others: self.others.followed_by(next.others, next.others.count),
            started: self.started + next.started,
            ..next.clone()
        };
    }
}

impl OtherThreads {
    fn followed_by(self, next: Self, count: u64) -> Self {
        Self { count, usage: self.usage.plus(next.usage) }
    }
}

/// Kind of an event, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadsEventKind {
    /// The kernel killed a process for lack of memory.
    OomKill(Pid),
    /// A process ended.
    Exit(Pid),
    /// A mark of the user.
    Mark(String),
    /// The condition of a trigger became true. The text has the condition, the value, and the owner of the value.
    Trigger(String),
}

/// An event within an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadsEvent {
    /// Time since the start of the measurement.
    pub at: Duration,
    /// Kind of event.
    pub kind: ThreadsEventKind,
}

/// Usage of all monitored processes within an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadsInterval {
    /// Begin and end of the interval, since the start of the measurement.
    pub span: Range<Duration>,
    /// Processes, ordered by process id.
    pub processes: Vec<ProcessInterval>,
    /// Values of the machine.
    pub machine: MachineUsage,
    /// Events, ordered by time.
    pub events: Vec<ThreadsEvent>,
    /// Losses within the interval.
    pub losses: Losses,
}

impl ThreadsInterval {
    /// Appends the next interval: adds its usage, and takes over its end values.
    pub fn append(&mut self, next: &Self) {
        self.span.end = next.span.end;
        self.machine = self.machine.followed_by(&next.machine);
        self.events.extend(next.events.iter().cloned());
        self.losses.merge(&next.losses);
        for process in &next.processes {
            let is_same = |own: &&mut ProcessInterval| own.pid == process.pid && own.start_ns == process.start_ns;
            match self.processes.iter_mut().find(is_same) {
                Some(own) => own.append(process),
                None => self.processes.push(process.clone()),
            }
        }
    }

    /// Returns the length of the interval in seconds, for rates.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span.end.saturating_sub(self.span.start).as_secs_f64().max(f64::EPSILON)
    }
}
