//! Hash table keyed by address, which grows in small steps.

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry, OccupiedEntry, VacantEntry};
use memtrace_model::AbsAddr;

/// Value with a unique address.
pub(super) trait Addressed: Copy {
    fn address(&self) -> AbsAddr;
}

/// Values by address.
///
/// A large table is split into smaller tables, its parts, which grow separately. Growing a single table with
/// millions of entries would stall its shard until its ring overflows, and would need memory for the old and the
/// new table at once.
#[derive(Clone, Debug)]
pub(super) struct AddressTable<T> {
    /// One table, or [`PARTS`] tables.
    parts: Vec<HashTable<T>>,
}

/// Number of parts of a large table.
const PARTS: usize = 256;
/// Minimum number of entries of a large table: the capacity of 2^14 buckets. A table of this size grows in much
/// less than a millisecond.
const LARGE: usize = (1 << 14) / 8 * 7;

impl<T> Default for AddressTable<T> {
    fn default() -> Self {
        Self { parts: vec![HashTable::new()] }
    }
}

/// Slot of an address.
pub(super) enum Slot<'a, T> {
    Occupied(OccupiedEntry<'a, T>),
    Vacant(VacantEntry<'a, T>),
}

impl<T: Addressed> AddressTable<T> {
    /// Returns the slot of `address`.
    #[inline]
    pub(super) fn slot(&mut self, address: AbsAddr) -> Slot<'_, T> {
        if let [only] = self.parts.as_slice()
            && only.len() >= LARGE
        {
            self.split();
        }
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        match self.parts[part].entry(hash, |entry| entry.address() == address, |entry| hash_of(entry.address())) {
            Entry::Occupied(entry) => Slot::Occupied(entry),
            Entry::Vacant(entry) => Slot::Vacant(entry),
        }
    }

    #[inline]
    pub(super) fn get(&self, address: AbsAddr) -> Option<&T> {
        self.find(address, |entry| entry.address() == address)
    }

    /// Returns an entry that usually belongs to `address`, because few entries have the same hash tag. Reads only
    /// hash tags, and no entry.
    #[inline]
    pub(super) fn likely(&self, address: AbsAddr) -> Option<&T> {
        self.find(address, |_| true)
    }

    /// Returns the first entry with the hash tag of `address` that `is_wanted` accepts.
    #[inline]
    fn find(&self, address: AbsAddr, is_wanted: impl Fn(&T) -> bool) -> Option<&T> {
        let hash = hash_of(address);
        self.parts[part_of(hash, self.parts.len())].find(hash, is_wanted)
    }

    #[inline]
    pub(super) fn remove(&mut self, address: AbsAddr) -> Option<T> {
        let hash = hash_of(address);
        let part = part_of(hash, self.parts.len());
        let entry = self.parts[part].find_entry(hash, |entry| entry.address() == address).ok()?;
        Some(entry.remove().0)
    }

    /// Removes the entries that `is_removed` accepts, and passes them to `visit`. Returns the memory of the removed
    /// entries to the allocator, because the limit of a ledger counts entries, not tables.
    pub(super) fn remove_if(&mut self, is_removed: impl Fn(&T) -> bool, mut visit: impl FnMut(T)) {
        for part in &mut self.parts {
            let before = part.len();
            part.extract_if(|entry| is_removed(entry)).for_each(&mut visit);
            if part.len() < before {
                part.shrink_to_fit(|entry| hash_of(entry.address()));
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(HashTable::iter)
    }

    #[cold]
    fn split(&mut self) {
        let mut parts: Vec<_> = (0..PARTS).map(|_| HashTable::with_capacity(2 * LARGE / PARTS)).collect();
        for entry in self.iter() {
            let hash = hash_of(entry.address());
            parts[part_of(hash, PARTS)].insert_unique(hash, *entry, |entry| hash_of(entry.address()));
        }
        self.parts = parts;
    }
}

/// Returns the hash of an address by folded multiplication: each bit of the address affects each bit of the hash. The
/// low bits of the hash select the bucket. In a plain product, the low bits would depend only on the low bits of the
/// address, which are often equal. The factor must differ from the factor of `ring_of`: otherwise, the hashes of one
/// shard's blocks would be similar.
#[inline]
fn hash_of(address: AbsAddr) -> u64 {
    const FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;
    let product = u128::from(address.0) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Returns the part for `hash`. Uses bits of the hash that hashbrown does not use: hashbrown takes the lowest bits
/// for the bucket and the highest seven for the tag.
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
    fn a_table_keeps_all_entries_when_it_is_split() {
        let mut table = AddressTable::<AbsAddr>::default();
        let addresses: Vec<u64> = (1..=2 * LARGE as u64).map(|n| n << 16).collect();
        for &address in &addresses {
            let Slot::Vacant(entry) = table.slot(AbsAddr(address)) else { panic!("{address:#x} is present") };
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
    fn removed_entries_are_visited_and_the_others_stay() {
        let mut table = AddressTable::<AbsAddr>::default();
        let count = LARGE as u64 + 10;
        for n in 1..=count {
            let Slot::Vacant(entry) = table.slot(AbsAddr(n)) else { panic!("{n} is present") };
            entry.insert(AbsAddr(n));
        }
        let mut removed = Vec::new();
        table.remove_if(|entry| entry.0 % 3 == 0, |entry| removed.push(entry.0));
        removed.sort_unstable();
        assert_eq!(removed, (1..=count).filter(|n| n % 3 == 0).collect::<Vec<_>>());
        assert_eq!((1..=count).filter(|&n| table.get(AbsAddr(n)).is_some()).count() as u64, count - count / 3);
    }

    #[test]
    fn addresses_of_any_stride_spread_over_the_parts() {
        for shift in [4, 5, 8, 12, 16, 21, 26] {
            let mut counts = vec![0u32; PARTS];
            for n in 0..64 * PARTS as u64 {
                counts[part_of(hash_of(AbsAddr(0x7f00_0000_0000 + (n << shift))), PARTS)] += 1;
            }
            // The average is 64. A random spread stays within five standard deviations of 8.
            assert!(counts.iter().all(|&count| (24..=104).contains(&count)), "stride 2^{shift}: {counts:?}");
        }
    }
}
