//! Where a process' memory is at one moment, as the kernel and the allocator's own marks say it.

use std::ops::AddAssign;
use std::path::PathBuf;

use crate::model::{Bytes, MappingKind, Pid, Pressure, Tid};

/// Where a process' memory is. Its [`held`](Self::held) adds up to what `/proc/PID/smaps` shows as resident.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The process.
    pub pid: Pid,
    /// Its short name.
    pub comm: String,
    /// Its program, as it sees the path itself.
    pub exe: PathBuf,
    /// How many threads it has.
    pub threads: u32,
    /// What the kernel counts.
    pub counted: StatusCounters,
    /// The RSS before all else was read, where it was another then.
    pub before: Option<Bytes>,
    /// Its allocator and what that holds.
    pub heap: HeapMemory,
    /// Private memory without a file that is no allocator's and no stack, by its name, the largest first.
    pub anonymous: Vec<NamedMemory>,
    /// The main thread's stack.
    pub main_stack: MemorySizes,
    /// The other threads' stacks, those that are kept for threads to come too.
    pub thread_stacks: ThreadStacks,
    /// Files, the largest first.
    pub files: Vec<FileMemory>,
    /// Shared memory by name, the largest first.
    pub shmem: Vec<NamedMemory>,
    /// What the kernel lends, and devices.
    pub special: MemorySizes,
    /// Huge pages from the pool: not in the RSS.
    pub hugetlb: MemorySizes,
    /// The same memory by kind of mapping.
    pub kinds: Vec<(MappingKind, MemorySizes)>,
    /// The process' share of the RSS where each page is divided among those that have it mapped (PSS).
    pub pss: Bytes,
    /// Its control group's memory, where there is a controller for it.
    pub cgroup: Option<CgroupMemory>,
    /// How long anyone on the machine waited for memory, where the kernel keeps that.
    pub pressure: Option<Pressure>,
}

/// What the kernel counts of a process (`/proc/PID/status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounters {
    /// The RSS.
    pub rss: Bytes,
    /// Of it, anonymous memory.
    pub anonymous: Bytes,
    /// Of it, pages of files.
    pub file: Bytes,
    /// Of it, shared memory.
    pub shmem: Bytes,
    /// The highest that the RSS ever was.
    pub peak: Bytes,
    /// All that is mapped.
    pub virtual_size: Bytes,
    /// Swapped out.
    pub swap: Bytes,
    /// Its page tables, which are not in the RSS.
    pub page_tables: Bytes,
}

/// How much of some memory there is. Additive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySizes {
    /// What is mapped, touched or not.
    pub reserved: Bytes,
    /// What is in the RSS.
    pub resident: Bytes,
    /// What is swapped out.
    pub swap: Bytes,
    /// Of what is resident, what is mapped by huge pages.
    pub huge: Bytes,
}

impl AddAssign for MemorySizes {
    fn add_assign(&mut self, other: Self) {
        self.reserved.0 += other.reserved.0;
        self.resident.0 += other.resident.0;
        self.swap.0 += other.swap.0;
        self.huge.0 += other.huge.0;
    }
}

impl MemorySizes {
    /// What is left without `part`.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self {
            reserved: Bytes(self.reserved.0.saturating_sub(part.reserved.0)),
            resident: Bytes(self.resident.0.saturating_sub(part.resident.0)),
            swap: Bytes(self.swap.0.saturating_sub(part.swap.0)),
            huge: Bytes(self.huge.0.saturating_sub(part.huge.0)),
        }
    }
}

/// What an allocator holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapMemory {
    /// The allocator's name; `None` where none is known.
    pub allocator: Option<String>,
    /// All of its mappings.
    pub held: MemorySizes,
    /// What is in use and what is not.
    pub source: HeapSource,
}

/// Whether an allocator's memory in use was told from the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapSource {
    /// By the allocator's own marks.
    Known(HeapStats),
    /// Not, and why: `jemalloc does not mark its blocks`.
    Unknown(String),
}

impl Default for HeapSource {
    fn default() -> Self {
        Self::Unknown(String::from("there is none"))
    }
}

/// What an allocator's own marks say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Blocks that are in use, the allocator's marks at them included; those in the caches of threads and in lists of small
    /// blocks that were just freed look as if they were in use.
    pub in_use: Bytes,
    /// How many they are.
    pub blocks: u64,
    /// Of the blocks in use, those with a mapping of their own.
    pub mapped: Bytes,
    /// How many these are.
    pub mapped_blocks: u64,
    /// Free blocks, and what was never handed out.
    pub free: Bytes,
    /// What the allocator needs itself.
    pub own: Bytes,
    /// How many arenas.
    pub arenas: u32,
    /// What of the blocks in use is resident.
    pub in_use_resident: Bytes,
    /// What is resident in arenas of which it could not be told.
    pub undetermined: Bytes,
}

/// Memory of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedMemory {
    /// The name, as the process or the kernel gives it; empty where there is none.
    pub name: String,
    /// How many mappings.
    pub mappings: u32,
    /// How much.
    pub held: MemorySizes,
}

/// The stacks of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStacks {
    /// All of them.
    pub held: MemorySizes,
    /// How many.
    pub stacks: u32,
    /// The one that is resident the most, and whose it is, where its thread runs.
    pub largest: Option<(Tid, Bytes)>,
}

/// A file that is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMemory {
    /// Its path, as the process sees it.
    pub path: String,
    /// How much, private copies included.
    pub held: MemorySizes,
    /// Of what is resident, what the process has written to and holds a copy of for itself.
    pub copied: Bytes,
}

/// The memory of a control group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupMemory {
    /// Its path.
    pub path: String,
    /// What it uses, all of its processes and its page cache.
    pub current: Bytes,
    /// The limit that is reached first, its own or that of a group above it; `None` where there is none.
    pub limit: Option<CgroupLimit>,
    /// Of what it uses, anonymous memory, where the kernel says so.
    pub anonymous: Option<Bytes>,
    /// Of what it uses, page cache, where the kernel says so.
    pub file: Option<Bytes>,
    /// How long its tasks waited for memory, where the kernel keeps that.
    pub pressure: Option<Pressure>,
}

/// The limit of a control group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Whose it is.
    pub path: String,
    /// The limit.
    pub most: Bytes,
    /// What that group uses.
    pub current: Bytes,
}

impl Explanation {
    /// All that is resident by its mappings.
    #[must_use]
    pub fn held(&self) -> MemorySizes {
        let mut sum = self.heap.held;
        for part in [self.main_stack, self.thread_stacks.held, self.special] {
            sum += part;
        }
        for part in self.anonymous.iter().chain(&self.shmem).map(|named| named.held) {
            sum += part;
        }
        for file in &self.files {
            sum += file.held;
        }
        sum
    }

    /// What the kernel counts beyond what its mappings show; below zero where they show more.
    #[must_use]
    pub const fn unexplained(&self, held: MemorySizes) -> i64 {
        self.counted.rss.0.wrapping_sub(held.resident.0).cast_signed()
    }

    /// The share of the RSS that is explained, from 0 to 1; what is explained too much counts as what is missing does.
    #[must_use]
    pub fn explained(&self) -> f64 {
        let rss = self.counted.rss.0;
        if rss == 0 {
            return 1.0;
        }
        let off = self.unexplained(self.held()).unsigned_abs();
        (1.0 - off as f64 / rss as f64).max(0.0)
    }
}
