//! The table of one image's live blocks.

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry, VacantEntry};

use crate::model::{AbsAddr, Bytes, Tick};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: AbsAddr,
    pub(super) size: Bytes,
    /// The stack's place in the image's books.
    pub(super) stack: u32,
    pub(super) tick: Tick,
}

const _: () = assert!(size_of::<Block>() == 24);

/// Live blocks by address.
///
/// A large table is cut into parts that grow one by one. Growing one table of millions would hold its shard up for so
/// long that its ring overflows, and would need the old and the new table at the same time.
#[derive(Debug)]
pub(super) struct Blocks {
    /// One part, or [`PARTS`].
    parts: Vec<HashTable<Block>>,
}

/// How many parts a large table has.
const PARTS: usize = 256;
/// How many blocks make a table large: as many as fit 2^14 buckets, which are grown in well under a millisecond.
const LARGE: usize = (1 << 14) / 8 * 7;

impl Default for Blocks {
    fn default() -> Self {
        Self { parts: vec![HashTable::new()] }
    }
}

/// A block's place: where it is, or where it would go.
pub(super) enum Place<'a> {
    Live(OccupiedEntry<'a, Block>),
    Unknown(VacantEntry<'a, Block>),
}

impl Blocks {
    /// The place of the block at `address`.
    #[inline]
    pub(super) fn place(&mut self, address: AbsAddr) -> Place<'_> {
        if let [only] = self.parts.as_slice()
            && only.len() >= LARGE
        {
            self.cut();
        }
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        match self.parts[part].entry(hash, |block| block.address == address, |block| hash_of(block.address)) {
            Entry::Occupied(entry) => Place::Live(entry),
            Entry::Vacant(entry) => Place::Unknown(entry),
        }
    }

    /// Takes the block at `address` out.
    #[inline]
    pub(super) fn remove(&mut self, address: AbsAddr) -> Option<Block> {
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        let entry = self.parts[part].find_entry(hash, |block| block.address == address).ok()?;
        Some(entry.remove().0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().flat_map(HashTable::iter)
    }

    #[cold]
    fn cut(&mut self) {
        let mut parts: Vec<_> = (0..PARTS).map(|_| HashTable::with_capacity(2 * LARGE / PARTS)).collect();
        for block in self.iter() {
            let hash = hash_of(block.address);
            parts[part_of(hash, PARTS)].insert_unique(hash, *block, |block| hash_of(block.address));
        }
        self.parts = parts;
    }
}

/// A folded multiplication: every bit of the address reaches every bit of the hash. A plain product would not do, since
/// its low bits, which choose the bucket, depend on the address' low bits only, and those are often all alike. The
/// factor must not be that of the kernel's choice of ring, or one shard's blocks would all hash alike.
#[inline]
fn hash_of(address: AbsAddr) -> u64 {
    const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
    let product = u128::from(address.0) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The part that holds `hash`, from bits that hashbrown does not use: it takes the lowest for the bucket and the seven
/// highest for the tag.
#[inline]
fn part_of(hash: u64, parts: usize) -> usize {
    (hash >> 40) as usize & (parts - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64) -> Block {
        Block { address: AbsAddr(address), size: Bytes(address), stack: 0, tick: Tick(0) }
    }

    #[test]
    fn a_table_keeps_every_block_when_it_is_cut_into_parts() {
        let mut blocks = Blocks::default();
        let addresses: Vec<u64> = (1..=2 * LARGE as u64).map(|n| n << 16).collect();
        for &address in &addresses {
            let Place::Unknown(entry) = blocks.place(AbsAddr(address)) else { panic!("{address:#x} is there already") };
            entry.insert(block(address));
        }
        assert_eq!(blocks.parts.len(), PARTS);
        let mut listed: Vec<u64> = blocks.iter().map(|block| block.address.0).collect();
        listed.sort_unstable();
        assert_eq!(listed, addresses);
        for &address in &addresses {
            assert_eq!(blocks.remove(AbsAddr(address)), Some(block(address)));
            assert_eq!(blocks.remove(AbsAddr(address)), None);
        }
        assert_eq!(blocks.iter().count(), 0);
    }

    #[test]
    fn addresses_of_any_stride_spread_evenly_over_the_parts() {
        for shift in [4, 5, 8, 12, 16, 21, 26] {
            let mut counts = vec![0u32; PARTS];
            for n in 0..64 * PARTS as u64 {
                counts[part_of(hash_of(AbsAddr(0x7f00_0000_0000 + (n << shift))), PARTS)] += 1;
            }
            // 64 on average; a random spread stays within five standard deviations of 8.
            assert!(counts.iter().all(|&count| (24..=104).contains(&count)), "stride 2^{shift}: {counts:?}");
        }
    }
}
