//! Changes of the accounts of a ledger.

use super::Ledger;
use crate::model::{AccountChanges, GroupMember, ImageAccounts};

impl Ledger {
    /// Returns true if images with accounts have ended since [`Self::take_accounts`].
    #[must_use]
    pub fn has_ended_accounts(&self) -> bool {
        self.budget.accounts.as_ref().is_some_and(|accounts| accounts.has_ended())
    }

    /// Returns the accounts that have changed since the last call, and starts new water marks; `None` without accounts.
    /// Merges accounts of ended threads before.
    pub fn take_accounts(&mut self) -> Option<AccountChanges> {
        let live = self.budget.live;
        let (mut images, marks, peak_at) = self.budget.accounts.as_mut()?.take(live);
        for process in self.processes.iter_mut() {
            let id = process.id;
            let Some(image) = process.image.as_mut() else { continue };
            let (ended_threads, merged) = image.heap.merge_ended_threads(&mut self.budget);
            let accounts = image.heap.accounts.take_changed();
            if !accounts.is_empty() || !ended_threads.is_empty() {
                images.push(ImageAccounts { id, ended: None, ended_threads, merged, accounts });
            }
        }
        let groups = self.budget.accounts.as_mut()?.groups.take_changed();
        let joined = self.join_groups();
        Some(AccountChanges {
            images,
            groups,
            joined,
            live,
            marks,
            peak_at,
            losses: self.budget.losses.clone(),
            interval_end: None,
        })
    }

    /// Makes accounts members of groups after the next [`Self::take_accounts`], which returns those that are. The marks of
    /// a group are exact, and those of an account that is no member of a group are reported for itself. Ignored without accounts.
    pub fn group_accounts(&mut self, members: Vec<GroupMember>) {
        if let Some(accounts) = &mut self.budget.accounts {
            accounts.groups.add(members);
        }
    }

    /// Makes the waiting accounts members of their groups. Returns those that exist.
    fn join_groups(&mut self) -> Vec<GroupMember> {
        let Some(accounts) = &mut self.budget.accounts else { return Vec::new() };
        let mut joined = accounts.groups.take_waiting();
        joined.retain(|&GroupMember { image, account, group }| {
            let process = self.processes.get_mut(image.pid).filter(|process| process.id == image);
            let Some(current) = process
                .and_then(|process| process.image.as_mut())
                .and_then(|image| image.heap.accounts.join(account, group))
            else {
                return false;
            };
            accounts.groups.join(group, current);
            true
        });
        joined
    }
}
