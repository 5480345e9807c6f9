//! What happened in a target: decoded and owned.

use crate::model::{AbsAddr, AllocatorId, Bytes, CgroupId, Pid, Rusage, Stack, StackId, Stall, Tick, Tid};

/// Something that happened in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The process in which it happened.
    pub pid: Pid,
    /// The thread that did it.
    pub tid: Tid,
    /// When it happened.
    pub tick: Tick,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A block was handed out.
    Alloc {
        /// Where it lies.
        address: AbsAddr,
        /// The bytes asked for.
        size: Bytes,
        /// Who asked.
        stack: StackId,
        /// Who handed it out.
        allocator: AllocatorId,
    },
    /// A block was given up.
    Free {
        /// Where it lay.
        address: AbsAddr,
    },
    /// A realloc has begun: its old block is given up, unless [`EventKind::UndoFree`] takes it back.
    TentativeFree {
        /// Where the old block lies.
        address: AbsAddr,
    },
    /// A realloc has failed: the block that the same thread parked is live again.
    UndoFree {
        /// Where the old block lies.
        address: AbsAddr,
    },
    /// The frames of a stack, sent before or after the events that name it, perhaps through another ring.
    Stack {
        /// The stack's identity.
        id: StackId,
        /// Its frames. Boxed, since it is rare and would make every event larger.
        stack: Box<Stack>,
    },
    /// A page was touched that was not there, or not the process' own.
    Fault {
        /// The page.
        page: AbsAddr,
        /// How.
        touch: Touch,
        /// Who touched it.
        stack: StackId,
    },
    /// The last touch of a page had to wait for a device.
    MajorFault {
        /// The page.
        page: AbsAddr,
    },
    /// Addresses were mapped.
    Map {
        /// The first.
        begin: AbsAddr,
        /// How many.
        size: Bytes,
        /// Who mapped them.
        stack: StackId,
    },
    /// Addresses are about to be unmapped or moved: they are given up, unless [`EventKind::UndoUnmap`] takes them back.
    TentativeUnmap {
        /// The first.
        begin: AbsAddr,
        /// How many.
        size: Bytes,
    },
    /// What the thread was about to unmap or move stays as it was.
    UndoUnmap,
    /// What the thread was about to move has been moved, and may be larger or smaller now.
    Move {
        /// Where it lay.
        old: AbsAddr,
        /// How much it was.
        old_size: Bytes,
        /// Where it lies.
        begin: AbsAddr,
        /// How much it is.
        size: Bytes,
        /// Whether the old addresses are still mapped, without their pages.
        keeps: bool,
        /// Who asked for it.
        stack: StackId,
    },
    /// The process was copied, with all its pages and mappings.
    Fork {
        /// The copy.
        child: Pid,
    },
    /// The thread had to wait for memory. Boxed, as a stack is.
    Stall(Box<Stall>),
    /// The process is killed for want of memory.
    OomKill(Box<OutOfMemory>),
    /// What the kernel has counted of the process, which is about to run a new program or to end.
    Rusage {
        /// What; `None` where it could not be read.
        counts: Option<Rusage>,
        /// Whether the process is traced.
        is_traced: bool,
    },
    /// The process runs a new program; its old memory is gone.
    Exec,
    /// The process ended.
    Exit,
}

/// Who is killed for want of memory, and on whose account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The victim's name; empty where the kernel does not tell.
    pub comm: String,
    /// Who found no memory.
    pub by: Pid,
    /// Its name.
    pub by_comm: String,
    /// The control group that the victim's memory is counted in, where that is known.
    pub group: Option<CgroupId>,
    /// The control group that was full, of that of who found no memory and those above; `None` where none was, or it is not
    /// known.
    pub full: Option<CgroupId>,
}

/// How a page was touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// It was there, but not to be touched in this way.
    pub present: bool,
    /// It was written to.
    pub write: bool,
}
