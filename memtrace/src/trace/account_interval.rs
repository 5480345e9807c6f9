//! Accounts of one interval of a recording.

use memtrace_history::{AccountNames, RecordedAccount};
use memtrace_model::Tick;

#[derive(Debug)]
pub(super) struct AccountInterval {
    /// End of the interval.
    pub(super) until: Tick,
    pub(super) accounts: Vec<RecordedAccount>,
    /// Names of accounts that are new or were renamed.
    pub(super) names: Vec<AccountNames>,
}
