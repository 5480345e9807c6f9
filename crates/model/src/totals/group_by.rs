//! Grouping of stacks.

use crate::PartKeys;

/// Grouping key of stacks. In a flame graph, the group is the outermost entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// Process that allocated.
    #[default]
    Process,
    /// Control group of the process.
    Cgroup,
    /// User of the process.
    User,
    /// Short name of the process.
    Comm,
    /// Allocator that returned the block.
    Allocator,
    /// Thread that allocated.
    Thread,
    /// Kind of memory.
    Memory,
    /// Object of the innermost frame outside of allocators and language runtimes.
    Object,
    /// Tag of the stack by the user's rules, or tag that the process has set.
    Tag,
}

impl GroupBy {
    /// Every key, ordered as in the help.
    pub const ALL: &[Self] = &[
        Self::Process,
        Self::Cgroup,
        Self::User,
        Self::Comm,
        Self::Allocator,
        Self::Thread,
        Self::Memory,
        Self::Object,
        Self::Tag,
    ];

    /// Returns the name on the command line and in reports.
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
            Self::Object => "object",
            Self::Tag => "tag",
        }
    }

    /// Returns the plural noun for titles.
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
            Self::Object => "objects",
            Self::Tag => "tags",
        }
    }

    /// Returns true if groups are processes.
    #[must_use]
    pub fn is_process(self) -> bool {
        self == Self::Process
    }

    /// Returns true if groups are names of processes.
    #[must_use]
    pub fn is_comm(self) -> bool {
        self == Self::Comm
    }

    /// Returns true if groups are users.
    #[must_use]
    pub fn is_user(self) -> bool {
        self == Self::User
    }

    /// Returns true if groups are control groups.
    #[must_use]
    pub fn is_cgroup(self) -> bool {
        self == Self::Cgroup
    }

    /// Returns true if groups are tags.
    #[must_use]
    pub fn is_tag(self) -> bool {
        self == Self::Tag
    }

    /// Returns true if the group of a block depends on its stack. A tag that the process has set does not depend on the
    /// stack.
    #[must_use]
    pub fn needs_stacks(self, has_program_tags: bool) -> bool {
        self == Self::Object || self.is_tag() && !has_program_tags
    }

    /// Returns true if the name of a group is a path. The significant text of a path is at its end.
    #[must_use]
    pub const fn is_path(self) -> bool {
        matches!(self, Self::Cgroup | Self::Object)
    }

    /// Returns the keys that parts of processes need for this grouping.
    #[must_use]
    pub const fn parts(self) -> PartKeys {
        match self {
            Self::Thread => PartKeys::THREAD,
            Self::Allocator => PartKeys::ALLOCATOR,
            Self::Memory => PartKeys::MEMORY,
            Self::Process | Self::Cgroup | Self::User | Self::Comm | Self::Object | Self::Tag => PartKeys::NONE,
        }
    }
}
