//! Changes of totals within an interval.

use memtrace_model::{BlockQuantity, EventClass, ImageId, Part, Quantities, StackEnd, StallKey, StallStats};

use super::locations::PathNumber;

/// Key of the totals of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TotalKey {
    /// The process image.
    pub image: ImageId,
    /// Event class.
    pub class: EventClass,
    /// Call path; [`PathNumber::ROOT`] without frames.
    pub path: PathNumber,
    /// End of the stack.
    pub end: StackEnd,
    /// Part of the process.
    pub part: Part,
}

/// Change of the totals of one stack: the totals at the end of the interval minus those at its start. Numbers that
/// decreased wrap below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The stack.
    pub key: TotalKey,
    /// Changes of all totals, of values at the peak and of resident bytes too.
    pub usage: Quantities,
}

/// Change of a number that few stacks have. Wraps below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The stack.
    pub key: TotalKey,
    /// The number.
    pub kind: DetailKind,
    /// Index, if there are several of this kind.
    pub index: u32,
    /// The change.
    pub value: u64,
}

/// Kind of a detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DetailKind {
    /// Live bytes of the blocks allocated in the mark epoch `index`.
    EpochLiveBytes,
    /// Number of live blocks allocated in the mark epoch `index`.
    EpochLiveCount,
    /// Number of freed blocks. `index` is the binary logarithm of their lifetime in nanoseconds.
    Lifetime,
    /// Number of live blocks. `index` is the binary logarithm of their age in nanoseconds.
    Age,
    /// Number of allocations. `index` is the binary logarithm of their size.
    Size,
    /// Live bytes, at the end of the run, of blocks that have its minimum age.
    OldLiveBytes,
    /// Number of these blocks.
    OldLiveCount,
    /// Bytes held at exit in blocks that have the minimum age of the run.
    OldExitBytes,
    /// Number of these blocks.
    OldExitCount,
}

impl DetailKind {
    /// Returns the kind of the buckets of a histogram. Their index is the logarithm.
    #[must_use]
    pub const fn of(quantity: BlockQuantity) -> Self {
        match quantity {
            BlockQuantity::Size => Self::Size,
            BlockQuantity::Lifetime => Self::Lifetime,
            BlockQuantity::Age => Self::Age,
        }
    }

    /// Returns the quantity of the histogram whose buckets are of this kind, if they are.
    #[must_use]
    pub fn quantity(self) -> Option<BlockQuantity> {
        BlockQuantity::ALL.into_iter().find(|quantity| Self::of(*quantity) == self)
    }
}

/// Change of a number of an image that belongs to no stack. Wraps below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageChange {
    /// The process image.
    pub image: ImageId,
    /// Event class.
    pub class: EventClass,
    /// The number.
    pub kind: ImageValue,
    /// Index, if there are several of this kind.
    pub index: u32,
    /// The change. A change of zero says that the number is known.
    pub value: u64,
}

/// Number of an image that belongs to no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageValue {
    /// Bytes that were live at exec.
    DiscardedBytes,
    /// Number of blocks that were live at exec.
    DiscardedCount,
    /// Frees of unknown blocks.
    UnmatchedFrees,
    /// Repeated frees.
    RepeatedFrees,
    /// Number of times that a stack was merged to bound memory.
    MergedStacks,
    /// High-water mark of the live bytes.
    Peak,
    /// Page faults without I/O, as the kernel counts them.
    MinorFaults,
    /// Page faults with I/O, as the kernel counts them.
    MajorFaults,
    /// High-water mark of the RSS.
    PeakRss,
    /// Resident bytes. The index is that of the kind of memory in `MappingKind::ALL`; this holds for the next three too.
    Resident,
    /// Resident bytes with a stack.
    ResidentWithStack,
    /// Variance of the resident bytes with a stack, in pages squared.
    ResidentVariance,
    /// Bytes that were resident when tracing began.
    ResidentBefore,
    /// Number of allocations. `index` is the binary logarithm of their size.
    Size,
}

impl ImageValue {
    /// Returns the change in two consecutive intervals: the sum, and of high-water marks of the RSS the larger one.
    pub fn add(self, first: u64, second: u64) -> u64 {
        if self == Self::PeakRss { first.max(second) } else { first.wrapping_add(second) }
    }
}

/// Change of the stalls of an image. The longest one is that since the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallChange {
    /// The process image.
    pub image: ImageId,
    /// Kind of reclaim and control group.
    pub key: StallKey,
    /// The change.
    pub stats: StallStats,
}
