//! Spans and events of threads, with tables of their totals.

use std::ops::AddAssign;

use crate::{AbsAddr, Bytes, Comm, Nanoseconds, Pid, Tid};

use super::{CallSums, LockSums, SpanSums};

/// Activity of the threads of a run. Times count from the start of tracing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Names of spans, locks and events, and texts of labels and events. Each string occurs once. The strings come from
    /// the target.
    pub names: Vec<String>,
    /// Threads, ordered by PID, start and TID.
    pub threads: Vec<ActiveThread>,
    /// Spans, ordered by thread and begin. If two spans begin at the same time, the longer one comes first. The
    /// spans of a thread nest, except for [`SpanKind::LockHold`].
    pub spans: Vec<Span>,
    /// Events, ordered by time.
    pub events: Vec<ActivityEvent>,
    /// Locks, ordered by the total time of waits, the longest first.
    pub locks: Vec<LockRow>,
    /// Totals of the spans by kind and name: ordered by kind, then by total time, the longest first. The totals
    /// include left-out spans.
    pub totals: Vec<SpanRow>,
    /// Total calls of each allocator function, longest total time first: the index of the name in [`Self::names`], and
    /// the sums. Empty if calls were not timed.
    pub calls: Vec<(u32, CallSums)>,
    /// Stacks of waits: the names of the functions, the innermost frame first. The names come from the target.
    pub stacks: Vec<Vec<String>>,
    /// Spans and events that `spans` and `events` lack, because they were left out.
    pub left_out: LeftOut,
    /// True if the bytes that threads allocate are known.
    pub counts_bytes: bool,
}

/// Spans and events that were left out to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of spans that were left out.
    pub spans: u64,
    /// Duration that all of these spans are shorter than; 0 if there are none.
    pub shorter_than: Nanoseconds,
    /// Number of events that were left out: the last ones of the run.
    pub events: u64,
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, other: Self) {
        self.spans += other.spans;
        self.shorter_than = self.shorter_than.max(other.shorter_than);
        self.events += other.events;
    }
}

/// A thread with spans or events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveThread {
    /// Process id.
    pub pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Short name of the process.
    pub process: Comm,
    /// Short name of the thread.
    pub name: Comm,
    /// Start of the thread, if it started during the trace.
    pub start: Option<Nanoseconds>,
    /// End of the thread, if it ended during the trace.
    pub end: Option<Nanoseconds>,
}

/// Kind of span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpanKind {
    /// A task that the target has named (`memtrace_task_begin`).
    #[default]
    Task,
    /// A call of a function that the user has named (`--span`).
    Function,
    /// A wait for a lock that the target has named (`memtrace_lock_wait`).
    LockWait,
    /// The time for which a thread held a lock that the target has named. Holds of several locks need not nest.
    LockHold,
    /// A wait in the `futex` system call.
    FutexWait,
    /// A wait of the thread for memory reclaim or compaction.
    Stall,
    /// A call of an allocator function.
    AllocatorCall,
}

impl SpanKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Task, Self::Function, Self::LockWait, Self::LockHold, Self::FutexWait, Self::Stall, Self::AllocatorCall];

    /// Returns the name in machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Function => "function",
            Self::LockWait => "lock_wait",
            Self::LockHold => "lock_hold",
            Self::FutexWait => "futex_wait",
            Self::Stall => "stall",
            Self::AllocatorCall => "allocator_call",
        }
    }

    /// Returns the name for readers.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Function => "function",
            Self::LockWait => "lock wait",
            Self::LockHold => "lock hold",
            Self::FutexWait => "futex wait",
            Self::Stall => "memory stall",
            Self::AllocatorCall => "allocator call",
        }
    }

    /// Returns the kind with a name of [`Self::name`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A span, wait, lock hold, stall or allocator call of a thread, from its begin to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Index of the thread in [`Activity::threads`].
    pub thread: u32,
    /// Kind of span.
    pub kind: SpanKind,
    /// Index in [`Activity::names`] of the name: a task, function, lock or kind of stall.
    pub name: u32,
    /// Argument that labels the call of a function, or size of an allocator call in bytes.
    pub label: Option<SpanLabel>,
    /// Time of the begin.
    pub begin: Nanoseconds,
    /// Time of the end. An open span ends at the end of the trace.
    pub end: Nanoseconds,
    /// True if the span had not ended at the end of the trace.
    pub is_open: bool,
    /// CPU time of the thread in the span, if known.
    pub cpu: Option<Nanoseconds>,
    /// Bytes that the thread allocated in the span, if known.
    pub allocated: Option<Bytes>,
    /// Index of the lock in [`Activity::locks`], if the span is a wait or a hold.
    pub lock: Option<u32>,
    /// Thread of the same process that held the lock when the wait began, if known.
    pub holder: Option<Tid>,
    /// Index in [`Activity::stacks`] of the stack of a wait, if known.
    pub stack: Option<u32>,
}

impl Span {
    /// Returns the time from begin to end; 0 if the end is before the begin.
    #[must_use]
    pub const fn duration(&self) -> Nanoseconds {
        Nanoseconds(self.end.0.saturating_sub(self.begin.0))
    }
}

/// Label of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanLabel {
    /// Integer argument, or size in bytes.
    Number(u64),
    /// Index of a text in [`Activity::names`].
    Text(u32),
}

/// Event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityEvent {
    /// Index of the thread in [`Activity::threads`].
    pub thread: u32,
    /// Time of the event.
    pub at: Nanoseconds,
    /// Index of the name in [`Activity::names`].
    pub name: u32,
    /// Number or text of the event.
    pub value: EventValue,
}

/// Value of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventValue {
    /// The event has no value.
    None,
    /// A number, in a unit that the target chooses.
    Number(i64),
    /// Index of a text in [`Activity::names`].
    Text(u32),
}

/// A lock and its totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// Process of the lock.
    pub pid: Pid,
    /// Address of the lock or futex.
    pub address: AbsAddr,
    /// Index of the lock's name in [`Activity::names`]; `None` for a futex.
    pub name: Option<u32>,
    /// Totals of the waits and holds.
    pub sums: LockSums,
}

/// Totals of the spans with a kind and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Kind of the spans.
    pub kind: SpanKind,
    /// Index of the name in [`Activity::names`].
    pub name: u32,
    /// Totals of the spans.
    pub sums: SpanSums,
}
