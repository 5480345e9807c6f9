//! The cache that is stable: it fills up, and then every new entry replaces an old one.

use std::collections::VecDeque;

const ENTRIES: usize = 512;
const ENTRY_BYTES: usize = 4096;

/// The latest price lists, the oldest first.
pub(crate) struct PriceCache {
    entries: VecDeque<(u64, Vec<u8>)>,
}

impl PriceCache {
    /// A cache that is full already.
    pub(crate) fn filled() -> Self {
        let mut cache = Self { entries: VecDeque::with_capacity(ENTRIES) };
        for article in 0..ENTRIES as u64 {
            cache.entries.push_back((article, render_price_list(article)));
        }
        cache
    }

    /// Puts an article's price list in, and the oldest one out.
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
