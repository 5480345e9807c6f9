//! Accounts of one running image.

use memtrace_model::Part;
use rustc_hash::FxHashMap;

use super::account::Account;

/// Accounts of one running image, by part. The accounts are in a list, because a hash table of accounts would be
/// half empty and take more memory.
#[derive(Debug, Default)]
pub(super) struct RunningAccounts {
    by_part: FxHashMap<Part, u32>,
    all: Vec<Account>,
    /// Free indices of `all`.
    vacant: Vec<u32>,
}

impl RunningAccounts {
    /// Returns the account of a part. Adds the account if it is new.
    pub(super) fn get_or_add(&mut self, part: Part) -> &mut Account {
        let Self { by_part, all, vacant } = self;
        let index = *by_part.entry(part).or_insert_with(|| {
            vacant.pop().unwrap_or_else(|| {
                all.push(Account::default());
                // The ledger's maximum number of accounts is a u32.
                all.len() as u32 - 1
            })
        });
        &mut all[index as usize]
    }

    /// Returns the account of a part.
    pub(super) fn get_mut(&mut self, part: Part) -> Option<&mut Account> {
        self.all.get_mut(*self.by_part.get(&part)? as usize)
    }

    /// Removes and returns the account of a part.
    pub(super) fn remove(&mut self, part: Part) -> Option<Account> {
        let index = self.by_part.remove(&part)?;
        self.vacant.push(index);
        self.all.get_mut(index as usize).map(std::mem::take)
    }

    /// Iterates over the accounts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Part, &Account)> {
        self.by_part.iter().filter_map(|(part, index)| Some((*part, self.all.get(*index as usize)?)))
    }

    /// Iterates over the accounts, to change them.
    pub(super) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.all.iter_mut()
    }

    /// Removes and returns all accounts.
    pub(super) fn into_accounts(mut self) -> impl Iterator<Item = (Part, Account)> {
        let taken = move |(part, index): (Part, u32)| Some((part, std::mem::take(self.all.get_mut(index as usize)?)));
        self.by_part.into_iter().filter_map(taken)
    }
}
