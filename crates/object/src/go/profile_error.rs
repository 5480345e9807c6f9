//! Reasons why a heap profile in the memory of a process cannot be read.

use std::io;

use memtrace_model::AbsAddr;

use crate::elf::ElfError;

/// Reason why a heap profile cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The memory of the process cannot be read.
    #[error("its memory cannot be read: {0}")]
    Memory(#[from] io::Error),
    /// The executable cannot be read.
    #[error("its executable cannot be read: {0}")]
    File(#[from] ElfError),
    /// The program keeps no profile. This does not change while the program runs.
    #[error("the program does not import runtime/pprof, so that it keeps no heap profile")]
    NotImported,
    /// The program samples no allocations. It may turn sampling on later: at the start of a program of Go 1.19, the rate is 0.
    #[error("runtime.MemProfileRate is 0, so that the program keeps no heap profile")]
    RateIsZero,
    /// The sampling rate is impossible.
    #[error("runtime.MemProfileRate is {0}, which is not possible")]
    Rate(u64),
    /// A bucket is impossible.
    #[error("the bucket at {address} of its heap profile is not possible: {fault}")]
    Bucket {
        /// Address of the bucket.
        address: AbsAddr,
        /// Fault of the bucket.
        fault: BucketFault,
    },
    /// The list of buckets does not end.
    #[error("the list of the buckets of its heap profile has a cycle")]
    Cycle,
    /// Buckets of an earlier reading are no longer in the list.
    #[error("the list of the buckets of its heap profile has lost buckets")]
    LostBuckets,
    /// The list has too many buckets.
    #[error("its heap profile has more than {0} buckets")]
    TooManyBuckets(usize),
    /// The stacks of the buckets are too long.
    #[error("the stacks of its heap profile have more than {0} frames")]
    TooManyFrames(usize),
    /// The buckets are too far from each other.
    #[error("the buckets of its heap profile are scattered over too much memory")]
    Scattered,
}

/// Reason why a bucket is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketFault {
    /// No aligned word in user space has this address.
    #[error("its address is wrong")]
    Address,
    /// The bucket does not belong to the heap profile.
    #[error("its type is not that of a heap profile")]
    Type,
    /// The size of its blocks is impossible.
    #[error("the size of its blocks is wrong")]
    Size,
    /// The stack has more frames than the version allows.
    #[error("its stack is too long")]
    Depth,
    /// A frame is not in user space.
    #[error("its stack has a wrong address")]
    Frame,
    /// The hash of the bucket differs from the hash of its stack.
    #[error("its hash is not that of its stack and size")]
    Hash,
    /// More blocks were freed than allocated, or the bytes are not the blocks multiplied by their size.
    #[error("its numbers contradict each other")]
    Numbers,
}

impl ProfileError {
    /// Returns true if the program keeps no profile, as it was built or by its own choice.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::NotImported | Self::RateIsZero)
    }
}
