//! Identities of stacks.

use crate::Part;

/// Identity of a stack: a hash of its frames, its process and the mappings of the process, or a constant for a
/// missing stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u64);

impl StackId {
    /// No stack was requested.
    pub const NOT_TAKEN: Self = Self(memtrace_common::wire::STACK_NOT_TAKEN);
    /// The stack could not be recorded; a loss gives the reason.
    pub const FAILED: Self = Self(memtrace_common::wire::STACK_FAILED);
    /// Sum of stacks that were merged to bound memory.
    pub const OTHER: Self = Self(memtrace_common::wire::STACK_OTHER);

    /// Returns true if the ID stands for frames.
    #[must_use]
    pub const fn has_frames(self) -> bool {
        self.0 >= memtrace_common::wire::STACK_FIRST
    }
}

/// Key of the totals within an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackKey {
    /// The stack.
    pub stack: StackId,
    /// Part of the process.
    pub part: Part,
}

impl From<StackId> for StackKey {
    /// Returns the key for the whole process.
    fn from(stack: StackId) -> Self {
        Self { stack, part: Part::WHOLE }
    }
}
