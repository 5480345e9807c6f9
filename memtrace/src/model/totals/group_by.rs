//! What stands at the root of a flame graph.

use crate::model::PartitionBy;

/// What stacks are put together under: the root of a flame graph's stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// The process that allocated.
    #[default]
    Process,
    /// The control group that the process is in.
    Cgroup,
    /// The user that the process runs as.
    User,
    /// The process' short name.
    Comm,
    /// The allocator that handed the block out.
    Allocator,
    /// The thread that allocated.
    Thread,
    /// The kind of memory.
    Memory,
}

impl GroupBy {
    /// Every root, in the order in which help lists them.
    pub const ALL: &[Self] =
        &[Self::Process, Self::Cgroup, Self::User, Self::Comm, Self::Allocator, Self::Thread, Self::Memory];

    /// The root's name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::User => "user",
            Self::Comm => "comm",
            Self::Allocator => "allocator",
            Self::Thread => "thread",
            Self::Memory => "memory",
        }
    }

    /// What there is several of, for titles.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Process => "processes",
            Self::Cgroup => "control groups",
            Self::User => "users",
            Self::Comm => "commands",
            Self::Allocator => "allocators",
            Self::Thread => "threads",
            Self::Memory => "kinds of memory",
        }
    }

    /// Which parts of a process must have been kept apart for stacks to be told apart by this.
    #[must_use]
    pub const fn parts(self) -> PartitionBy {
        match self {
            Self::Thread => PartitionBy::Threads,
            Self::Allocator => PartitionBy::Allocators,
            Self::Memory => PartitionBy::Memory,
            Self::Process | Self::Cgroup | Self::User | Self::Comm => PartitionBy::Whole,
        }
    }
}
