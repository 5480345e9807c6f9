//! Sums of groups with equal names.

use std::collections::hash_map::Entry;

use memtrace_model::{AccountTotals, Amount};
use rustc_hash::FxHashMap;

use super::group::Group;

/// Returns the totals by name, in no particular order. Totals with equal names are added up. `is_unique`: true if
/// totals with equal names belong to images of one process. These images run one after another. `most`: high-water mark
/// of the sum of all groups.
pub fn add_up(
    totals: impl Iterator<Item = (Vec<String>, AccountTotals)>,
    is_unique: bool,
    most: Amount,
) -> impl Iterator<Item = (Vec<String>, AccountTotals)> {
    let mut by_name: FxHashMap<Vec<String>, Group> = FxHashMap::default();
    for (name, totals) in totals {
        let group = Group::of_totals(totals);
        match by_name.entry(name) {
            Entry::Occupied(sum) if is_unique => sum.into_mut().merge_other_time(&group),
            Entry::Occupied(sum) => sum.into_mut().merge(&group, most),
            Entry::Vacant(entry) => {
                entry.insert(group);
            }
        }
    }
    by_name.into_iter().map(|(name, group)| (name, group.totals()))
}
