//! Allocator of blocks of map entries.

use std::collections::BTreeMap;

/// Consecutive entries of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Free blocks: their lengths by first entry.
#[derive(Debug)]
pub(super) struct FreeBlocks(BTreeMap<u32, u32>);

impl FreeBlocks {
    /// All of `count` entries are free.
    pub(super) fn new(count: u32) -> Self {
        Self(BTreeMap::from([(0, count)]))
    }

    /// Allocates `count` entries (first fit).
    pub(super) fn allocate(&mut self, count: u32) -> Option<Block> {
        let (&first, &free) = self.0.iter().find(|&(_, &free)| free >= count && free > 0)?;
        // An empty block takes one entry, so that its first entry is unique.
        let length = count.max(1);
        self.0.remove(&first);
        if free > length {
            self.0.insert(first + length, free - length);
        }
        Some(Block { first, count })
    }

    /// Frees a block.
    pub(super) fn release(&mut self, block: Block) {
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
        let mut blocks = FreeBlocks::new(10);
        let first = blocks.allocate(4).unwrap();
        let second = blocks.allocate(6).unwrap();
        assert_eq!((first, second), (Block { first: 0, count: 4 }, Block { first: 4, count: 6 }));
        assert_eq!(blocks.allocate(1), None);
        blocks.release(first);
        assert_eq!(blocks.allocate(5), None);
        assert_eq!(blocks.allocate(3), Some(Block { first: 0, count: 3 }));
        blocks.release(second);
        assert_eq!(blocks.allocate(7), Some(Block { first: 3, count: 7 }));
    }

    proptest! {
        #[test]
        fn blocks_do_not_overlap_and_are_merged_on_release(requests in prop::collection::vec((0u32..40, any::<bool>()), 0..60)) {
            let mut blocks = FreeBlocks::new(200);
            let mut allocated: Vec<Block> = Vec::new();
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
            prop_assert_eq!(blocks.allocate(200), Some(Block { first: 0, count: 200 }));
        }
    }
}
