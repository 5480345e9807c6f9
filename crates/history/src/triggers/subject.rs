//! Kinds of subjects.

/// Kind of subject that a condition observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Each monitored process.
    Process,
    /// The machine.
    Machine,
    /// Each cgroup of a monitored process.
    Cgroup,
    /// Each thread of a monitored process.
    Thread,
}

impl Subject {
    /// All kinds. The first kind that has a field is the default subject of the field.
    pub const ALL: [Self; 4] = [Self::Process, Self::Machine, Self::Cgroup, Self::Thread];

    /// Returns the name in the text of a condition.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Machine => "machine",
            Self::Cgroup => "cgroup",
            Self::Thread => "thread",
        }
    }
}
