//! Changes of groups in the intervals of a recording.

use memtrace_model::{AccountNumber, AccountTotals};
use rustc_hash::FxHashSet;

use super::group::Group;
use super::key::AccountKey;

/// Accounts of a recording, and their changes in the current interval.
#[derive(Debug)]
pub(super) struct RecordedGroups {
    /// Maximum number of recorded accounts.
    pub(super) max: u32,
    /// Number of recorded accounts.
    pub(super) accounts: u32,
    /// Indices of the groups that have changed in the interval. Some of these groups may have been removed since.
    pub(super) changed: Vec<usize>,
    /// Indices of the groups with a key that the recording does not have yet.
    pub(super) unnamed: FxHashSet<usize>,
    /// Accounts of groups that were removed in the interval.
    pub(super) removed: Vec<(AccountNumber, AccountTotals)>,
    /// Number of groups that are not recorded, because they exceed `max`.
    pub(super) beyond: u64,
}

/// Accounts that have changed in an interval of a recording.
#[derive(Debug, Default)]
pub struct RecordedInterval {
    /// Totals at the end of the interval, with the marks within it. [`AccountNumber::TOTAL`] is the sum of all accounts.
    pub totals: Vec<(AccountNumber, AccountTotals)>,
    /// Keys of new accounts, and of accounts with a new key.
    pub keys: Vec<(AccountNumber, AccountKey)>,
}

impl RecordedGroups {
    /// Notes that a group is about to change.
    pub(super) fn begin_change(&mut self, index: usize, group: &mut Group) {
        if group.begin_interval() {
            self.changed.push(index);
        }
    }

    /// Notes that a group has another key.
    pub(super) fn rename(&mut self, index: usize) {
        self.unnamed.insert(index);
    }

    /// Notes that a group is removed, because another group takes over its amounts.
    pub(super) fn remove(&mut self, group: &Group) {
        let number = group.number.filter(|number| number.is_recorded());
        self.removed.extend(number.map(|number| (number, group.after_removal())));
    }

    /// Returns the number of a group's account in the recording, and assigns one if the group has none; `None` if
    /// the maximum number of accounts is reached.
    pub(super) fn number(&mut self, index: usize, group: &mut Group) -> Option<AccountNumber> {
        let number = *group.number.get_or_insert_with(|| {
            if self.accounts == self.max {
                self.beyond += 1;
                return AccountNumber::NOT_RECORDED;
            }
            self.accounts += 1;
            self.unnamed.insert(index);
            AccountNumber(self.accounts)
        });
        number.is_recorded().then_some(number)
    }
}
