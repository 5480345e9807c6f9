//! Waits for memory, added up.

use std::collections::BTreeMap;

use crate::model::{ProcessProfile, Profile, StallBook, Work};

/// Those of all processes, by what was done meanwhile.
pub(super) fn by_work(profile: &Profile) -> BTreeMap<Work, StallBook> {
    sum(profile.processes.iter().flat_map(|process| &process.stalls))
}

/// Those of the processes of each control group, all kinds together; `None`: of those whose group is not known.
pub(super) fn by_cgroup(profile: &Profile) -> BTreeMap<Option<&str>, StallBook> {
    let mut groups: BTreeMap<Option<&str>, StallBook> = BTreeMap::new();
    for process in profile.processes.iter().filter(|process| !process.stalls.is_empty()) {
        let path = process.cgroup.as_ref().map(|cgroup| cgroup.path.as_str());
        groups.entry(path).or_default().merge(&of(process));
    }
    groups
}

/// Those of a process, all kinds together.
pub(super) fn of(process: &ProcessProfile) -> StallBook {
    process.stalls.values().fold(StallBook::default(), |mut sum, book| {
        sum.merge(book);
        sum
    })
}

fn sum<'a>(books: impl Iterator<Item = (&'a Work, &'a StallBook)>) -> BTreeMap<Work, StallBook> {
    let mut sums: BTreeMap<Work, StallBook> = BTreeMap::new();
    for (work, book) in books {
        sums.entry(*work).or_default().merge(book);
    }
    sums
}
