//! Spans and events of threads, with tables of their totals.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use crate::{AbsAddr, Bytes, Comm, Nanoseconds, Pid, Tid};

use super::{CallSums, LockSums, SpanSums, WaitClass};

/// Suffix of the name of a span whose function has jumped to another function. The span ends with the jump, so its duration
/// does not include the time of the other function.
pub const UNTIL_TAIL_CALL: &str = "[until its tail call]";

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
    /// Totals of the calls of each allocator function, the longest total time first: index of the name in [`Self::names`], and
    /// sums. Empty if calls were not timed.
    pub calls: Vec<(u32, CallSums)>,
    /// Stacks of waits: the names of the functions, the innermost frame first. The names come from the target.
    pub stacks: Vec<Vec<String>>,
    /// Numbers of the spans and events that were left out of `spans` and `events`.
    pub left_out: LeftOut,
    /// True if the bytes that threads allocate are known.
    pub counts_bytes: bool,
}

impl Activity {
    /// Returns the deadlocks at the end of the trace: cycles of threads. Each thread waits for a lock that the next thread
    /// holds, or for the exit of the next thread. A cycle is a list of the indices of the waits in [`Self::spans`].
    #[must_use]
    pub fn deadlocks(&self) -> Vec<Vec<usize>> {
        let mut waits: BTreeMap<(Pid, Tid), (usize, Tid)> = BTreeMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            let Some(holder) = span.holder.filter(|_| span.is_open && span.kind.is_lock_wait()) else { continue };
            let thread = &self.threads[span.thread as usize];
            let wait = waits.entry((thread.pid, thread.tid)).or_insert((index, holder));
            // A wait for a named lock contains a wait for its futex, and replaces it.
            if span.kind == SpanKind::LockWait {
                *wait = (index, holder);
            }
        }
        let mut visited: BTreeSet<(Pid, Tid)> = BTreeSet::new();
        let mut cycles = Vec::new();
        for &first in waits.keys() {
            let (mut path, mut thread) = (Vec::new(), first);
            while let Some(&(_, holder)) = waits.get(&thread)
                && visited.insert(thread)
            {
                path.push(thread);
                thread = (thread.0, holder);
            }
            if let Some(begin) = path.iter().position(|of_path| *of_path == thread) {
                cycles.push(path[begin..].iter().filter_map(|of_path| Some(waits.get(of_path)?.0)).collect());
            }
        }
        cycles
    }

    /// Returns the class of a wait for a lock or a futex. A wait for a futex has the class of its stack, or the class of the
    /// futex if the stack shows no class.
    #[must_use]
    pub fn wait_class(&self, span: &Span) -> WaitClass {
        if span.kind != SpanKind::FutexWait {
            return WaitClass::Lock;
        }
        let name = self.names.get(span.name as usize).map_or("", String::as_str);
        let stack = span.stack.and_then(|stack| self.stacks.get(stack as usize)).map_or(&[][..], Vec::as_slice);
        let of_lock = || self.locks.get(span.lock? as usize).map(|lock| lock.class);
        WaitClass::of_futex_wait(name, stack).or_else(of_lock).unwrap_or_default()
    }
}

/// Spans and events that were left out to save memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of spans that were left out.
    pub spans: u64,
    /// Exclusive upper bound of the durations of these spans; 0 if there are none.
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
    /// Time that a thread held a lock that the target has named. Holds of several locks need not nest.
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

    /// Returns true for a wait for a lock or a futex.
    #[must_use]
    pub const fn is_lock_wait(self) -> bool {
        matches!(self, Self::LockWait | Self::FutexWait)
    }

    /// Returns the kind with this name, as [`Self::name`] returns it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A task, function call, wait, lock hold, stall or allocator call of a thread, from its begin to its end.
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
    /// True if the record of the end may be lost. `end` is then a lower bound: the time of the thread's last record before
    /// the loss.
    pub is_end_lost: bool,
    /// CPU time of the thread in the span, if known.
    pub cpu: Option<Nanoseconds>,
    /// Bytes that the thread allocated in the span, if known.
    pub allocated: Option<Bytes>,
    /// Index of the lock in [`Activity::locks`], if the span is a wait or a hold.
    pub lock: Option<u32>,
    /// Thread of the same process that held the lock when the wait began, or at the end of the trace if the wait is open.
    /// For a join, the joined thread. `None` if it is not known.
    pub holder: Option<Tid>,
    /// Thread of the same process that ended the wait for a futex, if known.
    pub waker: Option<Tid>,
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
    /// Index in [`Activity::names`] of the place of a futex: a variable of an object, such as `server:table`, or
    /// [`WaitClass::ARENA`]; `None` if it is not known.
    pub place: Option<u32>,
    /// Class of most of the waiting time.
    pub class: WaitClass,
    /// Joined thread, if the futex is used for the join of one thread only.
    pub joined: Option<Tid>,
    /// Totals of the waits and holds.
    pub sums: LockSums,
}

/// Numbers of spans that have begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Tasks and calls of functions by the id of their site. The number of the last of the [`crate::COUNTED_SITES`] includes
    /// the spans of all further sites.
    pub by_site: BTreeMap<u32, u64>,
    /// Other spans by kind.
    pub by_kind: BTreeMap<SpanKind, u64>,
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
