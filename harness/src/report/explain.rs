//! The report of `memtrace explain`.

use std::ops::Deref;

use memtrace_json::{HeapBlocks, NamedMemory, Sizes};
use serde::Deserialize;

/// The memory of a process.
#[derive(Clone, Debug, Deserialize)]
pub struct Explanation(memtrace_json::Explanation<'static>);

impl Deref for Explanation {
    type Target = memtrace_json::Explanation<'static>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Explanation {
    /// Returns the totals of the chunk headers. The allocator must be glibc's.
    #[must_use]
    pub fn blocks(&self) -> HeapBlocks {
        assert_eq!(self.heap.allocator.as_deref(), Some("glibc"), "{self:#?}");
        self.heap.blocks.unwrap_or_else(|| panic!("no blocks: {self:#?}"))
    }

    /// Asserts that the parts add up to the RSS without its unexplained bytes. The kernel counts anonymous, file and shmem
    /// pages of the RSS: the parts of each kind must add up to the kernel's counter, within 3 % of the RSS.
    pub fn assert_adds_up(&self) {
        let sum_of = |list: &[NamedMemory<'_>]| list.iter().map(|named| named.sizes.resident_bytes).sum::<u64>();
        let files: u64 = self.files.iter().map(|file| file.sizes.resident_bytes).sum();
        let copied: u64 = self.files.iter().map(|file| file.copied_bytes).sum();
        let stacks = self.main_stack.resident_bytes + self.thread_stacks.sizes.resident_bytes;
        let go_parts = self.go.iter().flat_map(|go| [go.heap, go.stacks, go.own]);
        let go: u64 = go_parts.map(|part| part.resident_bytes).sum();
        let anonymous = self.heap.sizes.resident_bytes + go + sum_of(&self.anonymous) + stacks + copied;
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
    pub fn anonymous(&self, name: &str) -> Option<Sizes> {
        self.anonymous.iter().find(|named| named.name == name).map(|named| named.sizes)
    }
}
