//! Who is traced: how user space tells the programs, and what they remember of it.

use core::mem::size_of;

/// Who is traced.
pub mod scope {
    /// Whoever runs into a probe: each is placed for one process.
    pub const PROBED: u32 = 0;
    /// The processes in the list of targets.
    pub const LISTED: u32 = 1;
    /// Those, and all whom they fork.
    pub const FAMILIES: u32 = 2;
    /// All whom the selectors choose.
    pub const SELECTED: u32 = 3;
}

/// What is written of a process in the list of targets.
pub mod target {
    /// It is traced; else it is not.
    pub const TRACED: u32 = 1;
    /// User space said so; what program it runs changes nothing.
    pub const FIXED: u32 = 2;
}

/// A property of processes, by which they are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Selector {
    /// Which property: one of [`selector`]'s.
    pub property: u64,
    /// Its value; see there.
    pub value: [u64; 2],
}

/// Which properties there are, and what is done with those who have them.
pub mod selector {
    /// The name of the first thread: up to 15 bytes, the rest zero (`TASK_COMM_LEN`, include/linux/sched.h).
    pub const COMM: u64 = 1;
    /// The real user id; the second word is zero.
    pub const USER: u64 = 2;
    /// The program's file: its inode's number, then its device as the kernel counts them.
    pub const EXE: u64 = 3;
    /// A control group (version 2) that it is in or below: the id; the second word is zero.
    pub const CGROUP: u64 = 4;

    /// Whoever has it is chosen.
    pub const INCLUDE: u32 = 1;
    /// Whoever has it is not, whatever else.
    pub const EXCLUDE: u32 = 2;
}

/// The most selectors.
pub const MAX_SELECTORS: usize = 1024;

/// The most processes whose choice is remembered.
pub const MAX_TARGETS: usize = 1 << 16;

const _: () = assert!(size_of::<Selector>() == 24);
