//! Parts of a process with separate totals, and their keys.

use crate::{MappingKind, Tid};

/// ID of an allocator. User space assigns IDs to the allocators with probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocatorId(pub u16);

impl AllocatorId {
    /// ID if the allocator was not recorded.
    pub const UNKNOWN: Self = Self(0);
}

/// ID of a tag that a process has set. The BPF programs assign the IDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagId(pub u16);

impl TagId {
    /// ID if the block has no tag.
    pub const UNTAGGED: Self = Self(0);
}

/// Set of the keys of a part of a process. The empty set stands for whole processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKeys(u8);

impl PartKeys {
    /// No key.
    pub const NONE: Self = Self(0);
    /// Thread that allocated the block. The freeing thread does not matter.
    pub const THREAD: Self = Self(1);
    /// Allocator that returned the block.
    pub const ALLOCATOR: Self = Self(1 << 1);
    /// Tag that the process has set.
    pub const TAG: Self = Self(1 << 2);
    /// Kind of memory.
    pub const MEMORY: Self = Self(1 << 3);

    /// Returns the keys that are in at least one of the sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the set has all keys of `other`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns a bit for each key. The first row of [`PartKey::ALL`] has the lowest bit.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Part of a process with totals of its own: a value for each of its keys.
///
/// Parts are ordered by their sets of keys, then by the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    keys: PartKeys,
    // Keys that the part lacks have the values of `Self::WHOLE`.
    thread: Tid,
    allocator: AllocatorId,
    tag: TagId,
    memory: Option<MappingKind>,
}

// The ledger stores a part with each stack, so the size matters.
const _: () = assert!(size_of::<Part>() == 12);

impl Part {
    /// The whole process.
    pub const WHOLE: Self =
        Self { keys: PartKeys::NONE, thread: Tid(0), allocator: AllocatorId(0), tag: TagId(0), memory: None };

    /// Returns the keys of the part.
    #[must_use]
    pub const fn keys(self) -> PartKeys {
        self.keys
    }

    /// Returns the thread, if it is a key of the part.
    #[must_use]
    pub const fn thread(self) -> Option<Tid> {
        if self.keys.contains(PartKeys::THREAD) { Some(self.thread) } else { None }
    }

    /// Returns the allocator, if it is a key of the part.
    #[must_use]
    pub const fn allocator(self) -> Option<AllocatorId> {
        if self.keys.contains(PartKeys::ALLOCATOR) { Some(self.allocator) } else { None }
    }

    /// Returns the tag, if it is a key of the part.
    #[must_use]
    pub const fn tag(self) -> Option<TagId> {
        if self.keys.contains(PartKeys::TAG) { Some(self.tag) } else { None }
    }

    /// Returns the kind of memory, if it is a key of the part.
    #[must_use]
    pub const fn memory(self) -> Option<MappingKind> {
        self.memory
    }

    /// Returns the part with this thread as a key.
    #[must_use]
    pub const fn with_thread(self, thread: Tid) -> Self {
        Self { keys: self.keys.union(PartKeys::THREAD), thread, ..self }
    }

    /// Returns the part with this allocator as a key.
    #[must_use]
    pub const fn with_allocator(self, allocator: AllocatorId) -> Self {
        Self { keys: self.keys.union(PartKeys::ALLOCATOR), allocator, ..self }
    }

    /// Returns the part with this tag as a key.
    #[must_use]
    pub const fn with_tag(self, tag: TagId) -> Self {
        Self { keys: self.keys.union(PartKeys::TAG), tag, ..self }
    }

    /// Returns the part with this kind of memory as a key.
    #[must_use]
    pub const fn with_memory(self, kind: MappingKind) -> Self {
        Self { keys: self.keys.union(PartKeys::MEMORY), memory: Some(kind), ..self }
    }

    /// Returns the part with only the keys that are in `keys`.
    #[inline]
    #[must_use]
    pub const fn restricted_to(self, keys: PartKeys) -> Self {
        let keys = PartKeys(self.keys.0 & keys.0);
        Self {
            keys,
            thread: if keys.contains(PartKeys::THREAD) { self.thread } else { Self::WHOLE.thread },
            allocator: if keys.contains(PartKeys::ALLOCATOR) { self.allocator } else { Self::WHOLE.allocator },
            tag: if keys.contains(PartKeys::TAG) { self.tag } else { Self::WHOLE.tag },
            memory: if keys.contains(PartKeys::MEMORY) { self.memory } else { Self::WHOLE.memory },
        }
    }

    /// Returns the part without its thread, for sums over processes: a thread belongs to one process.
    #[must_use]
    pub const fn without_thread(self) -> Self {
        self.restricted_to(PartKeys(!PartKeys::THREAD.0))
    }
}

/// A key of parts, with functions that encode its values as numbers.
#[derive(Clone, Copy, Debug)]
pub struct PartKey {
    /// Set with only this key.
    pub flag: PartKeys,
    /// Name of the key in recordings.
    pub name: &'static str,
    /// Function that encodes a part's value as a number; `None` if the part does not have the key.
    pub number: fn(Part) -> Option<u32>,
    /// Function that decodes a number and adds the key to a part; `None` if no value has the number.
    pub with_number: fn(Part, u32) -> Option<Part>,
    /// Function that returns the name of the value with a number; `None` if the values have no names.
    pub value_name: fn(u32) -> Option<&'static str>,
}

impl PartKey {
    /// Every key.
    pub const ALL: [Self; 4] = [
        Self {
            flag: PartKeys::THREAD,
            name: "thread",
            number: |part| part.thread().map(|tid| tid.0),
            with_number: |part, number| Some(part.with_thread(Tid(number))),
            value_name: |_| None,
        },
        Self {
            flag: PartKeys::ALLOCATOR,
            name: "allocator",
            number: |part| part.allocator().map(|id| id.0.into()),
            with_number: |part, number| Some(part.with_allocator(AllocatorId(number.try_into().ok()?))),
            value_name: |_| None,
        },
        Self {
            flag: PartKeys::TAG,
            name: "tag",
            number: |part| part.tag().map(|id| id.0.into()),
            with_number: |part, number| Some(part.with_tag(TagId(number.try_into().ok()?))),
            value_name: |_| None,
        },
        Self {
            flag: PartKeys::MEMORY,
            name: "memory",
            number: |part| part.memory().map(|kind| kind as u32),
            with_number: |part, number| Some(part.with_memory(*MappingKind::ALL.get(number as usize)?)),
            value_name: |number| MappingKind::ALL.get(number as usize).map(|kind| kind.name()),
        },
    ];
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = PartKeys> {
        (0..1_u8 << PartKey::ALL.len()).prop_map(PartKeys)
    }

    /// Returns parts with every key.
    fn full() -> impl Strategy<Value = Part> {
        (any::<u32>(), any::<u16>(), any::<u16>(), prop::sample::select(&MappingKind::ALL[..])).prop_map(
            |(tid, id, tag, kind)| {
                Part::WHOLE.with_thread(Tid(tid)).with_allocator(AllocatorId(id)).with_tag(TagId(tag)).with_memory(kind)
            },
        )
    }

    #[test]
    fn each_key_has_a_row_and_a_bit() {
        let bits = PartKey::ALL.map(|key| key.flag.bits());
        assert_eq!(bits, [1, 2, 4, 8]);
        let flags = [PartKeys::THREAD, PartKeys::ALLOCATOR, PartKeys::TAG, PartKeys::MEMORY];
        assert_eq!(bits.map(PartKeys), flags);
        for (index, kind) in (0..).zip(MappingKind::ALL) {
            let part = Part::WHOLE.with_memory(kind);
            assert_eq!((PartKey::ALL[3].number)(part), Some(index));
            assert_eq!((PartKey::ALL[3].value_name)(index), Some(kind.name()));
        }
        assert_eq!((PartKey::ALL[3].with_number)(Part::WHOLE, MappingKind::ALL.len() as u32), None);
    }

    #[test]
    fn parts_are_ordered_by_their_keys_first() {
        let (whole, tid, id, tag) = (Part::WHOLE, Tid(1), AllocatorId(9), TagId(9));
        let ascending = [
            whole,
            whole.with_thread(tid),
            whole.with_thread(Tid(2)),
            whole.with_allocator(AllocatorId(0)),
            whole.with_allocator(id),
            whole.with_thread(tid).with_allocator(id),
            whole.with_thread(Tid(2)).with_allocator(AllocatorId(1)),
            whole.with_tag(TagId(0)),
            whole.with_thread(tid).with_tag(tag),
            whole.with_allocator(AllocatorId(1)).with_tag(tag),
            whole.with_allocator(id).with_tag(TagId(1)),
            whole.with_thread(tid).with_allocator(id).with_tag(tag),
            whole.with_memory(MappingKind::Heap),
            whole.with_memory(MappingKind::Special),
        ];
        assert!(ascending.is_sorted_by(|one, other| one < other));
    }

    proptest! {
        #[test]
        fn restricted_part_has_the_common_keys(part in full(), own in keys(), keys in keys()) {
            let common = PartKeys(own.bits() & keys.bits());
            let restricted = part.restricted_to(own).restricted_to(keys);
            prop_assert_eq!(restricted.keys(), common);
            prop_assert_eq!(restricted, part.restricted_to(common));
            let has = |key| common.contains(key);
            prop_assert_eq!(restricted.thread(), part.thread().filter(|_| has(PartKeys::THREAD)));
            prop_assert_eq!(restricted.allocator(), part.allocator().filter(|_| has(PartKeys::ALLOCATOR)));
            prop_assert_eq!(restricted.tag(), part.tag().filter(|_| has(PartKeys::TAG)));
            prop_assert_eq!(restricted.memory(), part.memory().filter(|_| has(PartKeys::MEMORY)));
            prop_assert_eq!(restricted.without_thread().keys(), PartKeys(common.bits() & !1));
        }

        #[test]
        fn parts_follow_from_their_numbers(part in full(), keys in keys()) {
            let part = part.restricted_to(keys);
            let add = |sum, key: &PartKey| match (key.number)(part) {
                Some(number) => (key.with_number)(sum, number),
                None => Some(sum),
            };
            prop_assert_eq!(PartKey::ALL.iter().try_fold(Part::WHOLE, add), Some(part));
            prop_assert_eq!(part == Part::WHOLE, keys == PartKeys::NONE);
        }
    }
}
