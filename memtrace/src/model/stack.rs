//! Call stacks as the kernel took them.

use super::AbsAddr;

/// Why a stack walk ended where it did, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// The outermost frame was reached and known as such: no caller is missing.
    Complete,
    /// The chain of frame pointers ended; callers may be missing.
    FramePointers,
    /// There were more frames than were asked for.
    Truncated,
    /// No stack was asked for.
    NotTaken,
    /// The stack could not be taken, or there was no room for it.
    Failed,
    /// The stack was taken, but its frames never arrived.
    FramesLost,
}

impl StackEnd {
    /// Every end, in the order in which reports list them.
    pub const ALL: &[Self] =
        &[Self::Complete, Self::FramePointers, Self::Truncated, Self::NotTaken, Self::Failed, Self::FramesLost];

    /// The end's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::FramePointers => "frame_pointers",
            Self::Truncated => "truncated",
            Self::NotTaken => "not_taken",
            Self::Failed => "failed",
            Self::FramesLost => "frames_lost",
        }
    }
}

/// A stack's frames, and how the walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first. All are return addresses: the call is in the byte before.
    pub frames: Box<[AbsAddr]>,
    /// How the walk ended.
    pub end: StackEnd,
}
