//! Limits of a ledger, and the amounts that count towards them.

use std::time::Duration;

use memtrace_model::{Amount, LossReason, Losses, Part, PartKeys, StackId, StackKey, Tick};

use super::account_budget::AccountBudget;
use super::epochs::Epochs;

/// Configuration of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of live blocks. Exceeding it is [`LossReason::LedgerFull`].
    pub blocks: u64,
    /// Maximum number of stacks, counted separately for each image and part. Exceeding it is
    /// [`LossReason::StacksFull`].
    pub stacks: u32,
    /// Maximum number of running processes together with images that have ended and were not taken. Exceeding it is
    /// [`LossReason::ProcessesFull`].
    pub processes: u32,
    /// Records the high-water mark of each image's live bytes. Only correct if this ledger receives all events.
    pub track_peak: bool,
    /// Totals of live blocks, and of those held at exit, contain only blocks that are at least this old.
    pub older: Option<Duration>,
    /// Counts the sizes, lifetimes and ages of blocks.
    pub lifetimes: bool,
    /// Keys of the parts that have totals. The kind of memory is looked up at the end.
    pub parts: PartKeys,
    /// Keys of the parts that have accounts; `None` for no accounts. `parts` must have these keys, and the thread. Water marks
    /// are only correct if this ledger receives all events.
    pub accounts: Option<PartKeys>,
}

impl Settings {
    /// No limits, and totals of whole processes.
    pub const UNLIMITED: Self = Self {
        blocks: u64::MAX,
        stacks: u32::MAX,
        processes: u32::MAX,
        track_peak: false,
        older: None,
        lifetimes: false,
        parts: PartKeys::NONE,
        accounts: None,
    };

    /// Returns the maximum number of stacks in a delta, which has stacks that the ledger merged since too.
    pub(super) const fn stacks_of_delta(&self) -> u32 {
        if self.stacks > MIN_STACKS { self.stacks } else { MIN_STACKS }
    }
}

/// Maximum number of accounts. Each takes about 190 bytes here (`tests/account_memory.rs`).
const MAX_ACCOUNTS: u32 = 100_000;

/// Maximum number of stacks in a delta, if the ledger has a lower limit.
const MIN_STACKS: u32 = 1 << 16;

/// Limits and losses shared by all images of a ledger.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) live: Amount,
    pub(super) pages: u64,
    pub(super) mapped_ranges: u64,
    pub(super) losses: Losses,
    /// Maximum number of blocks, of pages and of mapped ranges.
    pub(super) max_blocks: u64,
    /// Totals by stack.
    pub(super) totals: StackBudget,
    /// Stacks with frames.
    pub(super) frames: StackBudget,
    /// Frames of these stacks. Frames that stacks of an image share count once.
    pub(super) nodes: u64,
    /// Changes are tracked for deltas.
    pub(super) tracks_changes: bool,
    /// Sizes and lifetimes are counted.
    pub(super) counts_lifetimes: bool,
    pub(super) epochs: Epochs,
    /// `None` without accounts.
    pub(super) accounts: Option<Box<AccountBudget>>,
}

/// Number of stacks, with a limit.
///
/// At the limit, stacks without live blocks are merged. That visits all stacks, so it is repeated only after a part of the
/// limit was requested again.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackBudget {
    max: u32,
    used: u32,
    /// Number of requests since stacks were merged.
    requests: u32,
}

/// Parts of the budget that images use after their end, until they are taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untaken {
    pub(super) totals: u32,
    pub(super) frames: u32,
    pub(super) nodes: usize,
}

impl Budget {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            live: Amount::default(),
            pages: 0,
            mapped_ranges: 0,
            losses: Losses::default(),
            max_blocks: settings.blocks,
            totals: StackBudget::new(settings.stacks),
            frames: StackBudget::new(settings.stacks),
            nodes: 0,
            tracks_changes: false,
            counts_lifetimes: settings.lifetimes,
            epochs: Epochs::new(settings.stacks_of_delta()),
            accounts: settings.accounts.map(|parts| Box::new(AccountBudget::new(parts, MAX_ACCOUNTS))),
        }
    }

    /// Adds a live block at `tick`.
    #[inline]
    pub(super) fn add_live(&mut self, block: Amount, tick: Tick) {
        self.live += block;
        if let Some(accounts) = &mut self.accounts {
            accounts.raise(self.live, tick);
        }
    }

    /// Removes live blocks.
    #[inline]
    pub(super) fn remove_live(&mut self, blocks: Amount) {
        self.live -= blocks;
        if let Some(accounts) = &mut self.accounts {
            accounts.lower(self.live);
        }
    }

    /// Returns the key for totals of the new key `key`: [`StackId::FAILED`], and a loss, if the maximum is reached.
    pub(super) fn admit(&mut self, key: StackKey) -> StackKey {
        if !is_limited(key) || self.totals.request(1) {
            return key;
        }
        self.losses.add(LossReason::StacksFull, 1);
        StackKey::from(StackId::FAILED)
    }

    /// Returns true if the frames of one more stack are within the limit, and counts the stack.
    pub(super) const fn request_frames(&mut self) -> bool {
        let fits = self.nodes < NODES_PER_STACK * self.frames.max as u64 && self.frames.used < self.frames.max;
        self.frames.requests = self.frames.requests.saturating_add(1);
        self.frames.used += fits as u32;
        fits
    }

    /// Starts a merge of stacks with frames, and returns the number of stacks to merge.
    pub(super) fn begin_merge_of_frames(&mut self) -> u32 {
        self.frames.begin_merge().min(self.frames.used / MERGED_PART + 1)
    }

    /// Releases stacks, and frames that no other stack shares.
    pub(super) const fn release_frames(&mut self, stacks: u32, nodes: usize) {
        self.frames.release(stacks);
        self.nodes = self.nodes.saturating_sub(nodes as u64);
    }
}

/// Maximum number of frames that the stacks do not share, for each stack of the limit. Of compilers, stacks have ten such
/// frames on average.
const NODES_PER_STACK: u64 = 16;

/// A merge removes one in this number of the stacks of the limit. It visits all stacks, which takes some milliseconds. Each
/// removed stack is missing in the report, and two compilers exceed the limit by an eighth only.
pub(super) const MERGED_PART: u32 = 16;

/// Between merges, one in this number of the stacks is requested.
const REQUESTS_PER_MERGE: u32 = 64;

/// Returns true if totals of `key` count towards the limit. Other keys are few.
pub(super) fn is_limited(key: StackKey) -> bool {
    key.stack.has_frames() || key.part != Part::WHOLE && key.stack != StackId::OTHER
}

/// Sets of keys with few parts: allocators and tags are few; threads are not.
const WITH_FEW_PARTS: [PartKeys; 2] = [PartKeys::ALLOCATOR, PartKeys::TAG];

/// Returns the key of the totals into which those of `key` are merged.
pub(super) fn merged_key(key: StackKey) -> StackKey {
    let part = if WITH_FEW_PARTS.contains(&key.part.keys()) { key.part } else { Part::WHOLE };
    StackKey { stack: StackId::OTHER, part }
}

impl StackBudget {
    const fn new(max: u32) -> Self {
        Self { max, used: 0, requests: 0 }
    }

    /// Returns true if `count` more stacks are within the limit, and counts them.
    pub(super) const fn request(&mut self, count: u32) -> bool {
        self.requests = self.requests.saturating_add(count);
        let fits = count <= self.max.saturating_sub(self.used);
        if fits {
            self.used += count;
        }
        fits
    }

    pub(super) const fn release(&mut self, count: u32) {
        self.used = self.used.saturating_sub(count);
    }

    /// Returns true if the limit is reached and it is time to merge stacks.
    #[inline]
    pub(super) const fn needs_merge(&self) -> bool {
        self.used >= self.max && self.is_merge_due()
    }

    /// Returns true if a part of the stacks was requested since the last merge. If stacks have many frames of their own, there are
    /// fewer than the limit.
    pub(super) const fn is_merge_due(&self) -> bool {
        let most = if self.used < self.max { self.used } else { self.max };
        self.requests > most / REQUESTS_PER_MERGE
    }

    /// Starts a merge, and returns the number of stacks to merge.
    pub(super) const fn begin_merge(&mut self) -> u32 {
        self.requests = 0;
        self.max / MERGED_PART + 1
    }
}
