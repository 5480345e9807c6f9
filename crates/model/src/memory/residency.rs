//! Resident pages of a process, and the stacks that touched them.

use std::collections::BTreeMap;

use crate::{AbsAddr, Bytes, MappingKind, PAGE, StackKey};

/// Contiguous pages that one stack touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Address of the first page.
    pub begin: AbsAddr,
    /// Number of pages.
    pub pages: u64,
    /// Stack that touched the pages.
    pub key: StackKey,
    /// True for huge pages, which are all counted at their faults. Of the other pages, only a sample may be counted.
    pub huge: bool,
}

/// Contiguous resident pages of one kind in one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentRange {
    /// First address.
    pub begin: AbsAddr,
    /// End address, exclusive.
    pub end: AbsAddr,
    /// Kind of memory.
    pub kind: MappingKind,
    /// True if the range is part of a huge page that is mapped as a whole.
    pub huge: bool,
}

/// Resident memory of a process by kind of mapping, from its page tables, with the bytes that recorded stacks explain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency(pub BTreeMap<MappingKind, ResidentKind>);

/// Resident memory of one kind. The total is the sum of bytes with a stack, bytes that were resident before tracing,
/// and bytes that became resident without a recorded touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentKind {
    /// Resident bytes.
    pub total: Bytes,
    /// Bytes on pages that a recorded stack touched, or that this touch made resident together with the touched page.
    /// If pages are sampled, this is an estimate.
    pub with_stack: Bytes,
    /// Part of `with_stack` that is counted and not estimated, because it is in huge pages.
    pub counted: Bytes,
    /// Variance of `with_stack`, in pages squared; 0 if pages are not sampled.
    pub variance: u64,
    /// Bytes that were resident when tracing began and have not been touched since.
    pub before: Bytes,
}

impl ResidentKind {
    /// Adds the bytes and the variance of `other`.
    pub const fn add(&mut self, other: &Self) {
        self.total.0 += other.total.0;
        self.with_stack.0 += other.with_stack.0;
        self.counted.0 += other.counted.0;
        self.before.0 += other.before.0;
        self.variance = self.variance.saturating_add(other.variance);
    }

    /// Returns the upper bound of the bytes with a stack: all resident bytes except those from before the trace.
    #[must_use]
    pub const fn most_with_stack(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.before.0))
    }

    /// Returns the bytes with a stack, limited by their upper bound, which an estimate can exceed.
    #[must_use]
    pub fn explained(&self) -> Bytes {
        self.with_stack.min(self.most_with_stack())
    }

    /// Returns the bytes that became resident without a recorded touch.
    #[must_use]
    pub const fn other(&self) -> Bytes {
        Bytes(self.most_with_stack().0.saturating_sub(self.with_stack.0))
    }
}

impl Residency {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn sum(&self) -> ResidentKind {
        let mut sum = ResidentKind::default();
        self.0.values().for_each(|kind| sum.add(kind));
        sum
    }
}

impl Touched {
    /// Returns the end address.
    #[must_use]
    pub const fn end(&self) -> AbsAddr {
        AbsAddr(self.begin.0 + self.pages * PAGE.0)
    }
}

impl ResidentRange {
    /// Returns the size.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.begin.0))
    }
}
