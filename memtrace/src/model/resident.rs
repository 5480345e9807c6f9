//! Which pages of a process are in memory, and which of them its stacks have touched.

use super::{AbsAddr, Bytes, MappingKind, StackKey};

/// The size of the smallest pages.
pub const PAGE: Bytes = Bytes(1 << memtrace_common::wire::PAGE_SHIFT);

/// Pages side by side that the same stack has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The first.
    pub begin: AbsAddr,
    /// How many.
    pub pages: u64,
    /// Who has.
    pub key: StackKey,
}

/// Pages side by side that are in memory, of one kind, in one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentRange {
    /// The first.
    pub begin: AbsAddr,
    /// The address behind the last.
    pub end: AbsAddr,
    /// What kind of memory it is.
    pub kind: MappingKind,
    /// Whether they are part of a page larger than [`PAGE`] that is mapped as a whole.
    pub huge: bool,
}

impl Touched {
    /// The address behind the last page.
    #[must_use]
    pub const fn end(&self) -> AbsAddr {
        AbsAddr(self.begin.0 + self.pages * PAGE.0)
    }
}

impl ResidentRange {
    /// How much that is.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.begin.0))
    }
}
