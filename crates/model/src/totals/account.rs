//! Accounts: counters of blocks, and water marks of their live amount.

use crate::{Amount, Bytes, ImageEnd, ImageId, Losses, Part, Tick, Tid};

/// Counters of an account. A block belongs to the account that allocated it. Additive; sums wrap while a difference is
/// temporarily negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountCounters {
    /// Allocated blocks.
    pub alloc: Amount,
    /// Freed blocks, by any thread.
    pub free: Amount,
    /// Blocks that a thread other than the allocating one has freed. They are a part of the freed ones.
    pub free_by_others: Amount,
    /// Frees of unknown blocks: allocated before tracing began, by the parent of a forked process, or filtered.
    pub unmatched_frees: u64,
}

impl AccountCounters {
    /// Returns the amount that is allocated and not freed.
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

/// Lowest and highest amount within some time. Bytes and blocks are independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaterMarks {
    /// Lowest amount.
    pub low: Amount,
    /// Highest amount.
    pub high: Amount,
}

impl WaterMarks {
    /// Returns the marks of a time during which the amount is `current`.
    #[must_use]
    pub const fn at(current: Amount) -> Self {
        Self { low: current, high: current }
    }

    /// Includes a time with the amount `current`. Returns true if it has the most bytes so far.
    #[inline]
    pub fn include(&mut self, current: Amount) -> bool {
        self.lower(current);
        self.raise(current)
    }

    /// Includes a time with an amount to which the last one has risen, as [`Self::include`] does.
    #[inline]
    pub fn raise(&mut self, current: Amount) -> bool {
        // Marks rarely change, so that most events store nothing.
        if current.count > self.high.count {
            self.high.count = current.count;
        }
        let is_peak = current.bytes > self.high.bytes;
        if is_peak {
            self.high.bytes = current.bytes;
        }
        is_peak
    }

    /// Corrects the low-water mark, which was `before` earlier: all amounts since then had `block` more.
    pub fn restore_low(&mut self, before: Amount, block: Amount) {
        // If no later amount was lower, the sum is more than the earlier mark.
        self.low.bytes = before.bytes.min(Bytes(self.low.bytes.0.saturating_add(block.bytes.0)));
        self.low.count = before.count.min(self.low.count.saturating_add(block.count));
    }

    /// Includes a time with an amount to which the last one has fallen.
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
    /// Part of the process.
    pub account: Part,
    /// Counters since the start of the trace.
    pub counters: AccountCounters,
    /// Water marks in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most bytes.
    pub peak_at: Tick,
}

/// The accounts of an image that have changed in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAccounts {
    /// The image.
    pub id: ImageId,
    /// End of the image, if it has ended: its accounts have no blocks after the interval.
    pub ended: Option<ImageEnd>,
    /// Threads that have ended, and have no accounts any more.
    pub ended_threads: Vec<Tid>,
    /// Accounts of ended threads that were removed, and can be new in the interval. The account of
    /// [`Tid::ENDED`] includes their counters.
    pub merged: Vec<Part>,
    /// The changed accounts.
    pub accounts: Vec<AccountState>,
}

/// Number of a group of accounts of several images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountGroupId(pub u32);

/// An account that belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupMember {
    /// The image.
    pub image: ImageId,
    /// Part of the process.
    pub account: Part,
    /// The group.
    pub group: AccountGroupId,
}

/// Water marks of the sum of the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMarks {
    /// The group.
    pub group: AccountGroupId,
    /// Sum of the members at the start of the interval.
    pub before: Amount,
    /// Water marks in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most bytes.
    pub peak_at: Tick,
}

/// Number of an account in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountNumber(pub u32);

impl AccountNumber {
    /// Sum of all accounts.
    pub const TOTAL: Self = Self(0);

    /// Stands for accounts that are not recorded, since there are too many.
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
    /// The images in the order of their ends; running ones are the last.
    pub images: Vec<ImageAccounts>,
    /// Groups of which a member has changed.
    pub groups: Vec<GroupMarks>,
    /// Accounts that are members of their groups from the end of the interval on.
    pub joined: Vec<GroupMember>,
    /// Live amount of all images at the end of the interval.
    pub live: Amount,
    /// Water marks of that amount in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most bytes.
    pub peak_at: Tick,
    /// Losses of the ledger since the start of the trace.
    pub losses: Losses,
    /// End of the interval of a recording, if it ends here.
    pub interval_end: Option<Tick>,
}

/// Bounds of an amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmountBounds {
    /// The amount was not less.
    pub at_least: Amount,
    /// The amount was not more.
    pub at_most: Amount,
}

/// Bounds of water marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkBounds {
    /// Low-water mark.
    pub low: AmountBounds,
    /// High-water mark.
    pub high: AmountBounds,
}

impl MarkBounds {
    /// Returns the marks of a time during which the amount is `live`.
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
    /// Live amount.
    pub live: Amount,
    /// Amount that processes held when they exited.
    pub exit: Amount,
    /// Amount that processes held when they called exec.
    pub discarded: Amount,
    /// Water marks of the live amount since the start of the trace, or since the last reset; `None` if they were not kept.
    pub marks: Option<MarkBounds>,
    /// Time of the highest amount of bytes; for a group of several accounts, that of the account that rose most.
    pub peak_at: Option<Tick>,
}

impl AccountTotals {
    /// Returns the totals after a time without a change, with the marks of that time.
    #[must_use]
    pub const fn unchanged(&self) -> Self {
        Self { marks: Some(MarkBounds::at(self.live)), peak_at: None, ..*self }
    }

    /// Returns false for an account whose amounts were moved to another one.
    #[must_use]
    pub fn has_amounts(&self) -> bool {
        Self { marks: None, peak_at: None, ..*self } != Self::default()
    }

    /// Returns the totals at the end of two intervals, with the marks of both. `later` are those of the second one.
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
