//! Samples of sampled blocks. Most images have no samples. Then a look-up costs only a comparison.

use memtrace_model::{AbsAddr, Amount, Sample};

use super::address_table::{AddressTable, Addressed, Slot};
use super::block::Block;
use super::budget::{EXACT_BLOCK, SAMPLED_BLOCK};

/// Samples of the sampled live blocks of an image; `None` before the first sample.
#[derive(Debug, Default)]
pub(super) struct Samples(Option<Box<AddressTable<LiveSample>>>);

/// Sample of a live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiveSample {
    /// Key of the block in its table.
    address: AbsAddr,
    pub(super) sample: Sample,
    /// Level of thinning that the numbers of the sample already include.
    pub(super) level: u8,
}

const _: () = assert!(size_of::<LiveSample>() == 64);

impl LiveSample {
    pub(super) fn new(block: &Block, sample: Sample, level: u8) -> Self {
        Self { address: block.address(), sample, level }
    }
}

impl Addressed for LiveSample {
    fn address(&self) -> AbsAddr {
        self.address
    }
}

impl Samples {
    /// Returns the sample of a block; `None` if the block is exact.
    #[inline]
    pub(super) fn get(&self, block: &Block) -> Option<&Sample> {
        self.find(block).map(|live| &live.sample)
    }

    /// Returns the sample of a block with its level; `None` if the block is exact.
    #[inline]
    pub(super) fn find(&self, block: &Block) -> Option<&LiveSample> {
        self.0.as_ref()?.get(block.address())
    }

    /// Returns the bytes and blocks that a block stands for.
    #[inline]
    pub(super) fn amount(&self, block: &Block) -> Amount {
        amount_of(block, self.get(block))
    }

    /// Adds the sample of a block, or replaces it.
    pub(super) fn insert(&mut self, live: LiveSample) {
        match self.0.get_or_insert_default().slot(live.address) {
            Slot::Occupied(mut entry) => *entry.get_mut() = live,
            Slot::Vacant(entry) => {
                entry.insert(live);
            }
        }
    }

    /// Removes and returns the sample of a block; `None` if the block is exact.
    #[inline]
    pub(super) fn remove(&mut self, block: &Block) -> Option<LiveSample> {
        self.0.as_mut()?.remove(block.address())
    }

    /// Returns the keys of the blocks with samples below `level`.
    pub(super) fn below(&self, level: u8) -> Vec<AbsAddr> {
        let all = self.0.iter().flat_map(|table| table.iter());
        all.filter(|live| live.level < level).map(|live| live.address).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |table| table.len())
    }
}

/// Returns the bytes and blocks that a block stands for.
#[inline]
pub(super) fn amount_of(block: &Block, sample: Option<&Sample>) -> Amount {
    sample.map_or(Amount::one(block.size), |sample| sample.amount)
}

/// Returns the number of blocks that a block counts as in the limit of blocks.
#[inline]
pub(super) const fn blocks_of(sample: Option<&Sample>) -> u64 {
    if sample.is_some() { SAMPLED_BLOCK } else { EXACT_BLOCK }
}
