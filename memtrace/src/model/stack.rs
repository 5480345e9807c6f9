//! Call stacks as the kernel took them.

pub use memtrace_common::vocabulary::StackEnd;

use super::AbsAddr;

/// A stack's frames, and how the walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first. All are return addresses: the call is in the byte before.
    pub frames: Box<[AbsAddr]>,
    /// How the walk ended.
    pub end: StackEnd,
}
