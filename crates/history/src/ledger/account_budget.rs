//! Limits of accounts, and the water marks of all images.

use memtrace_model::{Amount, PartKeys, Tick};

use super::account_groups::AccountGroups;
use crate::account_changes::{ImageAccounts, WaterMarks};

/// Number of ended threads of a process that keep their accounts. Reports can thus show the threads of a process
/// that has just ended, and the accounts of a server with a thread for each request do not accumulate.
const KEPT_THREADS: usize = 100;

/// Number of accounts (`own`), and of parts that share the account of their image (`shared`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AccountCounts {
    pub(super) own: u32,
    pub(super) shared: u32,
}

/// Limits of accounts, and the live amount of all images.
#[derive(Debug)]
pub(super) struct AccountBudget {
    /// Keys of the parts with accounts of their own.
    pub(super) parts: PartKeys,
    /// Number of ended threads of each process that keep their accounts. These are the threads that ended last.
    pub(super) kept_threads: usize,
    /// Maximum number of accounts. Beyond it, further parts share the account of their image. The number of such parts
    /// has the same maximum.
    max: u32,
    used: AccountCounts,
    marks: WaterMarks,
    /// Number of calls of [`Self::take`].
    takes: u32,
    peak_at: Tick,
    pub(super) groups: AccountGroups,
    /// Accounts of images that have ended.
    ended: Vec<ImageAccounts>,
    /// Number of accounts of the images in `ended`.
    ended_accounts: AccountCounts,
}

impl AccountBudget {
    pub(super) fn new(parts: PartKeys, max: u32) -> Self {
        Self {
            parts,
            kept_threads: if parts.contains(PartKeys::THREAD) { KEPT_THREADS } else { 0 },
            max,
            used: AccountCounts::default(),
            marks: WaterMarks::default(),
            takes: 0,
            peak_at: Tick::default(),
            groups: AccountGroups::default(),
            ended: Vec::new(),
            ended_accounts: AccountCounts::default(),
        }
    }

    /// Includes `live`, the live amount of all images after a rise at `tick`, in the water marks.
    #[inline]
    pub(super) fn raise(&mut self, live: Amount, tick: Tick) {
        if self.marks.raise(live) {
            self.peak_at = tick;
        }
    }

    /// Includes `live`, the live amount of all images after a fall, in the water marks.
    #[inline]
    pub(super) fn lower(&mut self, live: Amount) {
        self.marks.lower(live);
    }

    /// Returns the low-water mark, and the number of takes before it started.
    pub(super) const fn low_mark(&self) -> (Amount, u32) {
        (self.marks.low, self.takes)
    }

    /// Corrects the low-water mark, as [`WaterMarks::restore_low`] does. `takes`: number of takes when the mark was
    /// `before`. Returns false if the marks were taken since.
    pub(super) fn restore_low_mark(&mut self, before: Amount, block: Amount, takes: u32) -> bool {
        if self.takes != takes {
            return false;
        }
        self.marks.restore_low(before, block);
        true
    }

    /// Adds the accounts of an image that has ended. The number of images that wait for [`Self::take`] is limited;
    /// further images are not reported.
    pub(super) fn add_ended(&mut self, ended: ImageAccounts, accounts: AccountCounts) {
        if self.ended.len() < self.max as usize {
            self.ended_accounts.own += accounts.own;
            self.ended_accounts.shared += accounts.shared;
            self.ended.push(ended);
        } else {
            self.release(accounts);
        }
    }

    /// Releases accounts of images or threads that have ended.
    pub(super) const fn release(&mut self, accounts: AccountCounts) {
        self.used.own = self.used.own.saturating_sub(accounts.own);
        self.used.shared = self.used.shared.saturating_sub(accounts.shared);
    }

    /// Counts one more account. Returns false if the maximum is reached, unless `always_fits` is true.
    pub(super) const fn request(&mut self, always_fits: bool) -> bool {
        let fits = self.used.own < self.max || always_fits;
        self.used.own += fits as u32;
        fits
    }

    /// Counts one more part that shares the account of its image. Returns false if the maximum is reached.
    pub(super) const fn request_shared(&mut self) -> bool {
        let fits = self.used.shared < self.max;
        self.used.shared += fits as u32;
        fits
    }

    /// Returns true if images with accounts have ended since the last call of [`Self::take`].
    pub(super) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns the accounts of ended images, the water marks, and the time of the highest amount. Starts new marks
    /// at `live`.
    pub(super) fn take(&mut self, live: Amount) -> (Vec<ImageAccounts>, WaterMarks, Tick) {
        let ended = std::mem::take(&mut self.ended_accounts);
        self.release(ended);
        self.takes = self.takes.wrapping_add(1);
        let marks = std::mem::replace(&mut self.marks, WaterMarks::at(live));
        (std::mem::take(&mut self.ended), marks, self.peak_at)
    }
}
