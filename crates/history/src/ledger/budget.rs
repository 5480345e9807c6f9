//! Limits of a ledger, and the amounts that count towards them.

use std::time::Duration;

use memtrace_model::{Amount, LossReason, Losses, Part, PartKeys, StackId, StackKey, Tick};

use super::account_budget::AccountBudget;
use super::epochs::Epochs;

/// Configuration of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of live blocks. A sampled block counts as four. Exceeding it is [`LossReason::LedgerFull`].
    pub blocks: u64,
    /// Maximum number of stacks, counted separately for each image and part. A stack of sampled blocks counts as two. Exceeding
    /// it is [`LossReason::StacksFull`].
    pub stacks: u32,
    /// Maximum number of running processes plus ended images that were not taken. Exceeding it is
    /// [`LossReason::ProcessesFull`].
    pub processes: u32,
    /// True to record the high-water mark of each image's live bytes. It is only correct if this ledger receives
    /// all events.
    pub track_peak: bool,
    /// Minimum age of the blocks in the totals of live blocks and of blocks held at exit; `None` for all blocks.
    pub older: Option<Duration>,
    /// True to count the sizes, lifetimes and ages of blocks.
    pub lifetimes: bool,
    /// N, if the events of one page in N arrive. Events of huge pages are not sampled.
    pub page_sample: u32,
    /// Keys of the parts with totals of their own. The ledger does not know the kind of memory, which is looked up
    /// at the end of the run.
    pub parts: PartKeys,
    /// Keys of the parts with accounts of their own; `None` for no accounts. `parts` must contain these keys and
    /// the thread. Water marks are only correct if this ledger receives all events.
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
        page_sample: 1,
        parts: PartKeys::NONE,
        accounts: None,
    };

    /// Returns the maximum number of stacks in a delta. A delta can have more stacks than the ledger, because it
    /// also has stacks that the ledger has merged.
    pub(super) const fn stacks_of_delta(&self) -> u32 {
        if self.stacks > MIN_STACKS { self.stacks } else { MIN_STACKS }
    }
}

/// Maximum number of accounts. Each account takes about 190 bytes in the ledger (`tests/account_memory.rs`).
const MAX_ACCOUNTS: u32 = 100_000;

/// Maximum number of stacks in a delta, if the limit of the ledger is lower.
const MIN_STACKS: u32 = 1 << 16;

/// Number of blocks that an exact block counts as in the limit of blocks.
pub(super) const EXACT_BLOCK: u64 = 1;

/// Number of blocks that a sampled block counts as in the limit of blocks: its sample takes the memory of three blocks.
pub(super) const SAMPLED_BLOCK: u64 = 4;

/// Number of stacks that the spreads of a stack count as in the limit of stacks. With the live amounts of a profile and the
/// spreads at the last delta, the spreads take the memory of another stack.
pub(super) const SPREADS: u32 = 1;

/// Limits and losses shared by all images of a ledger.
#[derive(Debug)]
pub(super) struct Budget {
    /// Live amount. It includes estimates.
    pub(super) live: Amount,
    /// Number of live blocks that count towards the limit. A sampled block counts as several ([`SAMPLED_BLOCK`]).
    pub(super) blocks: u64,
    /// Number of blocks that sampled blocks have added to `blocks` beyond one for each event, since the start.
    pub(super) extra_blocks: u64,
    pub(super) pages: u64,
    pub(super) mapped_ranges: u64,
    pub(super) losses: Losses,
    /// Maximum of `blocks`. It is also the maximum number of pages, and of mapped ranges.
    pub(super) max_blocks: u64,
    /// Number of stacks with totals, and its limit.
    pub(super) totals: StackBudget,
    /// Number of stacks with frames, and its limit.
    pub(super) frames: StackBudget,
    /// Number of frames of the stacks in `frames`. Frames that stacks of an image share count once.
    pub(super) nodes: u64,
    /// True if changes are tracked for deltas.
    pub(super) tracks_changes: bool,
    /// True if sizes and lifetimes of blocks are counted.
    pub(super) counts_lifetimes: bool,
    /// N, if the events of one page in N arrive.
    pub(super) page_sample: u32,
    pub(super) epochs: Epochs,
    /// `None` without accounts.
    pub(super) accounts: Option<Box<AccountBudget>>,
}

/// Number of stacks, with a limit.
///
/// At the limit, stacks without live blocks are merged. A merge visits all stacks, so the next merge waits until a
/// fraction of the limit was requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackBudget {
    max: u32,
    used: u32,
    /// Number of requested stacks since the last merge.
    requests: u32,
}

/// Amounts of the budget that ended images use until they are taken.
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
            blocks: 0,
            extra_blocks: 0,
            pages: 0,
            mapped_ranges: 0,
            losses: Losses::default(),
            max_blocks: settings.blocks,
            totals: StackBudget::new(settings.stacks),
            frames: StackBudget::new(settings.stacks),
            nodes: 0,
            tracks_changes: false,
            counts_lifetimes: settings.lifetimes,
            page_sample: settings.page_sample,
            epochs: Epochs::new(settings.stacks_of_delta()),
            accounts: settings.accounts.map(|parts| Box::new(AccountBudget::new(parts, MAX_ACCOUNTS))),
        }
    }

    /// Returns true if the limit of blocks has room for a block that counts as `blocks` blocks.
    #[inline]
    pub(super) const fn has_room(&self, blocks: u64) -> bool {
        self.blocks + blocks <= self.max_blocks
    }

    /// Adds a live block at `tick`. `blocks`: how many blocks it counts as. `amount`: bytes and blocks that it stands for.
    #[inline]
    pub(super) fn add_live(&mut self, blocks: u64, amount: Amount, tick: Tick) {
        self.blocks += blocks;
        self.extra_blocks += blocks - EXACT_BLOCK;
        self.live += amount;
        if let Some(accounts) = &mut self.accounts {
            accounts.raise(self.live, tick);
        }
    }

    /// Removes live blocks. `blocks`: how many blocks they count as. `amount`: bytes and blocks that they stand for.
    #[inline]
    pub(super) fn remove_live(&mut self, blocks: u64, amount: Amount) {
        self.blocks -= blocks;
        self.live -= amount;
        if let Some(accounts) = &mut self.accounts {
            accounts.lower(self.live);
        }
    }

    /// Changes the live amount at `tick`, without a block.
    pub(super) fn change_live(&mut self, alloc: Amount, free: Amount, tick: Tick) {
        self.live += alloc;
        self.live -= free;
        if let Some(accounts) = &mut self.accounts {
            accounts.raise(self.live, tick);
            accounts.lower(self.live);
        }
    }

    /// Counts a new stack key, and returns it. If the maximum is reached, counts a loss and returns
    /// [`StackId::FAILED`].
    pub(super) fn admit(&mut self, key: StackKey) -> StackKey {
        if !is_limited(key) || self.totals.request(1) {
            return key;
        }
        self.losses.add(LossReason::StacksFull, 1);
        StackKey::from(StackId::FAILED)
    }

    /// Returns true and counts the stack, if the frames of one more stack are within the limit.
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

/// Maximum number of frames divided by the maximum number of stacks. Frames that stacks share count once. The
/// stacks of compilers have ten frames on average that they do not share.
const NODES_PER_STACK: u64 = 16;

/// Divisor of the limit of stacks: a merge removes the limit divided by this number. A merge should not be small,
/// because it visits all stacks, which takes some milliseconds. It should not be large either, because each removed
/// stack is missing in the report: two compilers exceed the limit by only an eighth.
pub(super) const MERGED_PART: u32 = 16;

/// Divisor of the number of stacks. The next merge waits until more stacks than the quotient were requested.
const REQUESTS_PER_MERGE: u32 = 64;

/// Returns true if totals of `key` count towards the limit. Only a few keys do not count.
pub(super) fn is_limited(key: StackKey) -> bool {
    key.stack.has_frames() || key.part != Part::WHOLE && key.stack != StackId::OTHER
}

/// Sets of keys with few parts: a process has few allocators and tags, but can have many threads.
const WITH_FEW_PARTS: [PartKeys; 2] = [PartKeys::ALLOCATOR, PartKeys::TAG];

/// Returns the key of the sum that totals of `key` are merged into.
pub(super) fn merged_key(key: StackKey) -> StackKey {
    let part = if WITH_FEW_PARTS.contains(&key.part.keys()) { key.part } else { Part::WHOLE };
    StackKey { stack: StackId::OTHER, part }
}

impl StackBudget {
    const fn new(max: u32) -> Self {
        Self { max, used: 0, requests: 0 }
    }

    /// Returns true and counts `count` more stacks, if they are within the limit.
    pub(super) const fn request(&mut self, count: u32) -> bool {
        self.requests = self.requests.saturating_add(count);
        let fits = count <= self.max.saturating_sub(self.used);
        if fits {
            self.used += count;
        }
        fits
    }

    /// Counts `count` more stacks, even beyond the limit.
    pub(super) const fn add(&mut self, count: u32) {
        self.used = self.used.saturating_add(count);
    }

    pub(super) const fn release(&mut self, count: u32) {
        self.used = self.used.saturating_sub(count);
    }

    /// Returns true if the limit is reached and it is time to merge stacks.
    #[inline]
    pub(super) const fn needs_merge(&self) -> bool {
        self.used >= self.max && self.is_merge_due()
    }

    /// Returns true if enough stacks were requested since the last merge. The number of used stacks can be below
    /// the limit, because the frames of stacks have a limit of their own.
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
