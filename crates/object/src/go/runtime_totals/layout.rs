//! Layouts of Go's `runtime.memstats` by release.
//!
//! The variable is a `runtime.mstats`. All its fields up to `other_sys` are words, or are followed by padding up to a word:
//!
//! | words | field |
//! |---|---|
//! | 3 × `heapStatsDelta` | `heapStats.stats` |
//! | 1 | `heapStats.gen` (32 bits) and padding |
//! | 1 | `heapStats.noPLock`: `key`, since `lockRankStruct` is empty |
//! | 6 | `stacks_sys`, `mspan_sys`, `mcache_sys`, `buckhash_sys`, `gcMiscSys`, `other_sys` |
//!
//! A `heapStatsDelta` starts with the bytes of spans: `committed`, `released`, `inHeap`, `inStacks`, `inWorkBufs`, and in older
//! releases `inPtrScalarBits`. Then come the counts of objects: `tinyAllocCount`, `largeAlloc`, `largeAllocCount`,
//! `smallAllocCount` for each size class, `largeFree`, `largeFreeCount`, `smallFreeCount` for each size class.
//!
//! The lines in Go's `src/runtime`:
//!
//! | release | `mstats`, `heapStatsDelta` and `consistentHeapStats` in mstats.go | number of size classes |
//! |---|---|---|
//! | 1.19.8 | 14, 655, 710 | sizeclasses.go:89 |
//! | 1.21.13 | 14, 674, 729 | sizeclasses.go:89 |
//! | 1.24.11 | 14, 668, 723 | sizeclasses.go:90 |
//! | 1.26.6 | 15, 670, 723 | internal/runtime/gc/sizeclasses.go:90 |
//! | 1.27.3 | 15, 670, 723 | internal/runtime/gc/sizeclasses.go:90 |
//!
//! The releases between them agree, by the code of `runtime.readmemstats_m` and `runtime.(*mheap).init` in programs made by
//! 1.22.5 and 1.23.6. Release 1.25 is in the range of both layouts. The code of a program must confirm its layout in any case.

use std::ops::RangeInclusive;

/// Number of size classes of small objects.
const SIZE_CLASSES: usize = 68;

/// Sizes of the objects of each size class in bytes (`class_to_size`, runtime/sizeclasses.go; `SizeClassToSize`,
/// internal/runtime/gc/sizeclasses.go). Class 0 has the large objects, which are counted apart.
pub(super) const OBJECT_SIZES: [u64; SIZE_CLASSES] = [
    0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448,
    480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096,
    4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072,
    20480, 21760, 24576, 27264, 28672, 32768,
];

/// Size of a word in bytes.
const WORD: usize = 8;

/// Number of `heapStatsDelta` structures in the variable. The totals are computed from the sum of the structures.
pub(super) const DELTAS: usize = 3;

/// Number of words after the deltas.
const AFTER_DELTAS: usize = 8;

/// Layout of the variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Minor releases of Go 1 that can have the layout.
    releases: RangeInclusive<u32>,
    /// Number of words with bytes of spans at the start of a delta.
    span_words: usize,
}

/// All layouts.
static LAYOUTS: [Layout; 2] =
    [Layout { releases: 19..=25, span_words: 6 }, Layout { releases: 25..=27, span_words: 5 }];

/// Bytes of spans in a delta, by their index in the words of the delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanWord {
    Committed = 0,
    Released = 1,
    InHeap = 2,
    InStacks = 3,
    InWorkBuffers = 4,
    /// Only if the delta has 6 words of spans.
    InPointerBits = 5,
}

/// Bytes outside of the arenas, by their index in the words after the deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SysWord {
    Stacks = 2,
    Spans = 3,
    Caches = 4,
    ProfileTables = 5,
    Collector = 6,
    Other = 7,
}

/// Returns the layouts that a minor release of Go 1 can have.
pub(super) fn of_release(minor: u32) -> impl Iterator<Item = &'static Layout> {
    LAYOUTS.iter().filter(move |layout| layout.releases.contains(&minor))
}

impl Layout {
    /// Returns the number of words of a delta.
    const fn delta_words(&self) -> usize {
        self.span_words + 5 + 2 * SIZE_CLASSES
    }

    /// Returns the size of a delta in bytes.
    pub(super) const fn delta_size(&self) -> usize {
        self.delta_words() * WORD
    }

    /// Returns the offset of `heapStats.gen` in bytes.
    pub(super) const fn index_offset(&self) -> usize {
        DELTAS * self.delta_size()
    }

    /// Returns the number of words from the start of the variable to the end of `other_sys`.
    pub(super) const fn words(&self) -> usize {
        DELTAS * self.delta_words() + AFTER_DELTAS
    }

    /// Divides the words of the variable; `None` if there are too few.
    pub(super) fn divide<'a>(&self, words: &'a [u64]) -> Option<Contents<'a>> {
        let (deltas, rest) = words.get(..self.words())?.split_at_checked(DELTAS * self.delta_words())?;
        Some(Contents { deltas, delta_words: self.delta_words(), span_words: self.span_words, rest })
    }
}

/// Words of the variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents<'a> {
    deltas: &'a [u64],
    delta_words: usize,
    span_words: usize,
    /// Words after the deltas.
    rest: &'a [u64],
}

impl Contents<'_> {
    /// Returns `heapStats.gen`: the index of the delta that is written to.
    pub(super) fn index(&self) -> u64 {
        self.rest.first().map_or(u64::MAX, |word| word & u64::from(u32::MAX))
    }

    /// Returns the bytes of spans of one kind. The sum of the deltas can wrap, since spans are freed in another delta than they
    /// were allocated in.
    pub(super) fn spans(&self, word: SpanWord) -> u64 {
        let index = word as usize;
        if index < self.span_words { self.sum(index) } else { 0 }
    }

    /// Returns bytes that the runtime has mapped outside of the arenas.
    pub(super) fn sys(&self, word: SysWord) -> u64 {
        self.rest.get(word as usize).copied().unwrap_or(u64::MAX)
    }

    /// Returns the bytes of the objects that were allocated, minus the bytes of the freed objects.
    pub(super) fn objects(&self) -> u64 {
        let large_allocated = self.span_words + 1;
        let small_allocated = self.span_words + 3;
        let large_freed = small_allocated + SIZE_CLASSES;
        let small_freed = large_freed + 2;
        let small = OBJECT_SIZES.iter().enumerate().fold(0_u64, |bytes, (class, size)| {
            let count = self.sum(small_allocated + class).wrapping_sub(self.sum(small_freed + class));
            bytes.wrapping_add(count.wrapping_mul(*size))
        });
        self.sum(large_allocated).wrapping_sub(self.sum(large_freed)).wrapping_add(small)
    }

    /// Returns the sum of the word `index` of all deltas.
    fn sum(&self, index: usize) -> u64 {
        let words = self.deltas.chunks_exact(self.delta_words).filter_map(|delta| delta.get(index));
        words.fold(0, |sum, word| sum.wrapping_add(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets in the instructions of programs made by each release: stride and index in
    /// `runtime.(*consistentHeapStats).acquire`, and the fields in `runtime.(*mheap).init` and `runtime.readmemstats_m`.
    #[test]
    fn offsets_are_those_in_the_code_of_real_programs() {
        let offsets = |minor| -> Vec<[usize; 3]> {
            let of = |layout: &Layout| [layout.delta_size(), layout.index_offset(), layout.words() * WORD];
            of_release(minor).map(of).collect()
        };
        // The last field, `other_sys`, is at 3584 and 3560.
        let (old, new) = ([0x498, 0xdc8, 3584 + WORD], [0x490, 0xdb0, 3560 + WORD]);
        for minor in [19, 21, 22, 23, 24] {
            assert_eq!(offsets(minor), [old], "1.{minor}");
        }
        assert_eq!(offsets(25), [old, new]);
        for minor in [26, 27] {
            assert_eq!(offsets(minor), [new], "1.{minor}");
        }
        for minor in [0, 18, 28, u32::MAX] {
            assert!(offsets(minor).is_empty(), "1.{minor}");
        }
    }
}
