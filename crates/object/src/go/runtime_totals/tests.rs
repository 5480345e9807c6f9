//! Totals of hand-built words. The expected numbers and the indices of the words were worked out by hand.

use proptest::prelude::*;

use super::*;

/// Page of the runtime in bytes.
const PAGE: u64 = 8192;

/// Indices of words in a layout.
struct Indices {
    minor: u32,
    /// Number of words of a delta.
    delta: usize,
    large_allocated: usize,
    small_allocated: usize,
    large_freed: usize,
    small_freed: usize,
    /// Index of `gen`.
    index: usize,
}

const OLD: Indices = Indices {
    minor: 24,
    delta: 147,
    large_allocated: 7,
    small_allocated: 9,
    large_freed: 77,
    small_freed: 79,
    index: 441,
};

const NEW: Indices = Indices {
    minor: 27,
    delta: 146,
    large_allocated: 6,
    small_allocated: 8,
    large_freed: 76,
    small_freed: 78,
    index: 438,
};

fn layout_of(indices: &Indices) -> &'static Layout {
    layout::of_release(indices.minor).next().unwrap()
}

/// Returns words with three deltas. Some memory was freed in another delta than it was allocated in.
fn words(indices: &Indices) -> Vec<u64> {
    let Indices { delta, large_allocated, small_allocated, large_freed, small_freed, index, .. } = *indices;
    let mut words = vec![0; index + 8];
    let mut set = |at: usize, word: u64| words[at] = word;
    // committed, released, inHeap, inStacks, inWorkBufs
    for (at, pages) in (0..).zip([100, 30, 60, 10, 4]) {
        set(at, pages * PAGE);
    }
    for (at, pages) in (delta..).zip([-20_i64, 20, -15, -2]) {
        set(at, (pages * PAGE.cast_signed()).cast_unsigned());
    }
    set(2 * delta + 2, 5 * PAGE);
    // Objects: 100 - 40 of 8 bytes, 2 of 32 KiB, and 24,576 - 8192 bytes of large ones.
    set(small_allocated + 1, 100);
    set(delta + small_freed + 1, 40);
    set(2 * delta + small_allocated + 67, 2);
    set(large_allocated, 24_576);
    set(2 * delta + large_freed, 8192);
    // gen, after it garbage in the padding, and noPLock
    set(index, 0xdead_beef_0000_0002);
    set(index + 1, 1);
    // stacks_sys, mspan_sys, mcache_sys, buckhash_sys, gcMiscSys, other_sys
    for (at, bytes) in (index + 2..).zip([65_536, 1000, 2000, 3000, 4000, 5000]) {
        set(at, bytes);
    }
    words
}

fn expected() -> GoTotals {
    GoTotals {
        objects: Bytes(60 * 8 + 2 * 32_768 + 24_576 - 8192),
        in_use: Bytes(50 * PAGE),
        idle: Bytes(18 * PAGE),
        released: Bytes(50 * PAGE),
        stacks: Bytes(8 * PAGE),
        thread_stacks: Bytes(65_536),
        work_buffers: Bytes(4 * PAGE),
        spans: Bytes(1000),
        caches: Bytes(2000),
        profile_tables: Bytes(3000),
        collector: Bytes(4000),
        other: Bytes(5000),
    }
}

#[test]
fn totals_are_sums_over_the_deltas() {
    for indices in [OLD, NEW] {
        let words = words(&indices);
        assert_eq!(totals(layout_of(&indices), &words), Some(expected()), "1.{}", indices.minor);
        // Words after the totals are not read.
        let longer = [&words[..], &[u64::MAX]].concat();
        assert_eq!(totals(layout_of(&indices), &longer), Some(expected()));
    }
    // In older releases, the bits of unrolled types count as buffers of the collector.
    let mut words = words(&OLD);
    words[5] = 2 * PAGE;
    let work_buffers = Bytes(6 * PAGE);
    let with_bits = GoTotals { work_buffers, idle: Bytes(16 * PAGE), ..expected() };
    assert_eq!(totals(layout_of(&OLD), &words), Some(with_bits));
}

#[test]
fn contradictions_are_refused() {
    for indices in [OLD, NEW] {
        let with = |at: usize, word: u64| {
            let mut words = words(&indices);
            words[at] = word;
            totals(layout_of(&indices), &words)
        };
        assert_eq!(with(0, 100 * PAGE), Some(expected()), "this is the word that it was");
        assert_eq!(with(0, 82 * PAGE).map(|totals| totals.idle), Some(Bytes(0)));
        assert_eq!(with(0, 81 * PAGE), None, "more is used than was committed");
        assert_eq!(with(2, 9 * PAGE), None, "a negative size");
        assert_eq!(with(1, 30 * PAGE + 4096), None, "no multiple of a page");
        assert_eq!(with(1, (1 << 47) + PAGE), None, "more than an address space");
        assert_eq!(with(indices.index, 3), None, "there are three deltas");
        for at in indices.index + 2..indices.index + 8 {
            assert_eq!(with(at, (1 << 47) + 1), None, "{at}");
        }
        let words = words(&indices);
        assert_eq!(totals(layout_of(&indices), &words[..words.len() - 1]), None);
        assert_eq!(totals(layout_of(&indices), &[]), None);
    }
}

#[test]
fn objects_take_at_most_the_spans_in_use() {
    for indices in [OLD, NEW] {
        let objects = |at: usize, word: u64| {
            let mut words = words(&indices);
            words[at] = word;
            totals(layout_of(&indices), &words).map(|totals| totals.objects)
        };
        assert_eq!(objects(indices.small_allocated + 67, 1 << 40), Some(Bytes(50 * PAGE)));
        assert_eq!(objects(indices.large_freed, 1 << 40), Some(Bytes(0)), "more were freed than counted");
    }
}

#[test]
fn calls_must_agree() {
    assert_eq!(agreed(&[8; LEAST_CALLS]), Some(8));
    assert_eq!(agreed(&[8; LEAST_CALLS - 1]), None);
    assert_eq!(agreed(&[8, 8, 8, 8, 16]), None);
    assert_eq!(agreed(&[]), None);
}

#[test]
fn totals_lie_inside_of_a_segment() {
    let segment = |virt, memory_size| Segment {
        kind: PT_LOAD,
        executable: false,
        writable: true,
        offset: 0,
        virt,
        file_size: 0,
        memory_size,
        align: 4096,
    };
    assert!(holds(&segment(0x1000, 0x1000), 0x1800, 0x800));
    assert!(!holds(&segment(0x1000, 0x1000), 0x1801, 0x800));
    assert!(!holds(&segment(0x1000, 0x1000), 0xff8, 0x10));
    assert!(!holds(&segment(0, u64::MAX), u64::MAX, 8));
}

proptest! {
    /// For any words, either nothing is returned, or the totals add up.
    #[test]
    fn forged_totals_add_up_or_are_refused(
        words in prop::collection::vec(
            prop_oneof![Just(0), 0..64_u64, (0..1_u64 << 20).prop_map(|page| page * PAGE), any::<u64>()],
            440..460,
        ),
        changed in prop::collection::vec((0..446_usize, any::<u64>()), 0..3),
    ) {
        for indices in [OLD, NEW] {
            let mut near = self::words(&indices);
            for (at, word) in &changed {
                near[*at] = *word;
            }
            for words in [&words, &near] {
                if let Some(totals) = totals(layout_of(&indices), words) {
                    prop_assert!(totals.objects <= totals.in_use);
                    prop_assert!(totals.sys().0 <= 12 << 47);
                    prop_assert_eq!(totals.heap().0 + totals.stacks.0 + totals.work_buffers.0, totals.arenas().0);
                    prop_assert!(totals.arenas().0.is_multiple_of(PAGE));
                }
            }
        }
    }
}
