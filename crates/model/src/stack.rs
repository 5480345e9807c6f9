//! Call stacks.

mod id;
mod stacks;
mod tree;

use std::time::Duration;

pub use memtrace_common::vocabulary::StackEnd;
use memtrace_common::wire::FRAME_BY_FP;

pub use id::{StackId, StackKey};
pub use stacks::Stacks;
pub use tree::{Merged, Node, Tree};

use crate::AbsAddr;

/// Frames of a stack with the end and the time of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Frames, the innermost first. Each is the address after a call, so that the byte before it belongs to the call.
    /// [`split_frame`] decodes a frame.
    pub frames: Box<[AbsAddr]>,
    /// End of the walk.
    pub end: StackEnd,
    /// Time of the walk since tracing began. The mappings at this time give the frames their names.
    pub taken: Duration,
}

impl Stack {
    /// Returns a merged stack: its frames were removed to bound memory.
    #[must_use]
    pub fn merged() -> Self {
        Self { frames: Box::default(), end: StackEnd::Merged, taken: Duration::ZERO }
    }
}

/// Decodes a frame of [`Stack::frames`]. Returns its address, and true if the frame was found by frame pointer.
#[must_use]
pub const fn split_frame(frame: AbsAddr) -> (AbsAddr, bool) {
    (AbsAddr(frame.0 & !FRAME_BY_FP), frame.0 & FRAME_BY_FP != 0)
}
