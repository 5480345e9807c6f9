use proptest::prelude::*;

use super::*;

/// Memory by hand: words from `BASE` on.
struct Paper(Vec<u64>);

const BASE: u64 = 0x1000;

impl Words for Paper {
    fn word(&mut self, address: AbsAddr) -> Option<u64> {
        let index = usize::try_from(address.0.checked_sub(BASE)? / 8).ok()?;
        self.0.get(index).copied()
    }

    fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
        Bytes((end.0 - start.0) / 2)
    }
}

impl Paper {
    fn new(length: u64) -> Self {
        Self(vec![0; usize::try_from(length / 8).unwrap()])
    }

    fn set(&mut self, offset: u64, word: u64) {
        self.0[usize::try_from(offset / 8).unwrap()] = word;
    }

    fn walk(&mut self) -> Result<Tally, Torn> {
        let end = AbsAddr(BASE + self.0.len() as u64 * 8);
        walk(AbsAddr(BASE), end, self)
    }
}

/// Two chunks in use, a free one between them, and a top chunk.
fn main_arena() -> Paper {
    let mut paper = Paper::new(0x200);
    paper.set(0x8, 0x20 | PREV_INUSE);
    paper.set(0x28, 0x60 | PREV_INUSE);
    paper.set(0x80, 0x60);
    paper.set(0x88, 0x40);
    paper.set(0xc8, 0x140 | PREV_INUSE);
    paper
}

#[test]
fn chunks_in_use_and_free_ones_are_told_apart() {
    let expected = Tally {
        in_use: Bytes(0x60),
        blocks: 2,
        in_use_resident: Bytes(0x30),
        free: Bytes(0x60 + 0x140),
        fences: Bytes(0),
        end: AbsAddr(BASE + 0x200),
    };
    assert_eq!(main_arena().walk(), Ok(expected));
}

#[test]
fn flags_of_another_arena_change_nothing() {
    let mut paper = main_arena();
    paper.set(0x8, 0x20 | PREV_INUSE | NON_MAIN_ARENA);
    paper.set(0x88, 0x40 | NON_MAIN_ARENA);
    assert_eq!(paper.walk(), main_arena().walk());
}

#[test]
fn what_does_not_fit_together_is_told() {
    let broken: [(u64, u64); 9] = [
        (0x8, 0x20), // nothing can be free before the first
        (0x8, 0x20 | PREV_INUSE | IS_MMAPPED),
        (0x28, 0x68 | PREV_INUSE),   // no multiple of 16
        (0x28, 0x1000 | PREV_INUSE), // beyond the end
        (0x28, !0xe),                // far beyond
        (0x80, 0x50),                // not the size of the chunk before
        (0x88, 0),                   // no size
        (0xc8, 0x140),               // the top chunk behind a free one
        (0xc8, 0x130 | PREV_INUSE),  // the top chunk does not end where the memory does
    ];
    for (offset, word) in broken {
        let mut paper = main_arena();
        paper.set(offset, word);
        assert!(paper.walk().is_err(), "{word:#x} at {offset:#x}");
    }
    // The walk says how far it came.
    let mut paper = main_arena();
    paper.set(0xc8, 0x130 | PREV_INUSE);
    assert_eq!(paper.walk(), Err(Torn { at: AbsAddr(BASE + 0xc0) }));
    assert!(Paper::new(0).walk().is_err());
    assert!(walk(AbsAddr(u64::MAX - 15), AbsAddr(u64::MAX), &mut Paper::new(16)).is_err());
}

#[test]
fn fences_close_a_region_before_its_end() {
    // Of the main arena, which goes on elsewhere.
    let mut paper = main_arena();
    paper.set(0xc8, 0x20 | PREV_INUSE);
    paper.set(0xe8, FENCE | PREV_INUSE);
    paper.set(0xf8, FENCE | PREV_INUSE);
    let tally = paper.walk().unwrap();
    assert_eq!((tally.fences, tally.end, tally.in_use), (Bytes(0x20), AbsAddr(BASE + 0x100), Bytes(0x80)));
    // Of another arena's heap: the chunk before is free, and the last head has no size.
    let mut paper = main_arena();
    paper.set(0xc8, 0x120 | PREV_INUSE);
    paper.set(0x1e0, 0x120);
    paper.set(0x1e8, FENCE);
    paper.set(0x1f8, PREV_INUSE);
    let tally = paper.walk().unwrap();
    assert_eq!((tally.fences, tally.end), (Bytes(0x20), AbsAddr(BASE + 0x200)));
    assert_eq!(tally.free, Bytes(0x60 + 0x120));
    paper.set(0x1f8, 0);
    assert!(paper.walk().is_err());
}

#[test]
fn a_chunk_with_a_mapping_of_its_own_is_told_with_what_lies_before_it() {
    let page = Bytes(4096);
    let told = |at, before, size| mapped(AbsAddr(at), before, size, page);
    assert_eq!(told(0x10000, 0, 0x21000 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(told(0x10ff0, 0xff0, 0x20010 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    // As 2.43 has them.
    assert_eq!(told(0x10000, 0, 0x20ff0 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(told(0x10ff0, 0xff0, 0x20000 | IS_MMAPPED), Some((AbsAddr(0x10000), Bytes(0x21000))));
    assert_eq!(told(0x10000, 0, 0x21000 | IS_MMAPPED | PREV_INUSE), None);
    assert_eq!(told(0x10000, 0, 0x21000), None);
    assert_eq!(told(0x10000, 0, 0x21010 | IS_MMAPPED), None);
    assert_eq!(told(0x10ff0, 0xfe0, 0x20020 | IS_MMAPPED), None);
    assert_eq!(told(0x10000, 0, 0x20fe0 | IS_MMAPPED), None);
    assert_eq!(told(0x10000, 0, IS_MMAPPED), None);
    assert_eq!(told(0x10000, u64::MAX, !0xfff | IS_MMAPPED), None);
}

proptest! {
    #[test]
    fn no_memory_makes_the_walk_panic_or_count_more_than_there_is(
        words in prop::collection::vec(prop_oneof![any::<u64>(), (0u64..64).prop_map(|n| (n * 16) | 1), 0u64..40], 0..64),
    ) {
        let length = words.len() as u64 * 8;
        if let Ok(tally) = Paper(words).walk() {
            let whole = tally.in_use.0 + tally.free.0 + tally.fences.0;
            prop_assert_eq!(whole, tally.end.0 - BASE);
            prop_assert!(whole <= length);
        }
    }
}
