//! Steps of threads: the source of spans and events.

use crate::{AbsAddr, Bytes, Comm, Nanoseconds, Pid, ReclaimKind, StackId, Tid};

/// A step in the activity of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStep {
    /// Process of the thread.
    pub pid: Pid,
    /// Thread that takes the step.
    pub tid: Tid,
    /// Time of the step since tick 0.
    pub at: Nanoseconds,
    /// CPU time of the thread, if known. For a wait, stall or allocator call, it is the CPU time from its begin to its
    /// end. For other steps, it is the CPU time since the thread's first activity.
    pub cpu: Option<Nanoseconds>,
    /// Bytes that the thread has allocated since its first activity, if known.
    pub allocated: Option<Bytes>,
    /// Sequence number of the step, if known.
    pub sequence: Option<StepSequence>,
    /// Kind of step, with its arguments.
    pub kind: StepKind,
}

/// Sequence number of a step among the steps that begin or end spans of the thread. If the number of the thread's next step
/// is not `next`, the records of steps in between were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSequence {
    /// Number of the step.
    pub number: u32,
    /// Number of the thread's next step.
    pub next: u32,
}

/// Kind of step. Texts come from the target and have at most 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A span begins.
    Begin {
        /// Id of the function or user probe, assigned by user space.
        site: u32,
        /// Value of the function's argument; 0 if no argument is read.
        value: u64,
        /// Name of the task, or text of the function's argument; empty if no text is read.
        text: String,
        /// Stack pointer at the entry of the function. It identifies the call.
        frame: AbsAddr,
    },
    /// A span of the function or user probe ends.
    End {
        /// Id of the function or user probe, assigned by user space.
        site: u32,
        /// Stack pointer at the entry of the function.
        frame: AbsAddr,
    },
    /// A span of the function ends with a jump to another function, which returns to the caller of the first function.
    TailCall {
        /// Id of the function, assigned by user space.
        site: u32,
        /// Stack pointer at the entry of the function.
        frame: AbsAddr,
    },
    /// A wait for a lock begins.
    LockWait {
        /// Address of the lock.
        lock: AbsAddr,
        /// Name of the lock.
        name: String,
    },
    /// The thread has acquired the lock.
    LockAcquire {
        /// Address of the lock.
        lock: AbsAddr,
    },
    /// The thread has released the lock.
    LockRelease {
        /// Address of the lock.
        lock: AbsAddr,
    },
    /// An event with a numeric value.
    Number {
        /// Name of the event.
        name: String,
        /// Value of the event, in a unit that the target chooses.
        value: i64,
    },
    /// An event with a text.
    Text {
        /// Name of the event.
        name: String,
        /// Text of the event.
        text: String,
    },
    /// An event: the thread has entered a function.
    Call {
        /// Id of the function or user probe, assigned by user space.
        site: u32,
        /// Value of the function's argument; 0 if no argument is read.
        value: u64,
    },
    /// A wait for a futex has ended, or is still open at the end of the trace.
    FutexWait {
        /// Address of the futex.
        address: AbsAddr,
        /// Duration of the wait.
        duration: Nanoseconds,
        /// ID, in the PID namespace of the process, of the thread that may have held the futex when the wait began. For
        /// a join, it is the joined thread.
        holder: Option<Tid>,
        /// Thread of the process that ended the wait.
        waker: Option<Tid>,
        /// Use of the futex.
        usage: FutexUse,
        /// True if the wait has not ended.
        is_open: bool,
        /// Stack of the system call.
        stack: StackId,
    },
    /// A stall for memory has ended.
    Stall {
        /// Kind of reclaim.
        work: ReclaimKind,
        /// Duration of the stall.
        duration: Nanoseconds,
    },
    /// A call of an allocator has ended.
    AllocatorCall {
        /// Index of the function in [`crate::FUNCTIONS`]. Functions that the user has named have the index after the last one.
        function: u32,
        /// Requested bytes; 0 for a free.
        size: Bytes,
        /// Duration of the call.
        duration: Nanoseconds,
    },
    /// The thread has started.
    Start,
    /// The thread has exited.
    Exit {
        /// Short name of the thread at its exit.
        name: Comm,
    },
}

/// Use of a futex. It is derived from the arguments of the system call and from the waker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FutexUse {
    /// The use is not known. The stack of the wait may show it.
    #[default]
    Unknown,
    /// The wait may be a join: the thread waits for the exit of the holder, if the holder is a thread of the process.
    MaybeJoin,
    /// The thread waits for the exit of another thread (`pthread_join`).
    Join,
    /// The thread waits until the futex is not 0, as in a wait for a semaphore.
    Event,
}

/// Step that a probe records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepProbe {
    /// Step that a hit of the probe stands for.
    pub action: StepAction,
    /// Id of the function or user probe, assigned by user space.
    pub site: u32,
    /// Index of the argument with the value: a label of the call, the address of a lock, or the value of an event.
    pub value: Option<u8>,
    /// True if the value has 32 bits.
    pub is_half: bool,
    /// Index of the argument with the address of the name.
    pub name: Option<u8>,
    /// Index of the argument with the address of the text.
    pub text: Option<u8>,
}

/// Condition of a conditional jump of x86-64: the lowest four bits of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JumpCondition(pub u8);

/// Step that the entry or the return of a function stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// A span begins.
    Begin,
    /// A span ends.
    End,
    /// The span of the function ends at its return.
    EndAtReturn,
    /// The span of the function ends at a jump to another function. The condition is `None` for an unconditional jump.
    TailCall(Option<JumpCondition>),
    /// A wait for a lock begins.
    LockWait,
    /// The thread has acquired the lock.
    LockAcquire,
    /// The thread has released the lock.
    LockRelease,
    /// An event with a numeric value.
    Number,
    /// An event with a text.
    Text,
    /// The call of a function.
    Call,
}
