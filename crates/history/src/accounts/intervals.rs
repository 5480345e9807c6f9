//! Changes of accounts in the intervals of a recording.

use memtrace_model::AccountNumber;

use super::AccountGroups;
use super::key::AccountKey;
use super::recorded::{RecordedGroups, RecordedInterval};

impl AccountGroups {
    /// Starts to keep the changes of each interval for a recording. `max`: maximum number of recorded accounts.
    #[must_use]
    pub fn recorded(mut self, max: u32) -> Self {
        let (accounts, beyond) = (0, 0);
        let (changed, unnamed, removed) = Default::default();
        self.recorded = Some(RecordedGroups { max, accounts, changed, unnamed, removed, beyond });
        self.total.begin_interval();
        self
    }

    /// Ends an interval of a recording. Returns the accounts that have changed in it; `None` if there is no recording.
    pub fn end_interval(&mut self) -> Option<RecordedInterval> {
        let recorded = self.recorded.as_mut()?;
        let total = self.total.end_interval().unwrap_or_default();
        self.total.begin_interval();
        let mut totals = vec![(AccountNumber::TOTAL, total)];
        totals.append(&mut recorded.removed);
        for index in std::mem::take(&mut recorded.changed) {
            let Some(group) = self.groups.get_mut(index) else { continue };
            if let Some(changed) = group.end_interval()
                && let Some(number) = recorded.number(index, group)
            {
                totals.push((number, changed));
            }
        }
        let unnamed = std::mem::take(&mut recorded.unnamed);
        let keys = if unnamed.is_empty() { Vec::new() } else { self.keys_of(|index| unnamed.contains(&index)) };
        Some(RecordedInterval { totals, keys })
    }

    /// Returns the keys of all recorded accounts.
    pub fn recorded_keys(&self) -> Vec<(AccountNumber, AccountKey)> {
        self.keys_of(|_| true)
    }

    /// Returns the number of groups that are not recorded, because there are too many groups.
    pub fn number_of_unrecorded(&self) -> u64 {
        self.recorded.as_ref().map_or(0, |recorded| recorded.beyond)
    }

    fn keys_of(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<(AccountNumber, AccountKey)> {
        let wanted = self.by_key.iter().filter(|(_, index)| is_wanted(**index));
        let recorded = wanted.filter_map(|(key, &index)| {
            let number = self.groups.get(index)?.number.filter(|number| number.is_recorded())?;
            Some((number, key.clone()))
        });
        recorded.collect()
    }
}
