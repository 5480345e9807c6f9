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

/// A stack's identity: a hash of its frames, its process and what this had mapped, or one of the constants for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u64);

impl StackId {
    /// No stack was asked for.
    pub const NOT_TAKEN: Self = Self(memtrace_common::wire::STACK_NOT_TAKEN);
    /// The stack could not be taken; a loss says why.
    pub const FAILED: Self = Self(memtrace_common::wire::STACK_FAILED);

    /// Whether the id stands for frames at all.
    #[must_use]
    pub const fn has_frames(self) -> bool {
        self.0 >= memtrace_common::wire::STACK_FIRST
    }
}
