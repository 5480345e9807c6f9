//! Limits of a ledger, and the amounts that count towards them.

use std::time::Duration;

use crate::model::{Amount, LossReason, Losses, Partition, PartitionBy, StackId, StackKey};

/// Configuration of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of live blocks. Exceeding it is [`LossReason::LedgerFull`].
    pub blocks: u64,
    /// Maximum number of stacks, counted separately for each image and partition. Exceeding it is
    /// [`LossReason::StacksFull`].
    pub stacks: u32,
    /// Maximum number of running processes together with images that have ended and were not taken. Exceeding it is
    /// [`LossReason::ProcessesFull`].
    pub processes: u32,
    /// Records the high-water mark of each image's live bytes. Only correct if this ledger receives all events.
    pub track_peak: bool,
    /// Totals of live blocks, and of those held at exit, contain only blocks that are at least this old.
    pub older: Option<Duration>,
    /// Partition of each process' totals.
    pub parts: PartitionBy,
}

/// Limits and losses shared by all images of a ledger.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) live: Amount,
    pub(super) pages: u64,
    pub(super) mapped_ranges: u64,
    pub(super) losses: Losses,
    /// Maximum number of blocks, of pages and of mapped ranges.
    pub(super) max_blocks: u64,
    stacks_left: u32,
}

impl Budget {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            live: Amount::default(),
            pages: 0,
            mapped_ranges: 0,
            losses: Losses::default(),
            max_blocks: settings.blocks,
            stacks_left: settings.stacks,
        }
    }

    /// Returns the key for totals of the new key `key`: [`StackId::FAILED`], and a loss, if the maximum is reached.
    pub(super) fn admit(&mut self, key: StackKey) -> StackKey {
        // Keys without frames are few and do not count.
        if !key.stack.has_frames() && key.part == Partition::Whole {
            return key;
        }
        match self.stacks_left.checked_sub(1) {
            Some(left) => {
                self.stacks_left = left;
                key
            }
            None => {
                self.losses.add(LossReason::StacksFull, 1);
                StackKey::from(StackId::FAILED)
            }
        }
    }
}
