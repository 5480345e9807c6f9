//! Keys of accounts.

use std::ops::Deref;

use crate::GroupBy;

/// Keys of a table of accounts: one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountKeys(Vec<GroupBy>);

impl AccountKeys {
    /// Returns true if each account belongs to one process, or to one part of a process.
    #[must_use]
    pub fn are_by_process(&self) -> bool {
        self.iter().any(|key| matches!(key, GroupBy::Process | GroupBy::Thread))
    }

    /// Returns the keys for titles: `users and processes`.
    #[must_use]
    pub fn plural(&self) -> String {
        self.iter().map(|key| key.plural()).collect::<Vec<_>>().join(" and ")
    }
}

impl From<Vec<GroupBy>> for AccountKeys {
    fn from(keys: Vec<GroupBy>) -> Self {
        Self(keys)
    }
}

impl Deref for AccountKeys {
    type Target = [GroupBy];

    fn deref(&self) -> &[GroupBy] {
        &self.0
    }
}
