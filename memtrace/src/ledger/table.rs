//! The table of what lives at one image's addresses.

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry, VacantEntry};

use crate::model::AbsAddr;

/// What lives at an address of its own.
pub(super) trait Addressed: Copy {
    fn address(&self) -> AbsAddr;
}

/// What lives where.
///
/// A large table is cut into parts that grow one by one. Growing one table of millions would hold its shard up for so
/// long that its ring overflows, and would need the old and the new table at the same time.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    /// One part, or [`PARTS`].
    parts: Vec<HashTable<T>>,
}

/// How many parts a large table has.
const PARTS: usize = 256;
/// How many entries make a table large: as many as fit 2^14 buckets, which are grown in well under a millisecond.
const LARGE: usize = (1 << 14) / 8 * 7;

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { parts: vec![HashTable::new()] }
    }
}

/// A place: where something lives, or where it would go.
pub(super) enum Place<'a, T> {
    Live(OccupiedEntry<'a, T>),
    Unknown(VacantEntry<'a, T>),
}

impl<T: Addressed> Table<T> {
    /// The place of what lives at `address`.
    #[inline]
    pub(super) fn place(&mut self, address: AbsAddr) -> Place<'_, T> {
        if let [only] = self.parts.as_slice()
            && only.len() >= LARGE
        {
            self.cut();
        }
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        match self.parts[part].entry(hash, |entry| entry.address() == address, |entry| hash_of(entry.address())) {
            Entry::Occupied(entry) => Place::Live(entry),
            Entry::Vacant(entry) => Place::Unknown(entry),
        }
    }

    /// What lives at `address`.
    pub(super) fn get(&self, address: AbsAddr) -> Option<&T> {
        let hash = hash_of(address);
        self.parts[part_of(hash, self.parts.len())].find(hash, |entry| entry.address() == address)
    }

    /// Takes what lives at `address` out.
    #[inline]
    pub(super) fn remove(&mut self, address: AbsAddr) -> Option<T> {
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        let entry = self.parts[part].find_entry(hash, |entry| entry.address() == address).ok()?;
        Some(entry.remove().0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(HashTable::iter)
    }

    #[cold]
    fn cut(&mut self) {
        let mut parts: Vec<_> = (0..PARTS).map(|_| HashTable::with_capacity(2 * LARGE / PARTS)).collect();
        for entry in self.iter() {
            let hash = hash_of(entry.address());
            parts[part_of(hash, PARTS)].insert_unique(hash, *entry, |entry| hash_of(entry.address()));
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

    impl Addressed for AbsAddr {
        fn address(&self) -> AbsAddr {
            *self
        }
    }

    #[test]
    fn a_table_keeps_everything_when_it_is_cut_into_parts() {
        let mut table = Table::<AbsAddr>::default();
        let addresses: Vec<u64> = (1..=2 * LARGE as u64).map(|n| n << 16).collect();
        for &address in &addresses {
            let Place::Unknown(entry) = table.place(AbsAddr(address)) else { panic!("{address:#x} is there already") };
            entry.insert(AbsAddr(address));
        }
        assert_eq!(table.parts.len(), PARTS);
        let mut listed: Vec<u64> = table.iter().map(|entry| entry.0).collect();
        listed.sort_unstable();
        assert_eq!(listed, addresses);
        for &address in &addresses {
            assert_eq!(table.remove(AbsAddr(address)), Some(AbsAddr(address)));
            assert_eq!(table.remove(AbsAddr(address)), None);
        }
        assert_eq!(table.iter().count(), 0);
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
