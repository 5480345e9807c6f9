//! Changes of accounts in an interval: their counters, and water marks of their live amount.

use memtrace_model::{AccountCounters, Amount, Bytes, ImageEnd, ImageId, Losses, Part, Tick, Tid};

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

    /// Includes the amount `current` in both marks. Returns true if `current` has more bytes than all earlier amounts.
    #[cfg(test)]
    pub(crate) fn include(&mut self, current: Amount) -> bool {
        self.lower(current);
        self.raise(current)
    }

    /// Includes an amount in the marks. `current` must not be lower than the last amount. Returns true if `current`
    /// has more bytes than all earlier amounts.
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

    /// Corrects the low-water mark after the undo of a free of `block`: all amounts that were included since the
    /// free were too small by `block`. `before`: low-water mark at the time of the free.
    pub(crate) fn restore_low(&mut self, before: Amount, block: Amount) {
        // If no amount since the free was lower than `before`, the mark is still `before`, which is less than the sum.
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

/// Changed accounts of an image in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAccounts {
    /// Identity of the image.
    pub id: ImageId,
    /// Kind of end, if the image has ended. The accounts of an ended image have no blocks after the interval.
    pub ended: Option<ImageEnd>,
    /// Ended threads that no longer have accounts.
    pub ended_threads: Vec<Tid>,
    /// Removed accounts of ended threads. Some may have been created in the interval. The account of [`Tid::ENDED`]
    /// includes the counters of the removed accounts.
    pub merged: Vec<Part>,
    /// Changed accounts at the end of the interval.
    pub accounts: Vec<AccountState>,
}

/// Number of a group of accounts. A group can have accounts of several images.
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
    /// Number of the group.
    pub group: AccountGroupId,
    /// Live amount of all members at the start of the interval.
    pub before: Amount,
    /// Water marks of the live amount in the interval.
    pub marks: WaterMarks,
    /// First time in the interval with the most live bytes.
    pub peak_at: Tick,
}

/// The accounts that have changed in an interval. The interval begins at the end of the previous interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChanges {
    /// Images with changed accounts: ended images ordered by end, then running images.
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
    /// End of a recording's interval, if it ends together with this interval.
    pub interval_end: Option<Tick>,
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
