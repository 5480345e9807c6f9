//! Identities of stacks.

use crate::model::Partition;

/// A stack's identity: a hash of its frames, its process and what this had mapped, or one of the constants for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u64);

impl StackId {
    /// No stack was asked for.
    pub const NOT_TAKEN: Self = Self(memtrace_common::wire::STACK_NOT_TAKEN);
    /// The stack could not be taken; a loss says why.
    pub const FAILED: Self = Self(memtrace_common::wire::STACK_FAILED);

    /// Whether the id stands for frames at all.
    #[must_use]
    pub const fn has_frames(self) -> bool {
        self.0 >= memtrace_common::wire::STACK_FIRST
    }
}

/// What the books of an image are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackKey {
    /// The stack.
    pub stack: StackId,
    /// The part of the process.
    pub part: Partition,
}

impl From<StackId> for StackKey {
    /// The stack's key where no parts are kept apart.
    fn from(stack: StackId) -> Self {
        Self { stack, part: Partition::Whole }
    }
}
