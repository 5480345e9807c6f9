//! Allocator of consecutive entries of a BPF map, such as rows and pages of unwind tables.

use std::collections::BTreeMap;

/// Consecutive entries of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryBlock {
    /// Index of the first entry.
    pub(super) first: u32,
    /// Number of entries.
    pub(super) count: u32,
}

/// Free blocks of entries: the length of each block, by the index of its first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FreeEntries(BTreeMap<u32, u32>);

impl FreeEntries {
    /// Returns an allocator with `count` entries, all free.
    pub(super) fn new(count: u32) -> Self {
        Self(BTreeMap::from([(0, count)]))
    }

    /// Allocates `count` entries in the first free block that is large enough; `None` if there is none.
    pub(super) fn allocate(&mut self, count: u32) -> Option<EntryBlock> {
        let (&first, &free) = self.0.iter().find(|&(_, &free)| free >= count && free > 0)?;
        // An empty block takes one entry, so that no other block has the same first entry.
        let length = count.max(1);
        self.0.remove(&first);
        if free > length {
            self.0.insert(first + length, free - length);
        }
        Some(EntryBlock { first, count })
    }

    /// Returns the free blocks in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = EntryBlock> + '_ {
        self.0.iter().map(|(&first, &count)| EntryBlock { first, count })
    }

    /// Returns the number of free entries.
    pub(super) fn count(&self) -> u32 {
        self.0.values().sum()
    }

    /// Allocates `block`, which must lie in a free block and must not be empty.
    pub(super) fn take(&mut self, block: EntryBlock) {
        let Some((&first, &free)) = self.0.range(..=block.first).next_back() else { return };
        self.0.remove(&first);
        if first < block.first {
            self.0.insert(first, block.first - first);
        }
        let (end, free_end) = (block.first + block.count, first + free);
        if end < free_end {
            self.0.insert(end, free_end - end);
        }
    }

    /// Frees a block, and merges it with the free blocks next to it.
    pub(super) fn release(&mut self, block: EntryBlock) {
        let (mut first, mut count) = (block.first, block.count.max(1));
        if let Some((&before, &free)) = self.0.range(..first).next_back()
            && before + free == first
        {
            self.0.remove(&before);
            (first, count) = (before, free + count);
        }
        if let Some(next) = self.0.remove(&(first + count)) {
            count += next;
        }
        self.0.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_allocated_until_full_and_after_release() {
        let mut blocks = FreeEntries::new(10);
        let first = blocks.allocate(4).unwrap();
        let second = blocks.allocate(6).unwrap();
        assert_eq!((first, second), (EntryBlock { first: 0, count: 4 }, EntryBlock { first: 4, count: 6 }));
        assert_eq!(blocks.allocate(1), None);
        blocks.release(first);
        assert_eq!(blocks.allocate(5), None);
        assert_eq!(blocks.allocate(3), Some(EntryBlock { first: 0, count: 3 }));
        blocks.release(second);
        assert_eq!(blocks.allocate(7), Some(EntryBlock { first: 3, count: 7 }));
    }

    #[test]
    fn a_block_is_taken_out_of_the_middle() {
        let block = |first, count| EntryBlock { first, count };
        let mut blocks = FreeEntries::new(10);
        blocks.take(block(3, 4));
        assert_eq!(blocks.blocks().collect::<Vec<_>>(), [block(0, 3), block(7, 3)]);
        blocks.take(block(0, 3));
        blocks.take(block(9, 1));
        assert_eq!((blocks.blocks().collect::<Vec<_>>(), blocks.count()), (vec![block(7, 2)], 2));
        blocks.release(block(3, 4));
        assert_eq!(blocks.blocks().collect::<Vec<_>>(), [block(3, 6)]);
    }

    proptest! {
        #[test]
        fn blocks_do_not_overlap_and_are_merged_on_release(requests in prop::collection::vec((0u32..40, any::<bool>()), 0..60)) {
            let mut blocks = FreeEntries::new(200);
            let mut allocated: Vec<EntryBlock> = Vec::new();
            for (count, release) in requests {
                if release && !allocated.is_empty() {
                    blocks.release(allocated.swap_remove(count as usize % allocated.len()));
                } else if let Some(block) = blocks.allocate(count) {
                    let end = block.first + block.count.max(1);
                    prop_assert!(block.count == count && end <= 200);
                    for other in &allocated {
                        prop_assert!(end <= other.first || other.first + other.count.max(1) <= block.first);
                    }
                    allocated.push(block);
                }
            }
            allocated.into_iter().for_each(|block| blocks.release(block));
            prop_assert_eq!(blocks.allocate(200), Some(EntryBlock { first: 0, count: 200 }));
        }
    }
}
