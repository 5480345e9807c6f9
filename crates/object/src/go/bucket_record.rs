//! Numbers of a bucket: of the published profile, and of the three cycles that are not published yet (`memRecord`,
//! runtime/mprof.go).

/// Maximum number of blocks of a bucket.
const MAX_BLOCKS: u64 = 1 << 48;

/// Number of cycles that are not published yet.
const CYCLES: usize = 3;

/// Layout of the numbers of a cycle (`memRecordCycle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordLayout {
    /// Allocated blocks, freed blocks, allocated bytes, freed bytes.
    CountsAndBytes,
    /// Allocated blocks, freed blocks.
    Counts,
}

/// Sampled blocks of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) allocs: u64,
    pub(super) frees: u64,
}

/// Cycles whose numbers are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CycleSum {
    /// The published profile.
    Published,
    /// The published profile, and the cycle with this number. At the end of a collection, the runtime adds the numbers
    /// of this cycle to the published profile, bucket by bucket, and sets them to 0. So the sum does not change during
    /// this work.
    PublishedWith(u32),
    /// All cycles. Before the second collection has ended, nothing is published.
    All,
}

impl CycleSum {
    const fn includes(self, cycle: usize) -> bool {
        match self {
            Self::Published => false,
            Self::PublishedWith(number) => number as usize % CYCLES == cycle,
            Self::All => true,
        }
    }
}

impl RecordLayout {
    /// Number of words of a cycle.
    const fn cycle(self) -> usize {
        match self {
            Self::CountsAndBytes => 4,
            Self::Counts => 2,
        }
    }

    /// Number of words of a bucket's numbers.
    pub(super) const fn words(self) -> usize {
        (1 + CYCLES) * self.cycle()
    }

    /// Returns the blocks of `size` bytes in the numbers of a bucket; `None` if they contradict each other.
    pub(super) fn counts(self, words: &[u64], size: u64, sum: CycleSum) -> Option<Counts> {
        let mut cycles = words.chunks_exact(self.cycle());
        let published = cycles.next()?;
        let others = (0..).zip(cycles).filter(|(number, _)| sum.includes(*number)).map(|(_, cycle)| cycle);
        let mut total = [0_u64; 4];
        for cycle in std::iter::once(published).chain(others) {
            for (total, number) in total.iter_mut().zip(cycle) {
                *total = total.wrapping_add(*number);
            }
        }
        let [allocs, frees, alloc_bytes, free_bytes] = total;
        let has_bytes = self == Self::CountsAndBytes;
        let is_possible = frees <= allocs
            && allocs <= MAX_BLOCKS
            && (!has_bytes || allocs.checked_mul(size) == Some(alloc_bytes))
            && (!has_bytes || frees.checked_mul(size) == Some(free_bytes));
        is_possible.then_some(Counts { allocs, frees })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_added_to_the_published_numbers() {
        let counts = |allocs, frees| Some(Counts { allocs, frees });
        let two = [10, 4, 1, 1, 2, 0, 7, 3];
        let four = [10, 4, 160, 64, 1, 1, 16, 16, 2, 0, 32, 0, 7, 3, 112, 48];
        for (layout, words) in [(RecordLayout::Counts, &two[..]), (RecordLayout::CountsAndBytes, &four[..])] {
            assert_eq!(layout.words(), words.len());
            let sum = |sum| layout.counts(words, 16, sum);
            assert_eq!(sum(CycleSum::Published), counts(10, 4));
            // The cycles 3, 4 and 5 have the places of 0, 1 and 2.
            assert_eq!(
                [3, 4, 5].map(|cycle| sum(CycleSum::PublishedWith(cycle))),
                [counts(11, 5), counts(12, 4), counts(17, 7)]
            );
            assert_eq!(sum(CycleSum::All), counts(20, 8));
        }
    }

    #[test]
    fn contradictory_numbers_are_refused() {
        let counts = |words: [u64; 4], size| {
            let record = [&words[..], &[0; 12]].concat();
            RecordLayout::CountsAndBytes.counts(&record, size, CycleSum::All)
        };
        assert_eq!(counts([2, 1, 32, 16], 16), Some(Counts { allocs: 2, frees: 1 }));
        let forged = [
            ([1, 2, 16, 32], 16),
            ([2, 1, 33, 16], 16),
            ([2, 1, 32, 15], 16),
            ([u64::MAX, 1, u64::MAX, 1], 1),
            ([1 << 40, 0, 0, 0], 1 << 40),
        ];
        assert!(forged.iter().all(|(words, size)| counts(*words, *size).is_none()));
        assert_eq!(RecordLayout::Counts.counts(&[], 16, CycleSum::All), None);
    }
}
