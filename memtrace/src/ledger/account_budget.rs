//! Limits of accounts, and the water marks of all images.

use crate::model::{AccountLevel, Amount, ImageAccounts, Tick, WaterMarks};

/// Limits of accounts, and the live amount of all images.
#[derive(Debug)]
pub(super) struct AccountBudget {
    pub(super) level: AccountLevel,
    /// Maximum number of accounts. Beyond it, parts of an image share its account.
    max: u32,
    used: u32,
    marks: WaterMarks,
    /// Number of calls of [`Self::take`].
    takes: u32,
    peak_at: Tick,
    /// Accounts of images that have ended.
    ended: Vec<ImageAccounts>,
    /// Number of accounts of these images.
    ended_accounts: u32,
}

impl AccountBudget {
    pub(super) fn new(level: AccountLevel, max: u32) -> Self {
        Self {
            level,
            max,
            used: 0,
            marks: WaterMarks::default(),
            takes: 0,
            peak_at: Tick::default(),
            ended: Vec::new(),
            ended_accounts: 0,
        }
    }

    /// Includes the live amount of all images, which has risen at `tick`, in the water marks.
    #[inline]
    pub(super) fn raise(&mut self, live: Amount, tick: Tick) {
        if self.marks.raise(live) {
            self.peak_at = tick;
        }
    }

    /// Includes the live amount of all images, which has fallen, in the water marks.
    #[inline]
    pub(super) fn lower(&mut self, live: Amount) {
        self.marks.lower(live);
    }

    /// Returns the low-water mark, and the number of takes before it began.
    pub(super) const fn low_mark(&self) -> (Amount, u32) {
        (self.marks.low, self.takes)
    }

    /// Corrects the low-water mark, as [`WaterMarks::restore_low`] does. Returns false if it was taken since.
    pub(super) fn restore_low_mark(&mut self, before: Amount, block: Amount, takes: u32) -> bool {
        if self.takes != takes {
            return false;
        }
        self.marks.restore_low(before, block);
        true
    }

    /// Adds the accounts of an image that has ended. If nobody takes them, the number of images is limited.
    pub(super) fn add_ended(&mut self, ended: ImageAccounts, accounts: u32) {
        if self.ended.len() < self.max as usize {
            self.ended_accounts += accounts;
            self.ended.push(ended);
        } else {
            self.release(accounts);
        }
    }

    /// Releases accounts of images that have ended.
    const fn release(&mut self, accounts: u32) {
        self.used = self.used.saturating_sub(accounts);
    }

    /// Counts one more account. Returns false if the maximum is reached.
    pub(super) const fn request(&mut self) -> bool {
        let fits = self.used < self.max;
        self.used += fits as u32;
        fits
    }

    /// Returns true if images with accounts have ended since [`Self::take`].
    pub(super) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns the images that have ended, the water marks, and the time of the highest amount, and starts new marks.
    pub(super) fn take(&mut self, live: Amount) -> (Vec<ImageAccounts>, WaterMarks, Tick) {
        let ended = std::mem::take(&mut self.ended_accounts);
        self.release(ended);
        self.takes = self.takes.wrapping_add(1);
        let marks = std::mem::replace(&mut self.marks, WaterMarks::at(live));
        (std::mem::take(&mut self.ended), marks, self.peak_at)
    }
}
