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
    /// Names of the account: one for each of the one or two keys that group blocks.
    pub names: Vec<String>,
    /// Thread of the account, if blocks are grouped by thread. If the names of a later interval have no thread, the
    /// thread remains.
    pub thread: Option<Tid>,
}

impl AccountNames {
    /// Replaces the names by the names of the same account in a later interval.
    pub fn merge(&mut self, later: Self) {
        *self = Self { thread: later.thread.or(self.thread), ..later };
    }
}
