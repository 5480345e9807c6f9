//! Identities of processes, threads and stacks.

use std::fmt;

/// A process (thread group), as the root pid namespace numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A thread, as the root pid namespace numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// One program run by one process: a pid names another image after each `exec`, and after it has been reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    /// The process.
    pub pid: Pid,
    /// How many images this pid has had before, since tracing began.
    pub ordinal: u32,
}

/// A control group of the memory controller: the number of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(u64);

impl CgroupId {
    /// The group that the kernel calls `raw`; `None` where that is none.
    #[must_use]
    pub const fn of(raw: u64) -> Option<Self> {
        if raw == 0 { None } else { Some(Self(raw)) }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}
