//! Cache of constant size: each new entry replaces the oldest one.

use std::collections::VecDeque;

const ENTRIES: usize = 512;
const ENTRY_BYTES: usize = 4096;

/// Price lists by article, the oldest first.
pub(crate) struct PriceCache {
    entries: VecDeque<(u64, Vec<u8>)>,
}

impl PriceCache {
    /// Returns a full cache.
    pub(crate) fn filled() -> Self {
        let mut cache = Self { entries: VecDeque::with_capacity(ENTRIES) };
        for article in 0..ENTRIES as u64 {
            cache.entries.push_back((article, render_price_list(article)));
        }
        cache
    }

    /// Inserts the price list of an article, and drops the oldest price list.
    #[inline(never)]
    pub(crate) fn look_up(&mut self, article: u64) {
        self.entries.pop_front();
        self.entries.push_back((article, render_price_list(article)));
    }
}

#[inline(never)]
fn render_price_list(article: u64) -> Vec<u8> {
    let mut list = Vec::with_capacity(ENTRY_BYTES);
    list.resize(ENTRY_BYTES, article as u8);
    list
}
