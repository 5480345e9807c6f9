//! Call stacks as the kernel took them.

use super::AbsAddr;

/// Why a stack walk ended where it did, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// The outermost frame was reached and known as such: no caller is missing.
    Complete,
    /// The outermost frame was reached, in part by the frame pointers of code that was generated at run time.
    Generated,
    /// The chain of frame pointers ended; callers may be missing.
    FramePointers,
    /// There were more frames than were asked for.
    Truncated,
    /// Cut: the frame pointers of code that was generated at run time led nowhere.
    GeneratedCut,
    /// Cut at an address that is in no known mapping of code.
    NoMapping,
    /// Cut at an object whose unwind table was not there yet.
    TablePending,
    /// Cut at an object that has no unwind table.
    NoTable,
    /// Cut at an address of which the object's unwind table says nothing.
    NoRow,
    /// Cut at an address where what the object says cannot be put into a table.
    Untabled,
    /// Cut where the stack could not be read.
    Unreadable,
    /// Cut where what was found cannot be a frame.
    BadFrame,
    /// Cut where the caller's frame hangs on a register whose value is not known.
    RegisterLost,
    /// Cut where the process was changing its mappings at that moment.
    MappingsBusy,
    /// No stack was asked for.
    NotTaken,
    /// The stack could not be taken, or there was no room for it.
    Failed,
    /// The stack was taken, but its frames never arrived.
    FramesLost,
}

impl StackEnd {
    /// Every end, in the order in which reports list them.
    pub const ALL: &[Self] = &[
        Self::Complete,
        Self::Generated,
        Self::FramePointers,
        Self::Truncated,
        Self::GeneratedCut,
        Self::NoMapping,
        Self::TablePending,
        Self::NoTable,
        Self::NoRow,
        Self::Untabled,
        Self::Unreadable,
        Self::BadFrame,
        Self::RegisterLost,
        Self::MappingsBusy,
        Self::NotTaken,
        Self::Failed,
        Self::FramesLost,
    ];

    /// The end's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Generated => "generated",
            Self::FramePointers => "frame_pointers",
            Self::Truncated => "truncated",
            Self::GeneratedCut => "generated_cut",
            Self::NoMapping => "no_mapping",
            Self::TablePending => "table_pending",
            Self::NoTable => "no_table",
            Self::NoRow => "no_row",
            Self::Untabled => "untabled",
            Self::Unreadable => "unreadable",
            Self::BadFrame => "bad_frame",
            Self::RegisterLost => "register_lost",
            Self::MappingsBusy => "mappings_busy",
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
