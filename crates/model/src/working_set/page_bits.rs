//! A bit for each page of a region.

use crate::units::{AbsAddr, Bytes};

/// Number of pages in a region: the pages that one page table maps.
pub(super) const PAGES: u64 = 512;
/// Number of words with the bits of a region.
const WORDS: usize = 8;

/// Set of pages of a region. Each page has an index from 0 to [`PAGES`] - 1.
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

/// Returns the index of the region of an address, and the index of the page in the region. Pages have `page` bytes.
pub(super) fn position(address: AbsAddr, page: Bytes) -> (u64, u64) {
    let number = address.0 / page.0.max(1);
    (number / PAGES, number % PAGES)
}

/// Returns the index of the word of a page, and a word with the page's bit.
fn word_of(page: u64) -> (usize, u64) {
    ((page / 64) as usize % WORDS, 1 << (page % 64))
}
