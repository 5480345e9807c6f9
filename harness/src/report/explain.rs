//! The report of `memtrace explain`.

use serde::Deserialize;

/// The memory of a process.
#[derive(Clone, Debug, Deserialize)]
pub struct Explanation {
    pub rss_bytes: u64,
    /// Anonymous part of the RSS, as the kernel counts it.
    pub rss_anonymous_bytes: u64,
    /// File part of the RSS, as the kernel counts it.
    pub rss_file_bytes: u64,
    /// Shared memory part of the RSS, as the kernel counts it.
    pub rss_shmem_bytes: u64,
    pub page_table_bytes: u64,
    pub unexplained_bytes: i64,
    /// Share of the RSS that the parts explain.
    pub explained: f64,
    pub threads: u32,
    pub heap: Heap,
    /// Anonymous memory outside of the heap and the stacks.
    pub anonymous: Vec<NamedUsage>,
    pub main_stack: MemoryUsage,
    pub thread_stacks: ThreadStacks,
    pub files: Vec<FileUsage>,
    pub shmem: Vec<NamedUsage>,
    /// Mappings of the kernel, such as `[vdso]`.
    pub special: MemoryUsage,
    /// The same memory by kind of mapping.
    pub kinds: Vec<KindUsage>,
    pub pss_bytes: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct MemoryUsage {
    /// Mapped.
    pub reserved_bytes: u64,
    pub resident_bytes: u64,
    pub swap_bytes: u64,
    /// Resident in huge pages.
    pub huge_bytes: u64,
}

/// Memory of one kind of mapping.
#[derive(Clone, Debug, Deserialize)]
pub struct KindUsage {
    pub kind: String,
    #[serde(flatten)]
    pub usage: MemoryUsage,
}

/// Memory of the allocator.
#[derive(Clone, Debug, Deserialize)]
pub struct Heap {
    pub allocator: Option<String>,
    #[serde(flatten)]
    pub usage: MemoryUsage,
    /// Totals of the chunk headers.
    pub blocks: Option<Blocks>,
    /// Reason why the chunk headers were not read.
    pub not_told: Option<String>,
}

/// Totals of glibc's chunk headers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Blocks {
    pub in_use_bytes: u64,
    pub in_use_count: u64,
    pub in_use_resident_bytes: u64,
    /// Blocks with a mapping of their own.
    pub mapped_bytes: u64,
    pub mapped_count: u64,
    pub free_bytes: u64,
    /// Memory that the allocator itself uses.
    pub own_bytes: u64,
    /// Resident heap memory that no readable chunk covers.
    pub untold_resident_bytes: u64,
    pub arenas: u32,
}

/// Memory of mappings with the same name.
#[derive(Clone, Debug, Deserialize)]
pub struct NamedUsage {
    pub name: String,
    #[serde(flatten)]
    pub usage: MemoryUsage,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ThreadStacks {
    pub count: u32,
    #[serde(flatten)]
    pub usage: MemoryUsage,
    /// Thread with the largest stack.
    pub largest_thread: Option<u32>,
    pub largest_resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct FileUsage {
    pub path: String,
    #[serde(flatten)]
    pub usage: MemoryUsage,
    /// Private copies of pages of the file.
    pub copied_bytes: u64,
}

impl Explanation {
    /// Returns the totals of the chunk headers. The allocator must be glibc's.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        assert_eq!(self.heap.allocator.as_deref(), Some("glibc"), "{self:#?}");
        self.heap.blocks.unwrap_or_else(|| panic!("no blocks: {self:#?}"))
    }

    /// Asserts that the parts add up to the RSS, and agree with the kernel's parts of the RSS.
    pub fn assert_adds_up(&self) {
        let sum_of = |list: &[NamedUsage]| list.iter().map(|named| named.usage.resident_bytes).sum::<u64>();
        let files: u64 = self.files.iter().map(|file| file.usage.resident_bytes).sum();
        let copied: u64 = self.files.iter().map(|file| file.copied_bytes).sum();
        let stacks = self.main_stack.resident_bytes + self.thread_stacks.usage.resident_bytes;
        let anonymous = self.heap.usage.resident_bytes + sum_of(&self.anonymous) + stacks + copied;
        assert_eq!(self.rss_bytes, self.rss_anonymous_bytes + self.rss_file_bytes + self.rss_shmem_bytes);
        let sum = anonymous + files - copied + sum_of(&self.shmem) + self.special.resident_bytes;
        assert_eq!(self.rss_bytes.cast_signed() - self.unexplained_bytes, sum.cast_signed(), "{self:#?}");
        let is_near = |ours: u64, kernels: u64| ours.abs_diff(kernels) <= self.rss_bytes / 33;
        assert!(is_near(anonymous, self.rss_anonymous_bytes), "{anonymous} {self:#?}");
        assert!(is_near(files - copied + self.special.resident_bytes, self.rss_file_bytes), "{files} {self:#?}");
        assert!(is_near(sum_of(&self.shmem), self.rss_shmem_bytes), "{self:#?}");
    }

    /// Returns the usage of the anonymous memory with this name.
    #[must_use]
    pub fn anonymous(&self, name: &str) -> Option<MemoryUsage> {
        self.anonymous.iter().find(|named| named.name == name).map(|named| named.usage)
    }
}
