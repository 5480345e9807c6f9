//! Call stacks as the BPF programs record them.

use std::time::Duration;

pub use memtrace_common::vocabulary::StackEnd;
use memtrace_common::wire::FRAME_BY_FP;

use crate::AbsAddr;

/// Frames of a stack with the end and the time of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Innermost frame first. All are return addresses: the call is in the byte before. [`split_frame`] decodes them.
    pub frames: Box<[AbsAddr]>,
    /// End of the walk.
    pub end: StackEnd,
    /// Time of the first transmission, since tracing began. The mappings of that time give the frames their names.
    pub taken: Duration,
}

impl Stack {
    /// Returns a stack without frames, which were removed or left out to bound memory.
    #[must_use]
    pub fn merged() -> Self {
        Self { frames: Box::default(), end: StackEnd::Merged, taken: Duration::ZERO }
    }
}

/// Returns the address of a frame of [`Stack::frames`], and true if the frame was found by frame pointer.
#[must_use]
pub const fn split_frame(frame: AbsAddr) -> (AbsAddr, bool) {
    (AbsAddr(frame.0 & !FRAME_BY_FP), frame.0 & FRAME_BY_FP != 0)
}
