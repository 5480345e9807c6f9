//! Decoded events of the BPF programs.

use crate::{
    AbsAddr, AllocatorId, Amount, Bytes, CgroupId, ImageId, Owner, Pid, ProfileChange, Rusage, Sample, Stack, StackId,
    Stall, TagId, Tick, Tid,
};

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
        /// Size of the block: usable bytes if they are recorded and known, else requested bytes.
        size: Bytes,
        /// Stack of the call.
        stack: StackId,
        /// Allocator that returned the block.
        allocator: AllocatorId,
        /// Tag that the process had set.
        tag: TagId,
    },
    /// A sampler of the target has chosen a block that an allocator returned.
    SampledAlloc {
        /// Address of the block.
        address: AbsAddr,
        /// Size of the block.
        size: Bytes,
        /// Bytes and blocks that the block stands for. They are boxed, as stacks are.
        sample: Box<Sample>,
        /// Level of thinning at the sample ([`is_thinned`](crate::is_thinned)); 0 for all samplers except the sampler
        /// in a patched process.
        thinning: u8,
        /// Stack of the call.
        stack: StackId,
        /// Allocator that returned the block.
        allocator: AllocatorId,
        /// Tag that the process had set.
        tag: TagId,
    },
    /// A sampler of the target has reported the free of a block that it may have chosen.
    SampledFree {
        /// Address of the block.
        address: AbsAddr,
    },
    /// The heap profile that the target keeps in its memory has been read again.
    HeapProfile {
        /// Process image with the profile.
        image: ImageId,
        /// Number of earlier readings of this image. Each reading of an image must be an event, even without changes.
        reading: u32,
        /// Stacks that have changed since the previous reading; all stacks for the first reading.
        changes: Box<[ProfileChange]>,
    },
    /// A block was freed.
    Free {
        /// Address of the block.
        address: AbsAddr,
        /// True if the latest allocation of the thread has returned this address.
        is_last: bool,
    },
    /// The allocator frees a block that was freed before, such as a block in the cache of an exiting thread.
    RepeatedFree {
        /// Address of the block.
        address: AbsAddr,
    },
    /// The thread of the event takes over a live block, which gets the thread's current tag.
    Claim {
        /// Address of the block.
        address: AbsAddr,
        /// Current tag of the thread.
        tag: TagId,
    },
    /// A realloc has begun: its old block is free, unless an [`EventKind::UndoFree`] follows.
    TentativeFree {
        /// Address of the old block.
        address: AbsAddr,
        /// True if the latest allocation of the thread has returned this address.
        is_last: bool,
    },
    /// A realloc has failed: the block of the thread's last [`EventKind::TentativeFree`] is live again.
    UndoFree {
        /// Address of the old block.
        address: AbsAddr,
    },
    /// Frames of a stack. They arrive before or after the events with this stack, possibly through another ring.
    Stack {
        /// ID of the stack.
        id: StackId,
        /// Frames of the stack. They are boxed, because they are rare and would enlarge every event.
        stack: Box<Stack>,
    },
    /// Page fault: the process touched a page that was not present, or did not permit the access.
    Fault {
        /// Address of the page.
        page: AbsAddr,
        /// Kind of access.
        touch: Touch,
        /// Stack of the access.
        stack: StackId,
    },
    /// The last fault on a page has waited for a device.
    MajorFault {
        /// Address of the page.
        page: AbsAddr,
    },
    /// A range was mapped.
    Map {
        /// First address of the range.
        begin: AbsAddr,
        /// Size of the range.
        size: Bytes,
        /// Stack of the call.
        stack: StackId,
    },
    /// A range is about to be unmapped or moved: it is unmapped, unless an [`EventKind::UndoUnmap`] follows.
    TentativeUnmap {
        /// First address of the range.
        begin: AbsAddr,
        /// Size of the range.
        size: Bytes,
    },
    /// The thread's unmap or move has failed, and the range stays mapped.
    UndoUnmap,
    /// mremap moved a range, possibly with another size.
    Move {
        /// Start address of the old range.
        old: AbsAddr,
        /// Size of the old range.
        old_size: Bytes,
        /// Start address of the new range.
        begin: AbsAddr,
        /// Size of the new range.
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
    /// The process forked, and the child shares its memory, as after vfork. They share the memory until the child exits
    /// or calls exec, or until an [`EventKind::Unshare`].
    Share {
        /// Child process.
        child: Pid,
        /// True if the selection includes the child.
        is_traced: bool,
    },
    /// A process outside the selection no longer shares the memory of another process: it has exited or called exec.
    Unshare,
    /// The thread has stalled for memory. The stall is boxed, as stacks are.
    Stall(Box<Stall>),
    /// The OOM killer has selected the process.
    OomKill(Box<OutOfMemory>),
    /// Rusage of a process at the end of an image. The exec or exit follows.
    Rusage {
        /// Rusage since the start of the process; `None` if it could not be read.
        counts: Option<Rusage>,
        /// True if the image that ends was traced.
        is_traced: bool,
    },
    /// User and control groups of a process at the end of an image. The exec or exit follows. The owner is boxed, as
    /// stacks are.
    Owner(Box<Owner>),
    /// Blocks of a demoted process that were not recorded. The exec or exit follows.
    Dropped {
        /// Size of the smallest block that is recorded.
        min_size: Bytes,
        /// Sum since the demotion of the process, over all its images.
        sum: Amount,
    },
    /// The process has called exec, which frees its old memory.
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
    /// Invoker: the process with the failed allocation.
    pub by: Pid,
    /// Short name of the invoking thread.
    pub by_comm: String,
    /// Memcg of the victim, if known.
    pub group: Option<CgroupId>,
    /// Full memcg: the memcg of the invoking thread, or an ancestor of this memcg; `None` if no memcg was full, or if
    /// the full memcg is not known.
    pub full: Option<CgroupId>,
}

/// Kind of access to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// True if the page was present but did not permit the access.
    pub present: bool,
    /// True if the access was a write.
    pub write: bool,
    /// True if the fault has mapped the huge page around the page, or made it writable. Events with this flag are never
    /// sampled. If the page is sampled, the fault also has an event without this flag, which comes first.
    pub huge: bool,
}
