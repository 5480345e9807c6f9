//! Ages of live blocks, and the filter of `--older`: blocks of at least this age count as live.

use std::time::Duration;

use memtrace_model::{Amount, BlockHistograms, BlockQuantity, Log2, Spread, Tick};
use rustc_hash::FxHashMap;

use super::address_table::AddressTable;
use super::block::Block;
use super::samples::Samples;

/// Live blocks of a minimum age. A heap profile of the target has no ages, so its blocks are left out.
pub(super) struct OldBlocks {
    /// Amounts by stack index.
    amounts: Vec<Amount>,
    /// Spreads of the sampled blocks by stack index.
    spreads: FxHashMap<u32, Spread>,
}

impl OldBlocks {
    /// Returns the amount and the spread of the blocks of a stack.
    pub(super) fn of_stack(&self, stack: usize) -> (Amount, Spread) {
        let spread = self.spreads.get(&(stack as u32)).copied().unwrap_or_default();
        (self.amounts.get(stack).copied().unwrap_or_default(), spread)
    }
}

/// Returns the live blocks that are at least as old as `older` at `now`. `stacks`: number of stacks.
pub(super) fn live_of_age(
    blocks: &AddressTable<Block>,
    samples: &Samples,
    stacks: usize,
    now: Tick,
    older: Duration,
) -> OldBlocks {
    let mut old = OldBlocks { amounts: vec![Amount::default(); stacks], spreads: FxHashMap::default() };
    // If the clock is younger than `older`, no block is old enough.
    let Some(latest) = now.since_start().checked_sub(older).map(Tick::at) else { return old };
    for block in blocks.iter().filter(|block| block.tick <= latest) {
        if let Some(amount) = old.amounts.get_mut(block.stack as usize) {
            *amount += samples.amount(block);
        }
        if let Some(sample) = samples.get(block) {
            *old.spreads.entry(block.stack).or_default() += sample.spread();
        }
    }
    old
}

/// Returns the distributions of the ages of live blocks at `now`, by stack index. `stacks`: number of stacks.
pub(super) fn histograms(
    blocks: &AddressTable<Block>,
    samples: &Samples,
    stacks: usize,
    now: Tick,
) -> Vec<BlockHistograms> {
    let mut ages = vec![BlockHistograms::default(); stacks];
    for block in blocks.iter() {
        if let Some(ages) = ages.get_mut(block.stack as usize) {
            ages.count(BlockQuantity::Age, Log2::of_time(block.tick, now), samples.amount(block).count);
        }
    }
    ages
}
