//! Sums of accounts of several images, with water marks since the last take (`Ledger::take_accounts`).

use memtrace_model::{Amount, Tick};

use crate::account_changes::{AccountGroupId, GroupMarks, GroupMember, WaterMarks};

/// Groups of accounts.
#[derive(Debug, Default)]
pub(super) struct AccountGroups {
    /// Groups by [`AccountGroupId`].
    groups: Vec<Group>,
    /// Groups that have changed since the last take.
    changed: Vec<AccountGroupId>,
    /// Accounts that become members after the next take.
    waiting: Vec<GroupMember>,
}

/// Sum of the members of a group.
#[derive(Clone, Debug, Default)]
struct Group {
    live: Amount,
    is_changed: bool,
    /// Live amount of the members at the last take.
    before: Amount,
    marks: WaterMarks,
    peak_at: Tick,
}

impl AccountGroups {
    /// Adds accounts to their groups after the next take, because a group must have the same members during a whole
    /// interval.
    pub(super) fn add(&mut self, members: Vec<GroupMember>) {
        self.waiting.extend(members);
    }

    /// Removes and returns the accounts that wait to become members.
    pub(super) fn take_waiting(&mut self) -> Vec<GroupMember> {
        std::mem::take(&mut self.waiting)
    }

    /// Adds the live amount of a new member to its group.
    pub(super) fn join(&mut self, id: AccountGroupId, current: Amount) {
        let index = id.0 as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, Group::default);
        }
        self.groups[index].live += current;
    }

    /// Adds a block.
    #[inline]
    pub(super) fn raise(&mut self, id: AccountGroupId, amount: Amount, tick: Tick) {
        let Some(group) = self.changing(id, tick) else { return };
        group.live += amount;
        if group.marks.raise(group.live) {
            group.peak_at = tick;
        }
    }

    /// Removes blocks.
    #[inline]
    pub(super) fn lower(&mut self, id: AccountGroupId, amount: Amount, tick: Tick) {
        let Some(group) = self.changing(id, tick) else { return };
        group.live -= amount;
        group.marks.lower(group.live);
    }

    /// Adds and removes blocks. Only the sum counts for the water marks.
    pub(super) fn change(&mut self, id: AccountGroupId, alloc: Amount, free: Amount, tick: Tick) {
        let Some(group) = self.changing(id, tick) else { return };
        group.live += alloc;
        group.live -= free;
        group.marks.lower(group.live);
        if group.marks.raise(group.live) {
            group.peak_at = tick;
        }
    }

    /// Returns the low-water mark of a group.
    pub(super) fn low_mark(&self, id: AccountGroupId) -> Amount {
        let group = self.groups.get(id.0 as usize);
        group.map_or_else(Amount::default, |group| if group.is_changed { group.marks.low } else { group.live })
    }

    /// Corrects the low-water mark, as [`WaterMarks::restore_low`] does.
    pub(super) fn restore_low_mark(&mut self, id: AccountGroupId, before: Amount, block: Amount) {
        if let Some(group) = self.groups.get_mut(id.0 as usize) {
            group.marks.restore_low(before, block);
        }
    }

    /// Returns the marks of the groups that have changed, and starts new marks.
    pub(super) fn take_changed(&mut self) -> Vec<GroupMarks> {
        let groups = &mut self.groups;
        let take = |id: AccountGroupId| {
            let group = groups.get_mut(id.0 as usize)?;
            group.is_changed = false;
            let &mut Group { before, marks, peak_at, .. } = group;
            Some(GroupMarks { group: id, before, marks, peak_at })
        };
        self.changed.drain(..).filter_map(take).collect()
    }

    /// Returns a group that is about to change.
    #[inline]
    fn changing(&mut self, id: AccountGroupId, tick: Tick) -> Option<&mut Group> {
        let group = self.groups.get_mut(id.0 as usize)?;
        if !group.is_changed {
            group.is_changed = true;
            group.before = group.live;
            group.marks = WaterMarks::at(group.live);
            group.peak_at = tick;
            self.changed.push(id);
        }
        Some(group)
    }
}
