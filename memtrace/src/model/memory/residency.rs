//! Which pages of a process are in memory, and which of them its stacks have touched.

use std::collections::BTreeMap;

use crate::model::{AbsAddr, Bytes, MappingKind, PAGE, StackKey};

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

/// What is resident of a process, as its page tables say, and how much of that its stacks account for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency(pub BTreeMap<MappingKind, ResidentKind>);

/// What is resident of one kind of memory. What neither has a stack nor was there before came without a touch that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentKind {
    /// All of it.
    pub total: Bytes,
    /// What was touched by a stack that is known, or came along with what was. Where pages were sampled, an estimate.
    pub with_stack: Bytes,
    /// The variance of that in pages, in pages by pages; 0 where pages were not sampled.
    pub variance: u64,
    /// What was there when tracing began, and has not been touched anew since.
    pub before: Bytes,
}

impl ResidentKind {
    /// Adds another one's.
    pub const fn add(&mut self, other: &Self) {
        self.total.0 += other.total.0;
        self.with_stack.0 += other.with_stack.0;
        self.before.0 += other.before.0;
        self.variance = self.variance.saturating_add(other.variance);
    }

    /// What neither has a stack nor was there before. An estimate may be more than there is.
    #[must_use]
    pub const fn other(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.with_stack.0).saturating_sub(self.before.0))
    }
}

impl Residency {
    /// All kinds together.
    #[must_use]
    pub fn sum(&self) -> ResidentKind {
        let mut sum = ResidentKind::default();
        self.0.values().for_each(|kind| sum.add(kind));
        sum
    }
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
