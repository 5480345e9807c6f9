//! The account of a running image, or of a part of it.

use memtrace_model::{AccountCounters, Amount, ImageEnd, Tick};
use rustc_hash::FxHashMap;

use super::group::Group;
use super::step::{Change, Step};
use crate::account_changes::{AccountState, WaterMarks};

/// Account of a running image, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) counters: AccountCounters,
    owner: Owner,
}

/// Owner of the water marks of an account.
#[derive(Debug)]
enum Owner {
    /// The group with this index.
    Group {
        index: u32,
        /// True if the account is a member: the ledger's water marks of the group include it.
        is_member: bool,
        /// True if the account has changed in the interval of the image's end.
        is_changed: bool,
    },
    /// The account itself, since the image is not identified. The marks cover the time since the start of the
    /// trace, or since the last reset.
    Account(Option<Box<OwnMarks>>),
}

/// Water marks of an account, and the time of its highest amount.
type OwnMarks = (WaterMarks, Option<Tick>);

impl Default for Owner {
    fn default() -> Self {
        Self::Account(None)
    }
}

impl Account {
    /// Returns the index of the group; `None` if the image is not identified.
    pub(super) const fn group(&self) -> Option<usize> {
        match self.owner {
            Owner::Group { index, .. } => Some(index as usize),
            Owner::Account(_) => None,
        }
    }

    /// Sets the index of the group.
    pub(super) fn identify(&mut self, index: u32) {
        self.owner = Owner::Group { index, is_member: false, is_changed: false };
    }

    /// Makes the account a member: from now on, the ledger's water marks of the group include it.
    pub(super) const fn join(&mut self) {
        if let Owner::Group { is_member, .. } = &mut self.owner {
            *is_member = true;
        }
    }

    /// Notes that the account has changed in the interval of the image's end.
    pub(super) const fn change_at_end(&mut self) {
        if let Owner::Group { is_changed, .. } = &mut self.owner {
            *is_changed = true;
        }
    }

    /// Replaces the counters with the counters of `state`. If the account has a group, adds the change to the
    /// group's step. Otherwise, adds the marks of `state` to the account's own marks.
    pub(super) fn apply(&mut self, state: &AccountState, steps: &mut FxHashMap<usize, Step>) {
        let before = std::mem::replace(&mut self.counters, state.counters);
        match &mut self.owner {
            Owner::Group { index, is_member: true, .. } => {
                steps.entry(*index as usize).or_default().count(&before, &state.counters);
            }
            Owner::Group { index, .. } => steps.entry(*index as usize).or_default().add(&Change {
                before,
                after: state.counters,
                marks: state.marks,
                peak_at: state.peak_at,
                ended: None,
            }),
            Owner::Account(own) => {
                let (marks, peak_at) = own.get_or_insert_default().as_mut();
                marks.lower(state.marks.low);
                if marks.raise(state.marks.high) {
                    *peak_at = Some(state.peak_at);
                }
            }
        }
    }

    /// Adds the end of the image to the step of the group. If the image is not identified, returns a group with
    /// this account only.
    pub(super) fn end(self, end: ImageEnd, steps: &mut FxHashMap<usize, Step>) -> Option<Group> {
        let live = self.counters.current();
        match &self.owner {
            Owner::Group { index, is_member, is_changed } => {
                let step = steps.entry(*index as usize).or_default();
                if *is_member || *is_changed {
                    step.end(end, live);
                } else {
                    let marks = WaterMarks { low: Amount::default(), high: live };
                    let (before, after) = (self.counters, self.counters);
                    step.add(&Change { before, after, marks, peak_at: Tick::default(), ended: Some((end, live)) });
                }
                None
            }
            Owner::Account(own) => {
                let (mut marks, peak_at) = own.as_deref().copied().unwrap_or_default();
                marks.lower(Amount::default());
                let mut group = Group::of_account(self.counters, Amount::default(), marks, peak_at);
                group.end(end, live);
                Some(group)
            }
        }
    }

    /// Starts new marks at the live amount, if the image is not identified.
    pub(super) fn reset_marks(&mut self) {
        if let Owner::Account(own) = &mut self.owner {
            *own = Some(Box::new((WaterMarks::at(self.counters.current()), None)));
        }
    }

    /// Returns a group with this account only; `None` if the image is identified.
    pub(super) fn as_group(&self) -> Option<Group> {
        match &self.owner {
            Owner::Group { .. } => None,
            Owner::Account(own) => {
                let (marks, peak_at) = own.as_deref().copied().unwrap_or_default();
                Some(Group::of_account(self.counters, self.counters.current(), marks, peak_at))
            }
        }
    }
}
