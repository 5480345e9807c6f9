//! Accounts as `memtrace accounts` writes them to JSON.

use std::ops::Deref;
use std::path::Path;

use serde::Deserialize;

use crate::{Totals, recording_report};

/// A report of accounts.
#[derive(Debug, Deserialize)]
pub struct Accounts(memtrace_json::Accounts<'static>);

/// Numbers of an account.
pub type Account = memtrace_json::AccountNumbers;

/// The account of a group.
pub type NamedAccount = memtrace_json::Account<'static>;

impl Deref for Accounts {
    type Target = memtrace_json::Accounts<'static>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Accounts {
    /// Reads the accounts of a recording with `memtrace report`.
    ///
    /// # Panics
    ///
    /// If the accounts cannot be read.
    #[must_use]
    pub fn of_recording(recording: &Path, options: &[&str]) -> Self {
        let output = recording_report::run(recording, &[&["--view", "accounts", "--format", "json"], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("memtrace report writes JSON")
    }

    /// Asserts that two reports have the same keys, total and losses, and the same accounts in any order.
    ///
    /// # Panics
    ///
    /// If the reports differ in one of these.
    pub fn assert_same(&self, other: &Self) {
        assert_eq!((&self.keys, self.total, &self.losses), (&other.keys, other.total, &other.losses));
        let sorted = |accounts: &Self| {
            let mut accounts = accounts.accounts.clone();
            accounts.sort();
            accounts
        };
        assert_eq!(sorted(self), sorted(other));
    }

    /// Returns the account with these names.
    ///
    /// # Panics
    ///
    /// If no account has these names.
    #[must_use]
    pub fn of(&self, names: &[&str]) -> Account {
        let account = self.accounts.iter().find(|account| account.names == names);
        account.unwrap_or_else(|| panic!("no account of {names:?} in {self:#?}")).numbers
    }

    /// Asserts that the account with these names has the allocations and frees of `expected`. Returns the account.
    ///
    /// # Panics
    ///
    /// If no account has these names, or if its numbers differ.
    pub fn assert_equals(&self, names: &[&str], expected: &Totals) -> Account {
        let account = self.of(names);
        let Totals { alloc_bytes, alloc_count, free_bytes, free_count, .. } = *expected;
        assert_eq!([account.alloc_bytes, account.alloc_count], [alloc_bytes, alloc_count], "{names:?}");
        assert_eq!([account.free_bytes, account.free_count], [free_bytes, free_count], "{names:?}");
        account
    }

    /// Asserts that nothing was lost, and that the accounts add up.
    ///
    /// # Panics
    ///
    /// If an event was lost, or if the accounts do not add up.
    pub fn assert_consistent(&self) {
        assert!(self.losses.is_empty(), "{:?}", self.losses);
        let numbers = |account: &Account| {
            let current = [account.current_bytes, account.current_count];
            let alloc = [account.alloc_bytes, account.alloc_count];
            let free = [account.free_bytes, account.free_count];
            let held = [account.exit_bytes, account.exit_count, account.discarded_bytes, account.discarded_count];
            assert_eq!(alloc[0] - free[0] - held[0] - held[2], current[0], "{account:?}");
            assert_eq!(alloc[1] - free[1] - held[1] - held[3], current[1], "{account:?}");
            [&current[..], &alloc, &free, &held].concat()
        };
        let mut sums = vec![0; 10];
        for account in &self.accounts {
            sums.iter_mut().zip(numbers(&account.numbers)).for_each(|(sum, number)| *sum += number);
        }
        assert_eq!(sums, numbers(&self.total));
    }
}
