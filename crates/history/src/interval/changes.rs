//! Changes of totals within an interval.

use memtrace_model::{BlockQuantity, EventClass, ImageId, Part, Quantities, Quantity, StackEnd, StallKey, StallStats};

use super::locations::PathNumber;

/// Key of the totals of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TotalKey {
    /// The process image.
    pub image: ImageId,
    /// Event class.
    pub class: EventClass,
    /// Call path; [`PathNumber::ROOT`] for a stack without frames.
    pub path: PathNumber,
    /// Reason for the end of the stack walk.
    pub end: StackEnd,
    /// Part of the process.
    pub part: Part,
}

/// Change of the totals of one stack: the totals at the end of the interval minus the totals at its start.
/// Decreases wrap below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The stack.
    pub key: TotalKey,
    /// Changes of all quantities, including bytes at the peak and resident bytes.
    pub usage: Quantities,
}

/// Change of a value that few stacks have, such as a bucket of a histogram. Decreases wrap below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The stack.
    pub key: TotalKey,
    /// Kind of the number.
    pub kind: DetailKind,
    /// Index among the numbers of this kind; 0 if the kind has one number.
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
    /// Number of blocks that are live or held at exit. `index` is the binary logarithm of their age in nanoseconds.
    Age,
    /// Number of allocations. `index` is the binary logarithm of their size in bytes.
    Size,
    /// Live bytes, at the end of the run, in blocks at least as old as `--older`.
    OldLiveBytes,
    /// Number of live blocks, at the end of the run, at least as old as `--older`.
    OldLiveCount,
    /// Bytes held at exit in blocks at least as old as `--older`.
    OldExitBytes,
    /// Number of blocks held at exit, at least as old as `--older`.
    OldExitCount,
    /// Number of samples among the blocks of the four kinds above.
    OldSamples,
    /// Variance of the bytes of these blocks, low bits.
    OldBytesVariance,
    /// Variance of the bytes of these blocks, high bits.
    OldBytesVarianceHigh,
    /// Variance of the number of these blocks, low bits.
    OldCountVariance,
    /// Variance of the number of these blocks, high bits.
    OldCountVarianceHigh,
}

impl DetailKind {
    /// Kinds of the samples and variances of blocks at least as old as `--older`, and the quantities for blocks of any age.
    pub const OLD_SPREAD: [(Self, Quantity); 5] = [
        (Self::OldSamples, Quantity::HeldSamples),
        (Self::OldBytesVariance, Quantity::HeldBytesVariance),
        (Self::OldBytesVarianceHigh, Quantity::HeldBytesVarianceHigh),
        (Self::OldCountVariance, Quantity::HeldCountVariance),
        (Self::OldCountVarianceHigh, Quantity::HeldCountVarianceHigh),
    ];

    /// Returns the kind of the buckets in the histogram of `quantity`. The index of a bucket is the binary logarithm
    /// of its values.
    #[must_use]
    pub const fn of(quantity: BlockQuantity) -> Self {
        match quantity {
            BlockQuantity::Size => Self::Size,
            BlockQuantity::Lifetime => Self::Lifetime,
            BlockQuantity::Age => Self::Age,
        }
    }

    /// Returns the quantity of the histogram with buckets of this kind; `None` if the kind has no buckets.
    #[must_use]
    pub fn quantity(self) -> Option<BlockQuantity> {
        BlockQuantity::ALL.into_iter().find(|quantity| Self::of(*quantity) == self)
    }
}

/// Change of a value that belongs to an image and to none of its stacks. Decreases wrap below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageChange {
    /// The process image.
    pub image: ImageId,
    /// Event class.
    pub class: EventClass,
    /// Kind of the number.
    pub kind: ImageValue,
    /// Index among the numbers of this kind; 0 if the kind has one number.
    pub index: u32,
    /// The change. A change of zero means that the value is known.
    pub value: u64,
}

/// Kind of a value that belongs to an image and to none of its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageValue {
    /// Bytes that were live when the process executed another file.
    DiscardedBytes,
    /// Number of blocks that were live when the process executed another file.
    DiscardedCount,
    /// Number of frees of blocks that are not in the ledger.
    UnmatchedFrees,
    /// Number of repeated frees.
    RepeatedFrees,
    /// Number of times that a stack without live blocks was merged to bound memory.
    MergedStacks,
    /// High-water mark of the live bytes.
    Peak,
    /// Number of page faults without I/O, as the kernel counts them.
    MinorFaults,
    /// Number of page faults with I/O, as the kernel counts them.
    MajorFaults,
    /// High-water mark of the RSS.
    PeakRss,
    /// Resident bytes. For this kind, the next three and `ResidentCounted`, `index` is the position of the kind of
    /// memory in `MappingKind::ALL`.
    Resident,
    /// Resident bytes on pages that a recorded stack touched.
    ResidentWithStack,
    /// Variance of `ResidentWithStack`, in pages squared.
    ResidentVariance,
    /// Bytes that were resident when tracing began and have not been touched since.
    ResidentBefore,
    /// Number of allocations. `index` is the binary logarithm of their size in bytes.
    Size,
    /// Time of the first demotion of the process, in ticks.
    DemotedAt,
    /// Size in bytes of the smallest block that is followed since the demotion.
    DemotedSize,
    /// Bytes of allocated blocks that are not followed.
    DroppedBytes,
    /// Number of allocated blocks that are not followed.
    DroppedCount,
    /// Number of frees of unknown blocks since the demotion.
    DemotedFrees,
    /// RSS in bytes at the start of the trace.
    RssStart,
    /// RSS in bytes at the end of the trace.
    RssEnd,
    /// Shared memory in the RSS at the end of the trace, in bytes.
    RssShared,
    /// Runtime of the program: its position in `Runtime::ALL`, from 1.
    Runtime,
    /// Pid of the process that has the memory of the image, if the image shares its memory.
    SharesMemoryOf,
    /// Part of `ResidentWithStack` that is counted and not estimated.
    ResidentCounted,
    /// 1 if the page tables could not be read, so that the resident memory is unknown.
    ResidentUnknown,
    /// Number of frees of unknown blocks that samplers reported.
    UnmatchedSamples,
}

impl ImageValue {
    /// Returns the change over two consecutive intervals: the larger value for the high-water mark of the RSS, for the
    /// time and the size of a demotion, for a pid, and for a flag; the sum for others.
    pub fn add(self, first: u64, second: u64) -> u64 {
        if self.is_of_maximum() { first.max(second) } else { first.wrapping_add(second) }
    }

    /// Returns true if the value of several intervals or images is the largest of their values, not the sum.
    pub(crate) const fn is_of_maximum(self) -> bool {
        matches!(
            self,
            Self::PeakRss | Self::DemotedAt | Self::DemotedSize | Self::SharesMemoryOf | Self::ResidentUnknown
        )
    }

    /// Returns true if a group of images has the value.
    pub(crate) const fn is_of_groups(self) -> bool {
        !matches!(self, Self::Peak | Self::SharesMemoryOf | Self::ResidentUnknown)
    }

    /// Returns true if the value is a state that lasts until it changes. A report on a period needs the value from
    /// before the period.
    pub(crate) fn is_state(self) -> bool {
        matches!(self, Self::DemotedAt | Self::DemotedSize | Self::SharesMemoryOf)
    }
}

/// Change of the stalls of an image. `longest` is not a change, but the longest stall since the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallChange {
    /// The process image.
    pub image: ImageId,
    /// Kind of reclaim and control group.
    pub key: StallKey,
    /// The change.
    pub stats: StallStats,
}
