//! Identities of stacks.

use crate::Part;

/// Identity of a stack: a hash of its frames, its process and the mappings of the process, or a constant for a
/// missing stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u64);

impl StackId {
    /// ID if stacks are disabled.
    pub const NOT_TAKEN: Self = Self(memtrace_common::wire::STACK_NOT_TAKEN);
    /// ID if the stack could not be recorded. The reason is counted as a loss.
    pub const FAILED: Self = Self(memtrace_common::wire::STACK_FAILED);
    /// ID of the sum of stacks that were merged to bound memory.
    pub const OTHER: Self = Self(memtrace_common::wire::STACK_OTHER);

    /// Returns true if the ID belongs to a stack with frames.
    #[must_use]
    pub const fn has_frames(self) -> bool {
        self.0 >= memtrace_common::wire::STACK_FIRST
    }
}

/// Key of the totals of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackKey {
    /// ID of the stack.
    pub stack: StackId,
    /// Part of the process with the totals.
    pub part: Part,
}

impl From<StackId> for StackKey {
    /// Returns the key of a stack of the whole process.
    fn from(stack: StackId) -> Self {
        Self { stack, part: Part::WHOLE }
    }
}
