use proptest::prelude::*;

use super::*;

/// Memory with these words from address `BASE` on. Half of each range is resident. A page has 32 bytes.
struct FakeMemory(Vec<u64>);

const BASE: u64 = 0x1000;

impl WordReader for FakeMemory {
    fn word(&mut self, address: AbsAddr) -> Option<u64> {
        let index = usize::try_from(address.0.checked_sub(BASE)? / 8).ok()?;
        self.0.get(index).copied()
    }

    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
        Bytes((end.0 - start.0) / 2)
    }

    fn page(&self) -> Bytes {
        Bytes(0x20)
    }
}

impl FakeMemory {
    fn new(length: u64) -> Self {
        Self(vec![0; usize::try_from(length / 8).unwrap()])
    }

    fn set(&mut self, offset: u64, word: u64) {
        self.0[usize::try_from(offset / 8).unwrap()] = word;
    }

    fn walk(&mut self) -> Result<ChunkTotals, WalkError> {
        let end = AbsAddr(BASE + self.0.len() as u64 * 8);
        walk(AbsAddr(BASE), end, self)
    }
}

/// Returns memory with two chunks in use, a free one between them, and a top chunk.
fn main_arena() -> FakeMemory {
    let mut memory = FakeMemory::new(0x200);
    memory.set(0x8, 0x20 | PREV_INUSE);
    memory.set(0x28, 0x60 | PREV_INUSE);
    memory.set(0x80, 0x60);
    memory.set(0x88, 0x40);
    memory.set(0xc8, 0x140 | PREV_INUSE);
    memory
}

#[test]
fn used_and_free_chunks_are_distinguished() {
    let expected = ChunkTotals {
        in_use: Bytes(0x60),
        blocks: 2,
        in_use_resident: Bytes(0x30),
        free: Bytes(0x60 + 0x140),
        // From 0x1060, the first page after the header, to the end of the chunk.
        trimmable: Bytes(0x20 / 2),
        // Without 33 bytes (`MINSIZE` + 1), the top chunk has 0x11f bytes.
        trimmable_top: Bytes(0x100 / 2),
        fences: Bytes(0),
        end: AbsAddr(BASE + 0x200),
    };
    assert_eq!(main_arena().walk(), Ok(expected));
}

#[test]
fn free_chunks_without_a_whole_page_cannot_be_trimmed() {
    let memory = FakeMemory::new(0);
    let inner = |start: u64, end: u64| trimmable(AbsAddr(BASE + start), AbsAddr(BASE + end), &memory).0;
    let top = |start: u64, end: u64| trimmable_top(AbsAddr(BASE + start), AbsAddr(BASE + end), &memory).0;
    assert_eq!([inner(0, 0x50), inner(0x10, 0x60), inner(0x10, 0x70)], [0, 0x10, 0x10]);
    assert_eq!([top(0, 0x40), top(0, 0x50), top(0x10, 0x60)], [0, 0x10, 0x10]);
}

#[test]
fn flags_of_another_arena_are_ignored() {
    let mut memory = main_arena();
    memory.set(0x8, 0x20 | PREV_INUSE | NON_MAIN_ARENA);
    memory.set(0x88, 0x40 | NON_MAIN_ARENA);
    assert_eq!(memory.walk(), main_arena().walk());
}

#[test]
fn inconsistent_chunks_are_errors() {
    let broken: [(u64, u64); 9] = [
        (0x8, 0x20), // the first chunk has no predecessor that could be free
        (0x8, 0x20 | PREV_INUSE | IS_MMAPPED),
        (0x28, 0x68 | PREV_INUSE),   // no multiple of 16
        (0x28, 0x1000 | PREV_INUSE), // beyond the end
        (0x28, !0xe),                // far beyond
        (0x80, 0x50),                // not the size of the chunk before
        (0x88, 0),                   // no size
        (0xc8, 0x140),               // the top chunk after a free one
        (0xc8, 0x130 | PREV_INUSE),  // the top chunk does not end at the end of the memory
    ];
    for (offset, word) in broken {
        let mut memory = main_arena();
        memory.set(offset, word);
        assert!(memory.walk().is_err(), "{word:#x} at {offset:#x}");
    }
    // The error has the address of the inconsistent chunk.
    let mut memory = main_arena();
    memory.set(0xc8, 0x130 | PREV_INUSE);
    assert_eq!(memory.walk(), Err(WalkError { at: AbsAddr(BASE + 0xc0) }));
    assert!(FakeMemory::new(0).walk().is_err());
    assert!(walk(AbsAddr(u64::MAX - 15), AbsAddr(u64::MAX), &mut FakeMemory::new(16)).is_err());
}

#[test]
fn fenceposts_end_a_region_early() {
    // Two fenceposts end a region of the main arena, which continues elsewhere.
    let mut memory = main_arena();
    memory.set(0xc8, 0x20 | PREV_INUSE);
    memory.set(0xe8, FENCE | PREV_INUSE);
    memory.set(0xf8, FENCE | PREV_INUSE);
    let tally = memory.walk().unwrap();
    assert_eq!((tally.fences, tally.end, tally.in_use), (Bytes(0x20), AbsAddr(BASE + 0x100), Bytes(0x80)));
    // A fencepost and a header of size 0 end a heap of another arena. The chunk before them is free.
    let mut memory = main_arena();
    memory.set(0xc8, 0x120 | PREV_INUSE);
    memory.set(0x1e0, 0x120);
    memory.set(0x1e8, FENCE);
    memory.set(0x1f8, PREV_INUSE);
    let tally = memory.walk().unwrap();
    assert_eq!((tally.fences, tally.end), (Bytes(0x20), AbsAddr(BASE + 0x200)));
    assert_eq!(tally.free, Bytes(0x60 + 0x120));
    memory.set(0x1f8, 0);
    assert!(memory.walk().is_err());
}

#[test]
fn an_mmapped_chunk_is_found_with_its_alignment_gap() {
    let page = Bytes(4096);
    let mapping_of = |at, before, size| mapped(AbsAddr(at), before, size, page);
    assert_eq!(mapping_of(0x10000, 0, 0x21000 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(mapping_of(0x10ff0, 0xff0, 0x20010 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    // As in 2.43, the size excludes the header of a following chunk.
    assert_eq!(mapping_of(0x10000, 0, 0x20ff0 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(mapping_of(0x10ff0, 0xff0, 0x20000 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(mapping_of(0x10000, 0, 0x21000 | IS_MMAPPED | PREV_INUSE), None);
    assert_eq!(mapping_of(0x10000, 0, 0x21000), None);
    assert_eq!(mapping_of(0x10000, 0, 0x21010 | IS_MMAPPED), None);
    assert_eq!(mapping_of(0x10ff0, 0xfe0, 0x20020 | IS_MMAPPED), None);
    assert_eq!(mapping_of(0x10000, 0, 0x20fe0 | IS_MMAPPED), None);
    assert_eq!(mapping_of(0x10000, 0, IS_MMAPPED), None);
    assert_eq!(mapping_of(0x10000, u64::MAX, !0xfff | IS_MMAPPED), None);
}

proptest! {
    #[test]
    fn no_memory_panics_the_walk_or_exceeds_its_size(
        words in prop::collection::vec(prop_oneof![any::<u64>(), (0u64..64).prop_map(|n| (n * 16) | 1), 0u64..40], 0..64),
    ) {
        let length = words.len() as u64 * 8;
        if let Ok(tally) = FakeMemory(words).walk() {
            let whole = tally.in_use.0 + tally.free.0 + tally.fences.0;
            prop_assert_eq!(whole, tally.end.0 - BASE);
            prop_assert!(whole <= length);
        }
    }
}
