//! Call stacks as the BPF programs record them.

use std::time::Duration;

pub use memtrace_common::vocabulary::StackEnd;

use crate::model::AbsAddr;

/// Frames of a stack with the end and the time of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Innermost frame first. All are return addresses: the call is in the byte before.
    pub frames: Box<[AbsAddr]>,
    /// End of the walk.
    pub end: StackEnd,
    /// Time of the first transmission, since tracing began. The mappings of that time give the frames their names.
    pub taken: Duration,
}
