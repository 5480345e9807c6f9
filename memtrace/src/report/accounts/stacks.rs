//! Accounts that follow from the totals of stacks.

use std::collections::BTreeMap;

use crate::model::{
    AccountCounters, AccountKeys, AccountRow, AccountTable, AccountTotals, GroupBy, Profile, Quantities,
};
use crate::report::groups::Groups;

/// Returns the accounts of the groups of stacks by `keys`, without water marks. `label` sets the labels of the stacks for a key.
#[must_use]
pub fn of_stacks(profile: &mut Profile, keys: &AccountKeys, label: impl Fn(GroupBy, &mut Profile)) -> AccountTable {
    let groups_by = |&key: &GroupBy| {
        profile.stacks.iter_mut().for_each(|stack| stack.label = None);
        label(key, profile);
        Groups::of(profile, key)
    };
    let groups: Vec<_> = keys.iter().map(groups_by).collect();
    let mut sums: BTreeMap<Vec<usize>, Quantities> = BTreeMap::new();
    let mut total = Quantities::default();
    for (index, stack) in profile.stacks.iter().enumerate() {
        let of_stack = groups.iter().map(|groups| groups.of_stack(index)).collect();
        *sums.entry(of_stack).or_default() += stack.usage;
        total += stack.usage;
    }
    let rows = sums.into_iter().map(|(of_keys, usage)| {
        let name = |(groups, group): (&Groups, usize)| groups.all()[group].label.clone();
        AccountRow { names: groups.iter().zip(of_keys).map(name).collect(), totals: totals(usage) }
    });
    AccountTable {
        keys: keys.clone(),
        rows: rows.collect(),
        total: totals(total),
        elapsed: profile.run.duration,
        ..AccountTable::default()
    }
}

fn totals(usage: Quantities) -> AccountTotals {
    let [live, exit, alloc, free] = [usage.live(), usage.exit(), usage.alloc(), usage.free()];
    let counters = AccountCounters { alloc, free, ..AccountCounters::default() };
    AccountTotals { counters, live, exit, discarded: alloc - free - live - exit, marks: None, peak_at: None }
}
