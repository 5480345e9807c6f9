//! Which events are followed.

/// A class of events, each with books of its own: what they are about overlaps, and is not to be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventClass {
    /// Blocks that allocators hand out.
    #[default]
    Heap,
    /// Addresses that are mapped, touched or not.
    Map,
    /// Pages that are touched, and so become resident.
    Fault,
    /// Waits for memory, while the kernel looks for pages that can go.
    Reclaim,
}

impl EventClass {
    /// Every class, in the order in which help lists them.
    pub const ALL: &[Self] = &[Self::Heap, Self::Map, Self::Fault, Self::Reclaim];

    /// The class's name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Map => "map",
            Self::Fault => "fault",
            Self::Reclaim => "reclaim",
        }
    }
}
