//! Accounts of groups: sums of counters, and bounds of water marks. Pure.
//!
//! A ledger has exact water marks for each account of an image, between two takes, and for the sum of the members of each group. Those
//! of a group with other accounts lie within bounds, because the order of changes of different accounts is not known: between two
//! takes, the group has at most the sum of the highest amounts, and at least the highest amount of one account with the lowest
//! ones of the others. The members count as one account. No group has more than the sum of all. A group of one account or of
//! members only, and the sum of all, have equal bounds.
//!
//! An account has marks of its own until its image is identified. They are merged with those of the group then.

mod account;
mod group;
mod intervals;
mod key;
mod marks;
mod names;
mod recorded;
mod running;
mod step;
#[cfg(test)]
mod tests;

use memtrace_model::{
    AccountChanges, AccountCounters, AccountGroupId, AccountTotals, Amount, GroupMember, ImageAccounts, ImageEnd,
    ImageId, Part,
};
use rustc_hash::{FxHashMap, FxHashSet};

use account::Account;
use group::Group;
pub use key::{AccountKey, KeyPart};
pub use names::add_up;
use recorded::RecordedGroups;
pub use recorded::RecordedInterval;
use running::RunningAccounts;
use step::Step;

/// Accounts of groups.
#[derive(Debug)]
pub struct AccountGroups {
    /// Maximum number of groups with final keys.
    max: usize,
    groups: Vec<Group>,
    /// Indices without a group.
    vacant: Vec<usize>,
    by_key: FxHashMap<AccountKey, usize>,
    /// Number of groups with final keys.
    named: usize,
    /// Number of times that something was added to the group of all others.
    others: u64,
    /// Keys of processes, and of their threads.
    of_images: FxHashMap<ImageId, Vec<AccountKey>>,
    /// Accounts of the images that run.
    running: FxHashMap<ImageId, RunningAccounts>,
    /// Accounts of images that have ended and are not identified, as groups of one account.
    unidentified: FxHashMap<ImageId, Vec<(Part, Group)>>,
    total: Group,
    /// New members of groups of several images.
    members: Vec<GroupMember>,
    /// `None` if the accounts are not recorded.
    recorded: Option<RecordedGroups>,
}

impl AccountGroups {
    /// Creates groups without accounts. Beyond `max` groups with final keys, accounts are added to [`AccountKey::other`];
    /// ended processes, of which `complete` can shorten the names, beyond a tenth more.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            groups: Vec::new(),
            vacant: Vec::new(),
            by_key: FxHashMap::default(),
            named: 0,
            others: 0,
            of_images: FxHashMap::default(),
            running: FxHashMap::default(),
            unidentified: FxHashMap::default(),
            total: Group::default(),
            members: Vec::new(),
            recorded: None,
        }
    }

    /// Adds the changes of an interval. `identify` returns the group of an account; `None` if the image is not known yet.
    pub fn apply(&mut self, changes: AccountChanges, mut identify: impl FnMut(ImageId, Part) -> Option<AccountKey>) {
        let AccountChanges { images, groups, joined, live, marks, peak_at, .. } = changes;
        let mut steps: FxHashMap<usize, Step> = FxHashMap::default();
        for image in images {
            self.apply_image(image, &mut identify, &mut steps);
        }
        for marks in groups {
            steps.entry(marks.group.0 as usize).or_default().add_members(&marks);
        }
        self.add_steps(steps, marks.high);
        self.total.apply_exact(live, marks, peak_at);
        for GroupMember { image, account, .. } in joined {
            if let Some(account) = self.running.get_mut(&image).and_then(|accounts| accounts.get_mut(account)) {
                account.join();
            }
        }
    }

    /// Returns the accounts that are new members of groups since the last call, for exact marks of the groups. Accounts of
    /// one thread or process are groups of their own.
    pub fn take_members(&mut self) -> Vec<GroupMember> {
        std::mem::take(&mut self.members)
    }

    /// Starts new water marks at the end of the last changes.
    pub fn reset_marks(&mut self) {
        self.groups.iter_mut().chain([&mut self.total]).for_each(Group::reset_marks);
        self.unidentified.values_mut().flatten().for_each(|(_, group)| group.reset_marks());
        self.running.values_mut().flat_map(RunningAccounts::accounts_mut).for_each(Account::reset_marks);
    }

    /// Identifies the accounts of an image that has ended, and has no later changes. `identify` returns the group of an
    /// account, and `rename` the final key of a group of this process, or of its threads. If `is_unique` is true, equal
    /// final keys are those of the same process, of which the images run one after another.
    pub fn complete(
        &mut self,
        id: ImageId,
        end: ImageEnd,
        mut identify: impl FnMut(Part) -> AccountKey,
        rename: impl Fn(&AccountKey) -> AccountKey,
        is_unique: bool,
    ) {
        // The ledger can lack the memory to report an end.
        let mut steps = FxHashMap::default();
        self.end_image(id, end, &mut steps);
        self.add_steps(steps, self.total.high());
        for (part, account) in self.unidentified.remove(&id).into_iter().flatten() {
            let group = self.group_of(identify(part));
            self.add_late(group, &account);
        }
        for key in self.of_images.remove(&id).unwrap_or_default() {
            let name = rename(&key);
            self.rename(&key, name, is_unique);
        }
    }

    /// Adds all accounts of ended images that are not identified to the group of all others, of a table with `columns` keys.
    pub fn give_up_unidentified(&mut self, columns: usize) {
        for (_, account) in std::mem::take(&mut self.unidentified).into_values().flatten() {
            let group = self.other_group(columns);
            self.add_late(group, &account);
        }
    }

    /// Identifies all accounts that are not identified, at the end of a run.
    pub fn finish(&mut self, mut identify: impl FnMut(ImageId, Part) -> AccountKey) {
        let ended = std::mem::take(&mut self.unidentified).into_iter();
        let mut late: Vec<_> = ended
            .flat_map(|(id, accounts)| accounts.into_iter().map(move |(part, account)| (id, part, account)))
            .collect();
        for (id, accounts) in &self.running {
            late.extend(accounts.iter().filter_map(|(part, account)| Some((*id, part, account.as_group()?))));
        }
        for (id, part, account) in late {
            let group = self.group_of(identify(id, part));
            self.add_late(group, &account);
        }
    }

    /// Returns the totals of the groups by name, in no particular order. Groups with equal names are added up. If `is_unique` is
    /// true, they are of images of the same process, which run one after another.
    pub fn by_name(
        &self,
        name: impl Fn(&AccountKey) -> Vec<String>,
        is_unique: bool,
    ) -> Vec<(Vec<String>, AccountTotals)> {
        let totals = self.by_key.iter().filter_map(|(key, &group)| Some((name(key), self.groups.get(group)?.totals())));
        add_up(totals, is_unique, self.total.high()).collect()
    }

    /// Returns the totals of each group, in no particular order.
    #[cfg(test)]
    fn all(&self) -> impl Iterator<Item = (&AccountKey, AccountTotals)> {
        self.by_key.iter().filter_map(|(key, &group)| Some((key, self.groups.get(group)?.totals())))
    }

    /// Returns the totals of all groups.
    #[must_use]
    pub fn total(&self) -> AccountTotals {
        self.total.totals()
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn number_of_groups(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of ended images that are not identified.
    #[must_use]
    pub fn number_of_unidentified(&self) -> usize {
        self.unidentified.len()
    }

    /// Returns the number of accounts, and of ended processes, that were added to the group of all others.
    #[must_use]
    pub const fn number_of_others(&self) -> u64 {
        self.others
    }

    fn apply_image(
        &mut self,
        image: ImageAccounts,
        identify: &mut impl FnMut(ImageId, Part) -> Option<AccountKey>,
        steps: &mut FxHashMap<usize, Step>,
    ) {
        let ImageAccounts { id, ended, merged, accounts, .. } = image;
        self.remove_merged(id, &merged);
        let mut running = self.running.remove(&id).unwrap_or_default();
        for mut state in accounts {
            let part = state.account;
            if ended.is_some() {
                state.marks.low = Amount::default();
            }
            let account = running.get_or_add(part);
            self.total.count(&account.counters, &state.counters);
            if let Some(late) = account.as_group()
                && let Some(key) = identify(id, part)
            {
                let is_of_several = key.image().is_none();
                let group = self.group_of(key);
                // The number of accounts limits that of groups.
                let number = group as u32;
                if is_of_several && ended.is_none() {
                    self.members.push(GroupMember { image: id, account: part, group: AccountGroupId(number) });
                }
                // The steps of this interval are added later, so the group is at the start of the interval too.
                self.add_late(group, &late);
                account.identify(number);
            }
            account.apply(&state, steps);
            if ended.is_some() {
                account.change_at_end();
            }
        }
        self.running.insert(id, running);
        if let Some(end) = ended {
            self.end_image(id, end, steps);
        }
    }

    /// Removes accounts of ended threads whose counters another account of the image includes. A group of a thread has no other
    /// accounts.
    fn remove_merged(&mut self, id: ImageId, merged: &[Part]) {
        let Some(accounts) = self.running.get_mut(&id) else { return };
        let mut removed = FxHashSet::default();
        for account in merged.iter().filter_map(|part| accounts.remove(*part)) {
            self.total.count(&account.counters, &AccountCounters::default());
            removed.extend(account.group());
        }
        if let Some(keys) = self.of_images.get_mut(&id) {
            let by_key = &mut self.by_key;
            keys.retain(|key| {
                let is_kept = by_key.get(key).is_none_or(|group| !removed.contains(group));
                if !is_kept {
                    by_key.remove(key);
                }
                is_kept
            });
        }
        for group in removed {
            self.remove_group(group);
        }
    }

    /// Ends the accounts of an image, if it runs.
    fn end_image(&mut self, id: ImageId, end: ImageEnd, steps: &mut FxHashMap<usize, Step>) {
        let mut unidentified = Vec::new();
        for (part, account) in self.running.remove(&id).into_iter().flat_map(RunningAccounts::into_accounts) {
            self.total.end(end, account.counters.current());
            unidentified.extend(account.end(end, steps).map(|group| (part, group)));
        }
        if !unidentified.is_empty() {
            self.unidentified.insert(id, unidentified);
        }
    }

    /// Adds the changes of an interval, in which all groups together had at most `most`.
    fn add_steps(&mut self, steps: FxHashMap<usize, Step>, most: Amount) {
        for (group, step) in steps {
            if let Some(group) = self.changing(group) {
                group.apply(&step, most);
            }
        }
    }

    /// Adds an account that was not identified until now to its group.
    fn add_late(&mut self, group: usize, account: &Group) {
        let most = self.total.high();
        if let Some(group) = self.changing(group) {
            group.merge(account, most);
        }
    }

    /// Returns the group with this key, which is added if needed.
    fn group_of(&mut self, key: AccountKey) -> usize {
        if let Some(&group) = self.by_key.get(&key) {
            return group;
        }
        match key.image() {
            Some(image) => self.of_images.entry(image).or_default().push(key.clone()),
            None if self.named >= self.max => return self.other_group(key.0.len()),
            None => self.named += 1,
        }
        self.add_group(key)
    }

    /// Returns the group of all others, which is added if needed, and counts the addition.
    fn other_group(&mut self, columns: usize) -> usize {
        self.others += 1;
        let other = AccountKey::other(columns);
        if let Some(&group) = self.by_key.get(&other) { group } else { self.add_group(other) }
    }

    fn add_group(&mut self, key: AccountKey) -> usize {
        let group = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        });
        self.by_key.insert(key, group);
        group
    }

    /// Returns a group that is about to change.
    fn changing(&mut self, index: usize) -> Option<&mut Group> {
        let group = self.groups.get_mut(index)?;
        if let Some(recorded) = &mut self.recorded {
            recorded.begin_change(index, group);
        }
        Some(group)
    }

    /// Removes and returns a group. Its index can be that of another one then.
    fn remove_group(&mut self, index: usize) -> Group {
        self.vacant.push(index);
        let group = std::mem::take(&mut self.groups[index]);
        self.recorded.iter_mut().for_each(|recorded| recorded.remove(&group));
        group
    }

    /// Gives a group of an image its final key.
    fn rename(&mut self, key: &AccountKey, mut name: AccountKey, mut is_unique: bool) {
        let Some(group) = self.by_key.remove(key) else { return };
        if !self.by_key.contains_key(&name) {
            if self.named < self.max + self.max / 10 {
                self.named += 1;
            } else {
                self.others += 1;
                (name, is_unique) = (AccountKey::other(name.0.len()), false);
            }
        }
        match self.by_key.get(&name) {
            Some(&into) => {
                // Only accounts of the image, which has ended, refer to the group.
                let merged = self.remove_group(group);
                let most = self.total.high();
                match self.changing(into) {
                    Some(into) if is_unique => into.merge_other_time(&merged),
                    Some(into) => into.merge(&merged, most),
                    None => {}
                }
            }
            None => {
                self.recorded.iter_mut().for_each(|recorded| recorded.rename(group));
                self.by_key.insert(name, group);
            }
        }
    }
}
