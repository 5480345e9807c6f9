//! Sums of stacks, and the texts of their entries.

use rustc_hash::FxHashMap;

use crate::estimate::Samples;

/// Indices of the entries of a stack in [`Entries`], the outermost first.
pub(super) type Path = Box<[u32]>;

/// Sum of stacks with the same entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) value: u64,
    /// Number of stacks in the sum.
    pub(super) stacks: u64,
    /// Samples of the value; no samples if the value is exact.
    pub(super) samples: Samples,
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.stacks = self.stacks.saturating_add(other.stacks);
        self.samples += other.samples;
    }
}

/// Texts of entries, each once. An entry is identified by the index of its text.
#[derive(Default)]
pub(super) struct Entries {
    texts: Vec<String>,
    known: FxHashMap<String, u32>,
}

impl Entries {
    pub(super) fn number(&mut self, text: String) -> u32 {
        // There are far fewer than 2^32 texts.
        let next = self.texts.len() as u32;
        *self.known.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        })
    }

    pub(super) fn text(&self, entry: u32) -> &str {
        &self.texts[entry as usize]
    }
}
