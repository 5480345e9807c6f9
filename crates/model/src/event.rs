//! Decoded events of the BPF programs.

use crate::{AbsAddr, AllocatorId, Bytes, CgroupId, Owner, Pid, Rusage, Stack, StackId, Stall, TagId, Tick, Tid};

/// An event in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Process of the event.
    pub pid: Pid,
    /// Thread of the event.
    pub tid: Tid,
    /// Time of the event.
    pub tick: Tick,
    /// Kind of event.
    pub kind: EventKind,
}

/// Kind of event, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An allocator returned a block.
    Alloc {
        /// Address of the block.
        address: AbsAddr,
        /// Requested bytes.
        size: Bytes,
        /// Stack of the call.
        stack: StackId,
        /// Allocator that returned it.
        allocator: AllocatorId,
        /// Tag that the program had set.
        tag: TagId,
    },
    /// A block was freed.
    Free {
        /// Address of the block.
        address: AbsAddr,
        /// The latest allocation of the thread has returned this address.
        is_last: bool,
    },
    /// The allocator frees a block again that was freed before, such as one in the cache of an exiting thread.
    RepeatedFree {
        /// Address of the block.
        address: AbsAddr,
    },
    /// The thread takes over a live block.
    Claim {
        /// Address of the block.
        address: AbsAddr,
        /// Tag that the thread has.
        tag: TagId,
    },
    /// A realloc has begun: its old block is given up, unless [`EventKind::UndoFree`] takes it back.
    TentativeFree {
        /// Where the old block lies.
        address: AbsAddr,
        /// The latest allocation of the thread has returned this address.
        is_last: bool,
    },
    /// A realloc has failed: the block that the same thread freed tentatively is live again.
    UndoFree {
        /// Where the old block lies.
        address: AbsAddr,
    },
    /// Frames of a stack. They arrive before or after the events that refer to it, possibly through another ring.
    Stack {
        /// ID of the stack.
        id: StackId,
        /// Frames. Boxed, since they are rare and would enlarge every event.
        stack: Box<Stack>,
    },
    /// Page fault: a page was touched that was not resident or not owned by the process.
    Fault {
        /// Address of the page.
        page: AbsAddr,
        /// Kind of access.
        touch: Touch,
        /// Stack of the access.
        stack: StackId,
    },
    /// The last fault on a page waited for I/O.
    MajorFault {
        /// Address of the page.
        page: AbsAddr,
    },
    /// A range was mapped.
    Map {
        /// Start address.
        begin: AbsAddr,
        /// Size of the range.
        size: Bytes,
        /// Stack of the call.
        stack: StackId,
    },
    /// Addresses are about to be unmapped or moved: they are given up, unless [`EventKind::UndoUnmap`] takes them back.
    TentativeUnmap {
        /// Start address.
        begin: AbsAddr,
        /// Size of the range.
        size: Bytes,
    },
    /// The unmap or move of the thread failed; the range stays mapped.
    UndoUnmap,
    /// mremap moved a range, possibly with another size.
    Move {
        /// Old start address.
        old: AbsAddr,
        /// Old size.
        old_size: Bytes,
        /// New start address.
        begin: AbsAddr,
        /// New size.
        size: Bytes,
        /// True if the old range stays mapped, without its pages (`MREMAP_DONTUNMAP`).
        keeps: bool,
        /// Stack of the call.
        stack: StackId,
    },
    /// The process forked: the child has copies of its pages and mappings.
    Fork {
        /// Child process.
        child: Pid,
    },
    /// The thread stalled on memory. Boxed like stacks.
    Stall(Box<Stall>),
    /// The OOM killer kills the process.
    OomKill(Box<OutOfMemory>),
    /// Resource usage of a process that is about to exec or to exit.
    Rusage {
        /// Resource usage; `None` if it could not be read.
        counts: Option<Rusage>,
        /// True if the process is traced.
        is_traced: bool,
    },
    /// User and control groups of a process that is about to exec or to exit. Boxed like stacks.
    Owner(Box<Owner>),
    /// The process called exec; its old memory is gone.
    Exec,
    /// The process exited.
    Exit,
    /// The thread has exited, and its process runs on.
    ThreadExit,
}

/// Victim and cause of an OOM kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Short name of the victim; empty if the kernel does not report it.
    pub comm: String,
    /// Process with the failed allocation.
    pub by: Pid,
    /// Short name of that process.
    pub by_comm: String,
    /// Control group of the victim's memory, if known.
    pub group: Option<CgroupId>,
    /// Full control group among those of the allocating process and their ancestors; `None` if none was full or it is
    /// unknown.
    pub full: Option<CgroupId>,
}

/// Kind of access to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// The page was resident but did not permit the access.
    pub present: bool,
    /// The access was a write.
    pub write: bool,
}
