//! Error of a heap walk.

/// Reason that a region could not be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::explain) enum HeapError {
    /// The process changed the region during each attempt, or it is not a heap.
    Inconsistent,
    /// A part of the region is swapped out.
    Swapped,
    /// No permission to read the memory of the process.
    Unreadable,
    /// The time for the walk was over.
    Late,
}
