//! Memory pressure of the machine.

/// Time that tasks waited for memory since boot, in nanoseconds (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureCounter {
    /// Time that at least one task waited.
    Some,
    /// Time that all non-idle tasks waited.
    Full,
}

impl PressureCounter {
    /// Every counter.
    pub const ALL: &[Self] = &[Self::Some, Self::Full];

    /// Returns the name in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Some => "pressure.memory_some_ns",
            Self::Full => "pressure.memory_full_ns",
        }
    }

    /// Returns the counter with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|counter| counter.name() == name)
    }

    /// Returns the title in pictures.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Some => "memory pressure, some",
            Self::Full => "memory pressure, full",
        }
    }
}
