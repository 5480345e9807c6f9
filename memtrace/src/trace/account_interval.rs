//! Accounts of one interval of a recording.

use memtrace_history::{AccountNames, RecordedAccount};
use memtrace_model::Tick;

/// Accounts that have changed in one interval.
#[derive(Debug)]
pub(super) struct AccountInterval {
    /// End of the interval.
    pub(super) until: Tick,
    pub(super) accounts: Vec<RecordedAccount>,
    /// Names of new accounts, and of those with another name.
    pub(super) names: Vec<AccountNames>,
}
