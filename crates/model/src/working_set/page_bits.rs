//! A bit for each page of a region.

use crate::units::{AbsAddr, Bytes};

/// Pages of a region: as many as a page table maps.
pub(super) const PAGES: u64 = 512;
/// Words with the bits of a region.
const WORDS: usize = 8;

/// Set of pages of a region, by their numbers in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageBits([u64; WORDS]);

impl PageBits {
    pub(super) fn insert(&mut self, page: u64) {
        let (word, bit) = word_of(page);
        self.0[word] |= bit;
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        let (word, bit) = word_of(page);
        self.0[word] & bit != 0
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Returns the number of the region of an address, and that of its page in the region. Pages have `page` bytes.
pub(super) fn position(address: AbsAddr, page: Bytes) -> (u64, u64) {
    let number = address.0 / page.0.max(1);
    (number / PAGES, number % PAGES)
}

/// Returns the index of the word of a page, and its bit.
fn word_of(page: u64) -> (usize, u64) {
    ((page / 64) as usize % WORDS, 1 << (page % 64))
}
