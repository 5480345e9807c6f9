//! Set of page frames.

use rustc_hash::FxHashMap;

/// Number of frames in a region.
const FRAMES: u64 = 4096;
/// Number of words with the bits of a region.
const WORDS: usize = 64;

/// Set of page frames with a bit for each frame. A region of 4,096 frames takes 512 bytes if one of them is in the set, so
/// the set takes at most 1/32,768 of the memory of the machine, in frames of 4 KiB.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameSet {
    /// Bits of the regions by index: the number of the frame divided by the size of a region.
    regions: FxHashMap<u64, Box<[u64; WORDS]>>,
    /// Number of frames in the set.
    count: u64,
}

impl FrameSet {
    /// Adds a frame. Returns false if the set contains the frame already.
    pub(super) fn insert(&mut self, frame: u64) -> bool {
        let words = self.regions.entry(frame / FRAMES).or_insert_with(empty);
        let word = &mut words[(frame % FRAMES / 64) as usize];
        let bit = 1 << (frame % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    /// Adds the frames of another set.
    pub(super) fn merge(&mut self, other: Self) {
        for (region, more) in other.regions {
            let words = self.regions.entry(region).or_insert_with(empty);
            for (word, more) in words.iter_mut().zip(*more) {
                self.count += u64::from((more & !*word).count_ones());
                *word |= more;
            }
        }
    }

    /// Returns the number of frames in the set.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}

/// Returns the bits of a region without frames.
fn empty() -> Box<[u64; WORDS]> {
    Box::new([0; WORDS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_counts_once() {
        let mut set = FrameSet::default();
        let last = (1 << 55) - 1;
        let added = [0, 63, 64, 4095, 4096, last, 64].map(|frame| set.insert(frame));
        assert_eq!(added, [true, true, true, true, true, true, false]);
        assert_eq!((set.count(), set.regions.len()), (6, 3));
    }

    #[test]
    fn merged_sets_have_the_frames_of_both() {
        let set = |frames: &[u64]| {
            let mut set = FrameSet::default();
            for &frame in frames {
                set.insert(frame);
            }
            set
        };
        let mut sum = set(&[1, 2, 70, 9000]);
        sum.merge(set(&[2, 71, 9000, 9001, 20_000]));
        assert_eq!(sum.count(), 7);
        sum.merge(set(&[1, 20_000]));
        sum.merge(FrameSet::default());
        assert_eq!(sum.count(), 7);
    }
}
