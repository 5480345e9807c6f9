//! Names of the arguments of spans and events.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentName {
    CpuTime,
    Allocated,
    Label,
    Size,
    Lock,
    Holder,
    Waker,
    Stack,
    NotEnded,
    EndLost,
    Value,
}

impl ArgumentName {
    pub(super) const ALL: [Self; 11] = [
        Self::CpuTime,
        Self::Allocated,
        Self::Label,
        Self::Size,
        Self::Lock,
        Self::Holder,
        Self::Waker,
        Self::Stack,
        Self::NotEnded,
        Self::EndLost,
        Self::Value,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CpuTime => "cpu_ns",
            Self::Allocated => "allocated_bytes",
            Self::Label => "label",
            Self::Size => "size_bytes",
            Self::Lock => "lock",
            Self::Holder => "holder",
            Self::Waker => "waker",
            Self::Stack => "stack",
            Self::NotEnded => "not ended",
            Self::EndLost => "end lost",
            Self::Value => "value",
        }
    }

    /// Returns the IID of the name: its position in [`Self::ALL`], from 1.
    pub(super) const fn iid(self) -> u64 {
        self as u64 + 1
    }
}
