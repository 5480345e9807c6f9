//! Accounts of groups: sums of counters, and bounds of water marks. Pure.
//!
//! For each interval, a ledger has exact water marks of each account of an image, and of the sum of the members of each
//! group. A group can have further accounts that are not members. The order of changes of different accounts is not
//! known, so only bounds are known for the water marks of a group with such accounts. The high-water mark is at most
//! the sum of the highest amounts of the accounts in the interval, and at most the high-water mark of the sum of all
//! groups. It is at least the highest amount of one account plus the lowest amounts of the others. The members count as
//! one account in these sums. The upper and lower bounds are equal for a group of one account, for a group of members
//! only, and for the sum of all groups.
//!
//! Until its image is identified, an account keeps water marks of its own. Then these marks are merged into the marks
//! of the group.

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

use memtrace_model::{AccountCounters, AccountTotals, Amount, ImageEnd, ImageId, Part};
use rustc_hash::{FxHashMap, FxHashSet};

use account::Account;
use group::Group;
pub use key::{AccountKey, KeyPart};
pub use names::add_up;
use recorded::RecordedGroups;
pub use recorded::RecordedInterval;
use running::RunningAccounts;
use step::Step;

use crate::account_changes::{AccountChanges, AccountGroupId, GroupMember, ImageAccounts};

/// Groups of accounts, with their totals and water marks.
#[derive(Debug)]
pub struct AccountGroups {
    /// Maximum number of groups with final keys.
    max: usize,
    groups: Vec<Group>,
    /// Free indices of `groups`.
    vacant: Vec<usize>,
    by_key: FxHashMap<AccountKey, usize>,
    /// Number of groups with final keys.
    named: usize,
    /// Number of accounts and ended processes that were added to the group [`AccountKey::other`].
    others: u64,
    /// Keys of the groups that belong to a single process or thread, by process image.
    of_images: FxHashMap<ImageId, Vec<AccountKey>>,
    /// Accounts of running images.
    running: FxHashMap<ImageId, RunningAccounts>,
    /// Accounts of ended images that are not identified yet. Each account is a group of its own.
    unidentified: FxHashMap<ImageId, Vec<(Part, Group)>>,
    total: Group,
    /// Accounts that have joined groups of several images since the last [`Self::take_members`].
    members: Vec<GroupMember>,
    /// `None` if the accounts are not recorded.
    recorded: Option<RecordedGroups>,
}

impl AccountGroups {
    /// Creates an empty collection. `max`: maximum number of groups with final keys. Further accounts are added to
    /// [`AccountKey::other`]. The maximum is a tenth higher for groups of ended processes, because [`Self::complete`]
    /// renames these groups.
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

    /// Adds the changes of an interval. `identify` returns the key of an account's group; `None` if the image is
    /// not known yet.
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

    /// Removes and returns the accounts that have joined groups of several images since the last call. The ledger
    /// keeps exact water marks of the sum of these members. A group of one thread or process needs no members.
    pub fn take_members(&mut self) -> Vec<GroupMember> {
        std::mem::take(&mut self.members)
    }

    /// Starts new water marks at the current live amounts.
    pub fn reset_marks(&mut self) {
        self.groups.iter_mut().chain([&mut self.total]).for_each(Group::reset_marks);
        self.unidentified.values_mut().flatten().for_each(|(_, group)| group.reset_marks());
        self.running.values_mut().flat_map(RunningAccounts::accounts_mut).for_each(Account::reset_marks);
    }

    /// Identifies the accounts of an ended image. The image must have no later changes. `identify` returns the key of
    /// an account's group. `rename` returns the final key of a group of this process or of one of its threads.
    /// `is_unique`: true if groups with equal final keys belong to images of one process. These images run one after
    /// another.
    pub fn complete(
        &mut self,
        id: ImageId,
        end: ImageEnd,
        mut identify: impl FnMut(Part) -> AccountKey,
        rename: impl Fn(&AccountKey) -> AccountKey,
        is_unique: bool,
    ) {
        // The ledger reports a limited number of ended images, so the changes may lack the end of this image.
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

    /// Adds all unidentified accounts of ended images to the group [`AccountKey::other`]. `columns`: number of
    /// columns of its key.
    pub fn give_up_unidentified(&mut self, columns: usize) {
        for (_, account) in std::mem::take(&mut self.unidentified).into_values().flatten() {
            let group = self.other_group(columns);
            self.add_late(group, &account);
        }
    }

    /// At the end of a run, identifies all accounts that are not identified yet.
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

    /// Returns the totals of the groups by name, in no particular order. Groups with equal names are added up.
    /// `is_unique`: true if groups with equal names belong to images of one process. These images run one after
    /// another.
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

    /// Returns the number of accounts and ended processes that were added to the group [`AccountKey::other`].
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
                // There are at most as many groups as accounts, and the maximum number of accounts is a u32.
                let number = group as u32;
                if is_of_several && ended.is_none() {
                    self.members.push(GroupMember { image: id, account: part, group: AccountGroupId(number) });
                }
                // The steps of this interval are added later, so `late` and the group both have their state at the
                // start of the interval.
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

    /// Removes the accounts of ended threads that the ledger has merged into another account of the image, together
    /// with the groups of these threads. The group of a thread has no other accounts.
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

    /// Ends the accounts of an image, if the image runs.
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

    /// Adds the changes of an interval. `most`: high-water mark of the sum of all groups in the interval.
    fn add_steps(&mut self, steps: FxHashMap<usize, Step>, most: Amount) {
        for (group, step) in steps {
            if let Some(group) = self.changing(group) {
                group.apply(&step, most);
            }
        }
    }

    /// Adds a newly identified account to its group.
    fn add_late(&mut self, group: usize, account: &Group) {
        let most = self.total.high();
        if let Some(group) = self.changing(group) {
            group.merge(account, most);
        }
    }

    /// Returns the index of the group with this key. Adds the group if it is new; if there are too many groups,
    /// returns the index of [`AccountKey::other`].
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

    /// Returns the index of the group [`AccountKey::other`], and counts an addition to it.
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

    /// Returns a group that is about to change, and notes the change for the recording.
    fn changing(&mut self, index: usize) -> Option<&mut Group> {
        let group = self.groups.get_mut(index)?;
        if let Some(recorded) = &mut self.recorded {
            recorded.begin_change(index, group);
        }
        Some(group)
    }

    /// Removes and returns a group. A later group can get its index.
    fn remove_group(&mut self, index: usize) -> Group {
        self.vacant.push(index);
        let group = std::mem::take(&mut self.groups[index]);
        self.recorded.iter_mut().for_each(|recorded| recorded.remove(&group));
        group
    }

    /// Gives the group of a process or thread its final key. If another group has this key, merges the two groups.
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
                // The group can be removed: only accounts of the ended image have referred to its index.
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
