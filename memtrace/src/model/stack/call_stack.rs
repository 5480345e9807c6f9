//! Call stacks as the kernel took them.

use std::time::Duration;

pub use memtrace_common::vocabulary::StackEnd;

use crate::model::AbsAddr;

/// A stack's frames, how the walk ended, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first. All are return addresses: the call is in the byte before.
    pub frames: Box<[AbsAddr]>,
    /// How the walk ended.
    pub end: StackEnd,
    /// When its frames were first sent, since tracing began: by the mappings of that time they have their names.
    pub taken: Duration,
}
