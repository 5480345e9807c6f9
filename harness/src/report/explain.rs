//! What `memtrace explain` says of a process, as its JSON has it.

use serde::Deserialize;

/// The page.
#[derive(Clone, Debug, Deserialize)]
pub struct Page {
    /// The RSS.
    pub rss_bytes: u64,
    /// Of it, anonymous memory, as the kernel counts.
    pub rss_anonymous_bytes: u64,
    /// Of it, files, as the kernel counts.
    pub rss_file_bytes: u64,
    /// Of it, shared memory, as the kernel counts.
    pub rss_shmem_bytes: u64,
    /// Page tables.
    pub page_table_bytes: u64,
    /// What no part has.
    pub unexplained_bytes: i64,
    /// The share of the RSS that parts have.
    pub explained: f64,
    /// How many threads.
    pub threads: u32,
    /// The allocator's.
    pub heap: Heap,
    /// Other anonymous memory.
    pub anonymous: Vec<Named>,
    /// The main thread's stack.
    pub main_stack: Held,
    /// Other threads' stacks.
    pub thread_stacks: Stacks,
    /// Files.
    pub files: Vec<File>,
    /// Shared memory.
    pub shmem: Vec<Named>,
    /// What the kernel lends.
    pub special: Held,
    /// The same by kind of mapping.
    pub kinds: Vec<Kind>,
    /// What is resident, each page divided among those that have it.
    pub pss_bytes: u64,
}

/// How much of something there is.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Held {
    /// Mapped.
    pub reserved_bytes: u64,
    /// Resident.
    pub resident_bytes: u64,
    /// Swapped out.
    pub swap_bytes: u64,
    /// Of what is resident, what is mapped by huge pages.
    pub huge_bytes: u64,
}

/// A kind of mapping.
#[derive(Clone, Debug, Deserialize)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// How much.
    #[serde(flatten)]
    pub held: Held,
}

/// The allocator.
#[derive(Clone, Debug, Deserialize)]
pub struct Heap {
    /// Its name.
    pub allocator: Option<String>,
    #[serde(flatten)]
    /// How much.
    pub held: Held,
    /// What its marks say.
    pub blocks: Option<Blocks>,
    /// Why they were not read.
    pub not_told: Option<String>,
}

/// What the allocator's marks say.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Blocks {
    /// Blocks in use.
    pub in_use_bytes: u64,
    /// How many.
    pub in_use_count: u64,
    /// What of them is resident.
    pub in_use_resident_bytes: u64,
    /// Those with mappings of their own.
    pub mapped_bytes: u64,
    /// How many.
    pub mapped_count: u64,
    /// Free blocks.
    pub free_bytes: u64,
    /// The allocator's own needs.
    pub own_bytes: u64,
    /// What could not be told.
    pub untold_resident_bytes: u64,
    /// How many arenas.
    pub arenas: u32,
}

/// Memory of a name.
#[derive(Clone, Debug, Deserialize)]
pub struct Named {
    /// Its name.
    pub name: String,
    #[serde(flatten)]
    /// How much.
    pub held: Held,
}

/// Threads' stacks.
#[derive(Clone, Debug, Deserialize)]
pub struct Stacks {
    /// How many.
    pub count: u32,
    #[serde(flatten)]
    /// How much.
    pub held: Held,
    /// Whose is the largest.
    pub largest_thread: Option<u32>,
    /// How much of that is resident.
    pub largest_resident_bytes: Option<u64>,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
pub struct File {
    /// Its path.
    pub path: String,
    #[serde(flatten)]
    /// How much.
    pub held: Held,
    /// What the process has copies of.
    pub copied_bytes: u64,
}

impl Page {
    /// What glibc's marks say.
    ///
    /// # Panics
    ///
    /// If the allocator isn't glibc's, or they weren't read.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        assert_eq!(self.heap.allocator.as_deref(), Some("glibc"), "{self:#?}");
        self.heap.blocks.unwrap_or_else(|| panic!("no blocks: {self:#?}"))
    }

    /// The parts add up, and are what the kernel counts by its own kinds.
    ///
    /// # Panics
    ///
    /// If they don't, or aren't.
    pub fn assert_adds_up(&self) {
        let named = |list: &[Named]| list.iter().map(|named| named.held.resident_bytes).sum::<u64>();
        let files: u64 = self.files.iter().map(|file| file.held.resident_bytes).sum();
        let copied: u64 = self.files.iter().map(|file| file.copied_bytes).sum();
        let stacks = self.main_stack.resident_bytes + self.thread_stacks.held.resident_bytes;
        let anonymous = self.heap.held.resident_bytes + named(&self.anonymous) + stacks + copied;
        assert_eq!(self.rss_bytes, self.rss_anonymous_bytes + self.rss_file_bytes + self.rss_shmem_bytes);
        let sum = anonymous + files - copied + named(&self.shmem) + self.special.resident_bytes;
        assert_eq!(self.rss_bytes.cast_signed() - self.unexplained_bytes, sum.cast_signed(), "{self:#?}");
        let near = |ours: u64, kernels: u64| ours.abs_diff(kernels) <= self.rss_bytes / 33;
        assert!(near(anonymous, self.rss_anonymous_bytes), "{anonymous} {self:#?}");
        assert!(near(files - copied + self.special.resident_bytes, self.rss_file_bytes), "{files} {self:#?}");
        assert!(near(named(&self.shmem), self.rss_shmem_bytes), "{self:#?}");
    }

    /// What is resident of the anonymous memory of this name.
    #[must_use]
    pub fn anonymous(&self, name: &str) -> Option<Held> {
        self.anonymous.iter().find(|named| named.name == name).map(|named| named.held)
    }
}
