//! Sender of the changes of accounts.

use std::collections::VecDeque;
use std::sync::mpsc::TrySendError;

use memtrace_model::Tick;

use super::sink::AccountSink;
use crate::account_changes::AccountChanges;
use crate::ledger::Ledger;

/// Sends the changes of the accounts of one shard. While the sink is full, later changes stay in the ledger.
pub(super) struct AccountSender {
    sink: AccountSink,
    /// Numbers and times of the splits that the shard has not reached, in order.
    splits: VecDeque<(u64, Tick)>,
    /// Number of the last split that the shard has reached.
    reached: u64,
    /// True if a command has requested the changes, and they were not taken yet.
    is_requested: bool,
    /// Changes that were not sent yet, each with the number of the last split at or before its end.
    unsent: VecDeque<(u64, AccountChanges)>,
}

impl AccountSender {
    pub(super) const fn new(sink: AccountSink) -> Self {
        Self { sink, splits: VecDeque::new(), reached: 0, is_requested: false, unsent: VecDeque::new() }
    }

    /// Requests the changes. The next [`Self::send`] sends them, even if events wait in the source.
    pub(super) const fn request(&mut self) {
        self.is_requested = true;
    }

    /// Separates the changes until `at` from later ones. The caller limits the number of splits that wait.
    pub(super) fn add_split(&mut self, number: u64, at: Tick) {
        self.splits.push_back((number, at));
    }

    /// Returns true if an event at `tick` is later than a split that the shard has not reached.
    #[inline]
    pub(super) fn is_after_split(&self, tick: Tick) -> bool {
        self.splits.front().is_some_and(|&(_, at)| at < tick)
    }

    /// Takes the changes at each split before the tick `before`. The ledger must have applied all events until
    /// these splits, and no later event.
    pub(super) fn take_at_splits(&mut self, before: Tick, ledger: &mut Ledger) {
        while self.is_after_split(before)
            && let Some((number, _)) = self.splits.pop_front()
        {
            self.take(number, ledger);
        }
    }

    /// Takes the changes at all remaining splits. The source must have no events from before these splits.
    pub(super) fn take_at_all_splits(&mut self, ledger: &mut Ledger) {
        while let Some((number, _)) = self.splits.pop_front() {
            self.take(number, ledger);
        }
    }

    /// Sends the changes that were taken. Takes and sends the changes if they are requested, or if images have
    /// ended. Returns false if the sink has no room.
    pub(super) fn send(&mut self, ledger: &mut Ledger) -> bool {
        while let Some(changes) = self.unsent.pop_front().or_else(|| {
            let is_due = std::mem::take(&mut self.is_requested) || ledger.has_ended_accounts();
            if is_due { Some((self.reached, ledger.take_accounts()?)) } else { None }
        }) {
            if let Err(TrySendError::Full(changes) | TrySendError::Disconnected(changes)) = self.sink.try_send(changes)
            {
                self.unsent.push_front(changes);
                return false;
            }
        }
        true
    }

    /// Takes the changes at the end of an interval of a recording.
    pub(super) fn end_interval(&mut self, until: Tick, ledger: &mut Ledger) {
        let changes = ledger.take_accounts();
        let interval_end = Some(until);
        self.unsent.extend(changes.map(|changes| (self.reached, AccountChanges { interval_end, ..changes })));
    }

    /// Returns the changes that were not sent, in order. The last interval ends at `now`.
    pub(super) fn finish(mut self, ledger: &mut Ledger, now: Tick) -> Vec<(u64, AccountChanges)> {
        self.take_at_all_splits(ledger);
        self.end_interval(now, ledger);
        self.unsent.into()
    }

    fn take(&mut self, number: u64, ledger: &mut Ledger) {
        self.reached = number;
        self.unsent.extend(ledger.take_accounts().map(|changes| (number, changes)));
    }
}
