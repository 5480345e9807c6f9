//! Accounts with counters and water marks.

use memtrace_model::{AccountNumber, AccountTotals, Tid};

/// An account that has changed in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAccount {
    /// Number of the account.
    pub number: AccountNumber,
    /// Totals at the end of the interval, with the water marks within it.
    pub totals: AccountTotals,
}

impl RecordedAccount {
    /// Appends the totals of the same account in a later interval.
    pub fn merge(&mut self, later: Self) {
        self.totals = self.totals.followed_by(later.totals);
    }
}

/// Names of an account. Names in a later interval replace them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountNames {
    /// Number of the account.
    pub number: AccountNumber,
    /// Names by which blocks are grouped to accounts: one for each of the one or two keys.
    pub names: Vec<String>,
    /// Thread of the account, if blocks are grouped by thread. Names of a later interval without it do not remove it.
    pub thread: Option<Tid>,
}

impl AccountNames {
    /// Replaces the names by those of the same account in a later interval.
    pub fn merge(&mut self, later: Self) {
        *self = Self { thread: later.thread.or(self.thread), ..later };
    }
}
