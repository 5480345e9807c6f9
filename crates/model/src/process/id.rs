//! Identities of processes, threads and control groups.

use std::fmt;

/// Process (thread group) ID in the root PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

impl Pid {
    /// Number of possible pids: `PID_MAX_LIMIT`, include/linux/threads.h.
    pub const LIMIT: u32 = 1 << 22;
}

impl fmt::Display for Pid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Thread ID in the root PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// Stands for all ended threads of a process that have no account of their own.
    pub const ENDED: Self = Self(u32::MAX);

    /// Upper limit of thread IDs: `PID_MAX_LIMIT`, include/linux/threads.h.
    const LIMIT: u32 = 4 << 20;

    /// Returns true if this is [`Self::ENDED`] or a result of [`Self::ended`].
    #[must_use]
    pub const fn is_of_ended(self) -> bool {
        self.0 > Self::LIMIT
    }

    /// Returns an ID for an ended thread, because its thread ID can be reused. `number` counts the ended threads. The
    /// results repeat after four billion threads.
    #[must_use]
    pub const fn ended(number: u32) -> Self {
        Self(Self::LIMIT + 1 + number % (u32::MAX - Self::LIMIT - 1))
    }
}

/// Identity of a process image: one executable run by one process. A PID gets another image at each exec, and when it
/// is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    /// Process id.
    pub pid: Pid,
    /// Number of earlier images of this PID since tracing began.
    pub ordinal: u32,
}

impl ImageId {
    /// Returns the ID that stands for a group of ended images in a recording. Its pid is 0, which no process has.
    #[must_use]
    pub const fn of_group(number: u32) -> Self {
        Self { pid: Pid(0), ordinal: number }
    }

    /// Returns true for an ID of [`Self::of_group`].
    #[must_use]
    pub const fn stands_for_group(self) -> bool {
        self.pid.0 == 0
    }
}

/// ID of a control group in its hierarchy: the inode number of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(u64);

impl CgroupId {
    /// Returns the ID with the kernel's number `raw`; `None` for 0, which is no control group.
    #[must_use]
    pub const fn of(raw: u64) -> Option<Self> {
        if raw == 0 { None } else { Some(Self(raw)) }
    }

    /// Returns the inode number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}
