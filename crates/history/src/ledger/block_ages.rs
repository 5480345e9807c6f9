//! Ages of live blocks, and the filter of `--older`: blocks of at least this age count as live.

use std::time::Duration;

use memtrace_model::{Amount, BlockHistograms, BlockQuantity, Log2, Tick};

use super::address_table::AddressTable;
use super::block::Block;

/// Returns the live amounts of the blocks that are at least as old as `older` at `now`, by stack index. `stacks`: number
/// of stacks.
pub(super) fn live_of_age(blocks: &AddressTable<Block>, stacks: usize, now: Tick, older: Duration) -> Vec<Amount> {
    let mut live = vec![Amount::default(); stacks];
    // If the clock is younger than `older`, no block is old enough.
    let Some(latest) = now.since_start().checked_sub(older).map(Tick::at) else { return live };
    for block in blocks.iter().filter(|block| block.tick <= latest) {
        if let Some(amount) = live.get_mut(block.stack as usize) {
            *amount += Amount::one(block.size);
        }
    }
    live
}

/// Returns the distributions of the ages of live blocks at `now`, by stack index. `stacks`: number of stacks.
pub(super) fn histograms(blocks: &AddressTable<Block>, stacks: usize, now: Tick) -> Vec<BlockHistograms> {
    let mut ages = vec![BlockHistograms::default(); stacks];
    for block in blocks.iter() {
        if let Some(ages) = ages.get_mut(block.stack as usize) {
            ages.count(BlockQuantity::Age, Log2::of_time(block.tick, now), 1);
        }
    }
    ages
}
