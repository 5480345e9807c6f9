//! Totals of accounts: counters of blocks, and bounds of the water marks of their live amount.

use crate::{Amount, Tick};

/// Counters of an account. A block belongs to the account that allocated it. Negative differences are stored as wrapped
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountCounters {
    /// Allocated blocks.
    pub alloc: Amount,
    /// Blocks of the account that any thread has freed.
    pub free: Amount,
    /// Blocks freed by a thread other than the allocating thread. `free` includes them.
    pub free_by_others: Amount,
    /// Number of frees of unknown blocks: blocks from before the start of tracing, blocks of the parent process, and
    /// blocks that a filter excluded.
    pub unmatched_frees: u64,
}

impl AccountCounters {
    /// Returns the amount that was allocated and not freed.
    #[must_use]
    pub fn current(&self) -> Amount {
        self.alloc - self.free
    }

    /// Adds the counters of another account.
    pub fn add(&mut self, other: &Self) {
        self.alloc += other.alloc;
        self.free += other.free;
        self.free_by_others += other.free_by_others;
        self.unmatched_frees = self.unmatched_frees.wrapping_add(other.unmatched_frees);
    }

    /// Subtracts the counters of another account.
    pub fn subtract(&mut self, other: &Self) {
        self.alloc -= other.alloc;
        self.free -= other.free;
        self.free_by_others -= other.free_by_others;
        self.unmatched_frees = self.unmatched_frees.wrapping_sub(other.unmatched_frees);
    }
}

/// Id of an account in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountNumber(pub u32);

impl AccountNumber {
    /// Id of the sum of all accounts.
    pub const TOTAL: Self = Self(0);

    /// Id of all accounts that are not recorded, because there are too many.
    pub const NOT_RECORDED: Self = Self(u32::MAX);

    /// Returns false for [`Self::NOT_RECORDED`].
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        self.0 != Self::NOT_RECORDED.0
    }
}

/// Bounds of an amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmountBounds {
    /// Lower bound of the amount.
    pub at_least: Amount,
    /// Upper bound of the amount.
    pub at_most: Amount,
}

/// Bounds of water marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkBounds {
    /// Bounds of the low-water mark.
    pub low: AmountBounds,
    /// Bounds of the high-water mark.
    pub high: AmountBounds,
}

impl MarkBounds {
    /// Returns the marks of a period with the constant amount `live`.
    #[must_use]
    pub const fn at(live: Amount) -> Self {
        let both = AmountBounds { at_least: live, at_most: live };
        Self { low: both, high: both }
    }
}

/// Totals of the accounts of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountTotals {
    /// Counters since the start of the trace.
    pub counters: AccountCounters,
    /// Live amount of the accounts.
    pub live: Amount,
    /// Amount that processes held when they exited.
    pub exit: Amount,
    /// Amount that processes held when they called exec.
    pub discarded: Amount,
    /// Water marks of the live amount since the start of the trace, or since the last reset; `None` if they were not
    /// recorded.
    pub marks: Option<MarkBounds>,
    /// Time of the highest number of live bytes. If the group has several accounts, this is the time of the account
    /// with the largest rise.
    pub peak_at: Option<Tick>,
}

impl AccountTotals {
    /// Returns the totals after a period without a change, with the marks of this period.
    #[must_use]
    pub const fn unchanged(&self) -> Self {
        Self { marks: Some(MarkBounds::at(self.live)), peak_at: None, ..*self }
    }

    /// Returns true if any number is not 0, apart from the marks. All amounts are 0 after they were moved to another account.
    #[must_use]
    pub fn has_amounts(&self) -> bool {
        Self { marks: None, peak_at: None, ..*self } != Self::default()
    }

    /// Returns the totals at the end of two intervals, with the marks of both. `later` has the totals of the second
    /// interval.
    #[must_use]
    pub fn followed_by(&self, later: Self) -> Self {
        let (ours, theirs) = (self.marks.unwrap_or_default(), later.marks.unwrap_or_default());
        let rises = theirs.high.at_least.bytes > ours.high.at_least.bytes;
        let marks = MarkBounds {
            low: AmountBounds {
                at_least: ours.low.at_least.lesser(theirs.low.at_least),
                at_most: ours.low.at_most.lesser(theirs.low.at_most),
            },
            high: AmountBounds {
                at_least: ours.high.at_least.greater(theirs.high.at_least),
                at_most: ours.high.at_most.greater(theirs.high.at_most),
            },
        };
        Self { marks: Some(marks), peak_at: if rises { later.peak_at } else { self.peak_at }, ..later }
    }
}
