//! Which places of a map are free.

use std::collections::BTreeMap;

/// Places that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// The free places, by the first of each row of them.
#[derive(Debug)]
pub(super) struct Blocks(BTreeMap<u32, u32>);

impl Blocks {
    /// All of `count` places are free.
    pub(super) fn new(count: u32) -> Self {
        Self(BTreeMap::from([(0, count)]))
    }

    /// Takes so many places, where they fit first.
    pub(super) fn take(&mut self, count: u32) -> Option<Block> {
        let (&first, &room) = self.0.iter().find(|&(_, &room)| room >= count && room > 0)?;
        // Nothing needs no place, but one of its own, lest it be taken for somebody else's.
        let taken = count.max(1);
        self.0.remove(&first);
        if room > taken {
            self.0.insert(first + taken, room - taken);
        }
        Some(Block { first, count })
    }

    /// Gives places back.
    pub(super) fn give(&mut self, block: Block) {
        let (mut first, mut count) = (block.first, block.count.max(1));
        if let Some((&before, &room)) = self.0.range(..first).next_back()
            && before + room == first
        {
            self.0.remove(&before);
            (first, count) = (before, room + count);
        }
        if let Some(behind) = self.0.remove(&(first + count)) {
            count += behind;
        }
        self.0.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_taken_until_none_is_left_and_then_again_those_given_back() {
        let mut blocks = Blocks::new(10);
        let first = blocks.take(4).unwrap();
        let second = blocks.take(6).unwrap();
        assert_eq!((first, second), (Block { first: 0, count: 4 }, Block { first: 4, count: 6 }));
        assert_eq!(blocks.take(1), None);
        blocks.give(first);
        assert_eq!(blocks.take(5), None);
        assert_eq!(blocks.take(3), Some(Block { first: 0, count: 3 }));
        blocks.give(second);
        assert_eq!(blocks.take(7), Some(Block { first: 3, count: 7 }));
    }

    proptest! {
        #[test]
        fn no_place_is_given_out_twice_and_all_come_back(requests in prop::collection::vec((0u32..40, any::<bool>()), 0..60)) {
            let mut blocks = Blocks::new(200);
            let mut held: Vec<Block> = Vec::new();
            for (count, give) in requests {
                if give && !held.is_empty() {
                    blocks.give(held.swap_remove(count as usize % held.len()));
                } else if let Some(block) = blocks.take(count) {
                    let end = block.first + block.count.max(1);
                    prop_assert!(block.count == count && end <= 200);
                    for other in &held {
                        prop_assert!(end <= other.first || other.first + other.count.max(1) <= block.first);
                    }
                    held.push(block);
                }
            }
            held.into_iter().for_each(|block| blocks.give(block));
            prop_assert_eq!(blocks.take(200), Some(Block { first: 0, count: 200 }));
        }
    }
}
