//! Computes accounts from the totals of stacks.

use std::collections::BTreeMap;

use memtrace_model::{
    AccountCounters, AccountKeys, AccountRow, AccountTable, AccountTotals, GroupBy, Profile, Quantities, StackLabels,
};

use crate::groups::Groups;

/// Groups the stacks by `keys`, and returns an account for each group, without water marks. `labels` returns the
/// labels of the stacks for a key, or `None` if the groups of the key do not depend on labels.
#[must_use]
pub fn of_stacks(
    profile: &Profile,
    keys: &AccountKeys,
    labels: impl Fn(GroupBy) -> Option<StackLabels>,
) -> AccountTable {
    let groups_by = |&key: &GroupBy| match labels(key) {
        Some(labels) => Groups::with_labels(profile, key, &labels),
        None => Groups::of(profile, key),
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

#[cfg(test)]
mod tests {
    use memtrace_model::{Amount, Bytes, LabelId, Part, Pid, ProcessProfile, Quantity, StackEnd, StackProfile};

    use super::*;

    #[test]
    fn keys_with_labels_have_labels_of_their_own() {
        let stack = |bytes| {
            let alloc = Amount { bytes: Bytes(bytes), count: 1 };
            let usage = Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc);
            StackProfile { usage, ..StackProfile::new(0, Part::WHOLE, [].into(), StackEnd::Complete) }
        };
        let profile = Profile {
            processes: vec![ProcessProfile::new(Pid(7), "server")],
            stacks: [1, 2, 4, 8].map(stack).into(),
            ..Profile::default()
        };
        let labels = |names: &[&str], of_stacks: [Option<usize>; 4]| StackLabels {
            of_stacks: of_stacks.map(|label| label.map(LabelId::new)).into(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let labels = |key| match key {
            GroupBy::Tag => Some(labels(&["b", "a"], [Some(0), Some(1), Some(0), None])),
            GroupBy::Object => Some(labels(&["/lib/x"], [Some(0), None, Some(0), Some(0)])),
            _ => None,
        };
        let table = of_stacks(&profile, &vec![GroupBy::Tag, GroupBy::Comm, GroupBy::Object].into(), labels);
        let rows: Vec<_> =
            table.rows.iter().map(|row| (row.names.join(" "), row.totals.counters.alloc.bytes.0)).collect();
        let expected = [("[no tag] server /lib/x", 8), ("a server [object not known]", 2), ("b server /lib/x", 5)];
        assert_eq!(rows, expected.map(|(names, bytes)| (names.to_owned(), bytes)));
        assert_eq!(table.total.counters.alloc, Amount { bytes: Bytes(15), count: 4 });
    }
}
