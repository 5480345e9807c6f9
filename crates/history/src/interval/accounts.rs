//! Accounts with counters and water marks.

use memtrace_model::{AccountNumber, AccountTotals};

/// An account that has changed in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAccount {
    /// Number of the account.
    pub number: AccountNumber,
    /// Totals at the end of the interval, with the water marks within it.
    pub totals: AccountTotals,
}

impl RecordedAccount {
    /// Appends the same account of a later interval.
    pub fn merge(&mut self, later: Self) {
        self.totals = self.totals.followed_by(later.totals);
    }
}

/// Names of an account. Later ones replace them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountNames {
    /// Number of the account.
    pub number: AccountNumber,
    /// A name for each key, of one or two.
    pub names: Vec<String>,
}
