//! Steps of threads, from which slices and events are built.

use crate::{AbsAddr, Bytes, Comm, Nanoseconds, Pid, ReclaimKind, StackId, Tid};

/// A step in the activity of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStep {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Time since the start of the clock of ticks.
    pub at: Nanoseconds,
    /// CPU time of the thread since its first step, if known. Of waits, stalls and calls of allocators, only that in them.
    pub cpu: Option<Nanoseconds>,
    /// Bytes that the thread has allocated since its first step, if known.
    pub allocated: Option<Bytes>,
    /// Kind of step.
    pub kind: StepKind,
}

/// Kind of step. Texts are those of the target, up to 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A span begins.
    Begin {
        /// Number of the site.
        site: u32,
        /// Argument of the function; 0 if none is read.
        value: u64,
        /// Name of the task, or text of an argument; empty if none is read.
        text: String,
        /// Stack pointer, which identifies the call of a function.
        frame: AbsAddr,
    },
    /// The span of a site ends.
    End {
        /// Number of the site.
        site: u32,
        /// Stack pointer at the entry of the function.
        frame: AbsAddr,
    },
    /// A wait for a lock begins.
    LockWait {
        /// The lock.
        lock: AbsAddr,
        /// Its name.
        name: String,
    },
    /// The thread has the lock.
    LockAcquire {
        /// The lock.
        lock: AbsAddr,
    },
    /// The thread has released the lock.
    LockRelease {
        /// The lock.
        lock: AbsAddr,
    },
    /// An event with a number.
    Number {
        /// Name of the event.
        name: String,
        /// The number.
        value: i64,
    },
    /// An event with a text.
    Text {
        /// Name of the event.
        name: String,
        /// The text.
        text: String,
    },
    /// A function is entered: an event.
    Call {
        /// Number of the site.
        site: u32,
        /// Argument of the function; 0 if none is read.
        value: u64,
    },
    /// A wait for a futex has ended, or lasts at the end of the trace.
    FutexWait {
        /// The futex.
        address: AbsAddr,
        /// Duration of the wait.
        duration: Nanoseconds,
        /// Thread that may have held it when the wait began, in the PID namespace of the process.
        holder: Option<Tid>,
        /// The wait has not ended.
        is_open: bool,
        /// Stack of the call.
        stack: StackId,
    },
    /// A stall for memory has ended.
    Stall {
        /// Kind of work.
        work: ReclaimKind,
        /// Duration of the stall.
        duration: Nanoseconds,
    },
    /// A call of an allocator has ended.
    AllocatorCall {
        /// Number of the function.
        function: u32,
        /// Requested bytes; 0 for a free.
        size: Bytes,
        /// Duration of the call.
        duration: Nanoseconds,
    },
    /// The thread has started.
    Start,
    /// The thread has exited, with this short name.
    Exit {
        /// Its name.
        name: Comm,
    },
}

/// Step that a probe records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProbe {
    /// Step.
    pub action: StepAction,
    /// Number of the site.
    pub site: u32,
    /// Number of the argument with the value: of a function, the address of a lock, or the number of an event.
    pub value: Option<u8>,
    /// The value has 32 bits.
    pub is_half: bool,
    /// Number of the argument with the address of the name.
    pub name: Option<u8>,
    /// Number of the argument with the address of the text.
    pub text: Option<u8>,
}

/// Step that the entry or the return of a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A span begins.
    Begin,
    /// A span ends.
    End,
    /// The span of the function ends at its return.
    EndAtReturn,
    /// A wait for a lock begins.
    LockWait,
    /// The thread has the lock.
    LockAcquire,
    /// The thread has released the lock.
    LockRelease,
    /// An event with a number.
    Number,
    /// An event with a text.
    Text,
    /// The call of a function.
    Call,
}
