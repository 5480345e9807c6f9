//! Samples of sampled blocks. Most images have none, and then a look-up costs a comparison.

use memtrace_model::{AbsAddr, Amount, Sample};
use rustc_hash::FxHashMap;

use super::address_table::Addressed as _;
use super::block::Block;
use super::budget::{EXACT_BLOCK, SAMPLED_BLOCK};

/// Samples of the live blocks of an image that are sampled, by the key of the block in its table.
#[derive(Debug, Default)]
pub(super) struct Samples(FxHashMap<AbsAddr, Sample>);

impl Samples {
    /// Returns the sample of a block; `None` if the block is exact.
    #[inline]
    pub(super) fn get(&self, block: &Block) -> Option<&Sample> {
        if self.0.is_empty() { None } else { self.0.get(&block.address()) }
    }

    /// Returns the bytes and blocks that a block stands for.
    #[inline]
    pub(super) fn amount(&self, block: &Block) -> Amount {
        amount_of(block, self.get(block))
    }

    /// Adds the sample of a block.
    pub(super) fn insert(&mut self, block: &Block, sample: Sample) {
        self.0.insert(block.address(), sample);
    }

    /// Removes and returns the sample of a block; `None` if the block is exact.
    #[inline]
    pub(super) fn remove(&mut self, block: &Block) -> Option<Sample> {
        if self.0.is_empty() { None } else { self.0.remove(&block.address()) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns the bytes and blocks that a block stands for.
#[inline]
pub(super) fn amount_of(block: &Block, sample: Option<&Sample>) -> Amount {
    sample.map_or(Amount::one(block.size), |sample| sample.amount)
}

/// Returns the size of a block in the limit of blocks.
#[inline]
pub(super) const fn blocks_of(sample: Option<&Sample>) -> u64 {
    if sample.is_some() { SAMPLED_BLOCK } else { EXACT_BLOCK }
}
