//! Accounts: counters of blocks, and water marks of their live amount.

use crate::{Amount, Bytes, ImageEnd, ImageId, Losses, Part, Tick, Tid};

/// Counters of an account. A block belongs to the account that allocated it. Negative differences are stored as wrapped
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountCounters {
    /// Allocated blocks.
    pub alloc: Amount,
    /// Blocks of the account that any thread has freed.
    pub free: Amount,
    /// Blocks that another thread than the allocating thread has freed. `free` includes them.
    pub free_by_others: Amount,
    /// Number of frees of unknown blocks, which were allocated before tracing began or by the parent process, or
    /// filtered.
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

/// Low-water and high-water mark of an amount within a period. Bytes and blocks have independent marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaterMarks {
    /// Lowest number of bytes and lowest number of blocks.
    pub low: Amount,
    /// Highest number of bytes and highest number of blocks.
    pub high: Amount,
}

impl WaterMarks {
    /// Returns the marks of a period with the constant amount `current`.
    #[must_use]
    pub const fn at(current: Amount) -> Self {
        Self { low: current, high: current }
    }

    /// Includes the amount `current` in the marks. Returns true if `current` has more bytes than all earlier amounts.
    #[inline]
    pub fn include(&mut self, current: Amount) -> bool {
        self.lower(current);
        self.raise(current)
    }

    /// Includes an amount as [`Self::include`] does. `current` must not be lower than the last amount.
    #[inline]
    pub fn raise(&mut self, current: Amount) -> bool {
        // Marks rarely change, so most events write no memory.
        if current.count > self.high.count {
            self.high.count = current.count;
        }
        let is_peak = current.bytes > self.high.bytes;
        if is_peak {
            self.high.bytes = current.bytes;
        }
        is_peak
    }

    /// Corrects the low-water mark after a free of `block` was undone: all amounts since the free were larger by
    /// `block`. `before` is the mark at the free.
    pub fn restore_low(&mut self, before: Amount, block: Amount) {
        // If the mark was not lowered after the free, the sum exceeds `before`, and the mark stays at `before`.
        self.low.bytes = before.bytes.min(Bytes(self.low.bytes.0.saturating_add(block.bytes.0)));
        self.low.count = before.count.min(self.low.count.saturating_add(block.count));
    }

    /// Includes an amount in the marks. `current` must not be higher than the last amount.
    #[inline]
    pub fn lower(&mut self, current: Amount) {
        if current.count < self.low.count {
            self.low.count = current.count;
        }
        if current.bytes < self.low.bytes {
            self.low.bytes = current.bytes;
        }
    }
}

/// An account at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountState {
    /// Part of the process that the account belongs to.
    pub account: Part,
    /// Counters since the start of the trace.
    pub counters: AccountCounters,
    /// Water marks of the live amount in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most live bytes.
    pub peak_at: Tick,
}

/// Accounts of an image that have changed in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAccounts {
    /// Identity of the image.
    pub id: ImageId,
    /// Kind of end, if the image has ended. Its accounts have no blocks after the interval.
    pub ended: Option<ImageEnd>,
    /// Ended threads that no longer have accounts.
    pub ended_threads: Vec<Tid>,
    /// Removed accounts of ended threads. Some may have been created in the interval. The account of [`Tid::ENDED`]
    /// includes the counters of the removed accounts.
    pub merged: Vec<Part>,
    /// Changed accounts at the end of the interval.
    pub accounts: Vec<AccountState>,
}

/// Id of a group of accounts. A group can have accounts of several images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountGroupId(pub u32);

/// An account that belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupMember {
    /// Process image of the account.
    pub image: ImageId,
    /// Part of the process that the account belongs to.
    pub account: Part,
    /// Group of the account.
    pub group: AccountGroupId,
}

/// Water marks of the sum of the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMarks {
    /// Id of the group.
    pub group: AccountGroupId,
    /// Live amount of all members at the start of the interval.
    pub before: Amount,
    /// Water marks of the live amount in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most live bytes.
    pub peak_at: Tick,
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

/// Changed accounts of an interval, which begins at the end of the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChanges {
    /// Images with changed accounts: ended images in the order of their ends, then running images.
    pub images: Vec<ImageAccounts>,
    /// Groups with changed members.
    pub groups: Vec<GroupMarks>,
    /// Accounts that become members of their groups at the end of the interval.
    pub joined: Vec<GroupMember>,
    /// Live amount of all images at the end of the interval.
    pub live: Amount,
    /// Water marks of the live amount of all images in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most live bytes.
    pub peak_at: Tick,
    /// Losses of the ledger since the start of the trace.
    pub losses: Losses,
    /// End of a recording's interval, if the recording's interval ends together with this one.
    pub interval_end: Option<Tick>,
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
    /// that rose most.
    pub peak_at: Option<Tick>,
}

impl AccountTotals {
    /// Returns the totals after a period without a change, with the marks of this period.
    #[must_use]
    pub const fn unchanged(&self) -> Self {
        Self { marks: Some(MarkBounds::at(self.live)), peak_at: None, ..*self }
    }

    /// Returns true if any amount is not 0. The amounts of an account can be moved to another one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_bytes_and_blocks_are_independent() {
        let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
        let mut marks = WaterMarks::at(amount(100, 5));
        assert!(!marks.include(amount(50, 9)));
        assert!(marks.include(amount(200, 2)));
        assert_eq!(marks, WaterMarks { low: amount(50, 2), high: amount(200, 9) });
    }
}
