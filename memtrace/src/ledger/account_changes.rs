//! Changes of the accounts of a ledger.

use super::Ledger;
use crate::model::{AccountChanges, ImageAccounts};

impl Ledger {
    /// Returns true if images with accounts have ended since [`Self::take_accounts`].
    #[must_use]
    pub fn has_ended_accounts(&self) -> bool {
        self.budget.accounts.as_ref().is_some_and(|accounts| accounts.has_ended())
    }

    /// Returns the accounts that have changed since the last call, and starts new water marks; `None` without accounts.
    pub fn take_accounts(&mut self) -> Option<AccountChanges> {
        let live = self.budget.live;
        let (mut images, marks, peak_at) = self.budget.accounts.as_mut()?.take(live);
        for process in self.processes.iter_mut() {
            let id = process.id;
            let changed = process.image.as_mut().map(|image| image.accounts.take_changed()).unwrap_or_default();
            if !changed.is_empty() {
                images.push(ImageAccounts { id, ended: None, accounts: changed });
            }
        }
        Some(AccountChanges { images, live, marks, peak_at, losses: self.budget.losses.clone() })
    }
}
