//! Heap profile of a Go program, as its runtime has published it.

use memtrace_model::{AbsAddr, Bytes};

/// A reading of a heap profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapProfile {
    /// Number of collections that have ended. The profile shows the state after the last collection but one, or after
    /// the last one if the program has called `runtime.GC`: the runtime publishes the numbers of a cycle only when all
    /// frees of the cycle are known.
    pub collections: u32,
    /// False if the numbers are all samples so far: the caller has requested them, or nothing was published yet, because fewer
    /// than two collections have ended. In the second case, the profile that the program itself writes has all samples too.
    pub is_published: bool,
    /// True if a collection has ended during each try to read the buckets, so that their numbers belong to different collections.
    pub is_mixed: bool,
    /// Mean number of allocated bytes from one sampled byte to the next.
    pub rate: Bytes,
    /// Number of buckets whose numbers have changed during each try to read them.
    pub changed: u64,
    /// All buckets, the oldest first. A bucket has the same index in all readings of a reader.
    pub buckets: Vec<Bucket>,
    /// Stacks of the buckets that the caller does not know yet, in the order of the buckets.
    pub new_stacks: Vec<BucketStack>,
}

/// Sampled blocks of one size and one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Size of each block.
    pub size: Bytes,
    /// Number of sampled blocks that were allocated.
    pub allocs: u64,
    /// Number of sampled blocks that were freed: at most `allocs`.
    pub frees: u64,
}

/// Stack of a bucket. Several buckets have the same stack if it allocates blocks of several sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketStack {
    /// Index of the bucket.
    pub bucket: usize,
    /// Return addresses, the innermost first. Frames of the runtime at the leaf are left out. So are frames of inlined
    /// calls: the table of functions adds them to the frame that contains them.
    pub frames: Box<[AbsAddr]>,
    /// True if the runtime has cut the stack at its maximum depth.
    pub is_truncated: bool,
}
