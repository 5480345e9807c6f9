//! Ends of images.

use super::Ledger;
use super::account_budget::AccountCounts;
use super::budget::Untaken;
use super::image::{Image, has_usage};
use super::process::Process;
use crate::model::{
    AccountState, EndedImage, EventClass, ImageAccounts, ImageEnd, ImageId, ImageRusage, ImageUsage, LossReason,
    Ordinals, Pid, Stacks, Tick, UnsentStacks,
};

impl Ledger {
    /// Removes and returns the images that have ended: one for each end that this ledger has received, in order. They are
    /// no longer part of snapshots.
    pub fn take_ended(&mut self) -> Vec<EndedImage> {
        let Untaken { totals, frames, nodes } = std::mem::take(&mut self.untaken);
        self.budget.totals.release(totals);
        self.budget.release_frames(frames, nodes);
        std::mem::take(&mut self.ended)
    }

    /// Ends an image if this ledger has not received its exit or exec. An image that has ended stays as it is.
    pub fn end_if_running(&mut self, id: ImageId, end: ImageEnd, at: Tick) {
        if self.processes.current(id.pid) == id {
            self.end_image(id.pid, end, at);
        }
    }

    /// Ends the image that `pid` runs.
    pub(super) fn end_image(&mut self, pid: Pid, end: ImageEnd, at: Tick) {
        if !Ordinals::is_valid(pid) {
            self.budget.losses.add(LossReason::BadRecord, 1);
            return;
        }
        let (id, process) = self.processes.end_image(pid);
        let mut ended = EndedImage {
            id,
            end,
            at,
            owner: None,
            usage: Vec::new(),
            stacks: Stacks::default(),
            unsent: UnsentStacks::None,
        };
        let mut untaken = self.untaken;
        let mut last_image = None;
        let mut accounts = (AccountCounts::default(), Vec::new());
        if let Some(Process { is_killed, mut rusage, owner, mut image, stacks, .. }) = process {
            if is_killed && end == ImageEnd::Exit {
                ended.end = ImageEnd::OomKill;
            }
            ended.owner = owner;
            let counts = rusage.end_image(ended.end);
            untaken.frames += (stacks.len() - stacks.merged()) as u32;
            untaken.nodes += stacks.calls().len();
            if let Some(image) = &mut image {
                image.heap.accounts.leave_groups(at, &mut self.budget);
                accounts = (image.heap.accounts.counts(), image.heap.accounts.take_changed());
            }
            if let Some(image) = &image {
                untaken.totals += image.limited_stacks();
                if image.has_forked {
                    self.leave_stacks(&stacks);
                }
                ended.usage = self.usage_at_end(image, ended.end, at, counts);
                if image.defers_stacks() && ended.heap().is_some() {
                    ended.unsent = UnsentStacks::All;
                }
            }
            ended.stacks = stacks;
            last_image = image;
            // The next image starts with the rusage at the exec.
            if rusage.begin.is_some()
                && let Some(next) = self.process_of(pid)
            {
                next.rusage = rusage;
            }
        }
        self.add_end(&ended, last_image);
        self.end_accounts(&ended, accounts);
        if self.has_room_for_image() {
            self.ended.push(ended);
            self.untaken = untaken;
        } else {
            let Untaken { totals, frames, nodes } = self.untaken;
            self.budget.totals.release(untaken.totals - totals);
            self.budget.release_frames(untaken.frames - frames, untaken.nodes - nodes);
            self.budget.losses.add(LossReason::ProcessesFull, 1);
        }
    }

    /// Adds the accounts of an image that ends: their numbers, and those with changes. The last threads keep their accounts.
    fn end_accounts(&mut self, ended: &EndedImage, (counts, accounts): (AccountCounts, Vec<AccountState>)) {
        if let Some(budget) = &mut self.budget.accounts
            && counts.own > 0
        {
            let (id, end) = (ended.id, Some(ended.end));
            let (ended_threads, merged) = Default::default();
            budget.add_ended(ImageAccounts { id, ended: end, ended_threads, merged, accounts }, counts);
        }
    }

    /// Returns the usage of an image that ends, and releases its budget.
    fn usage_at_end(
        &mut self,
        image: &Image,
        end: ImageEnd,
        at: Tick,
        counts: ImageRusage,
    ) -> Vec<(EventClass, ImageUsage)> {
        let mut all = Vec::new();
        self.budget.remove_live(image.heap.live());
        if let Some(pages) = &image.pages {
            self.budget.pages -= pages.count();
            all.push((EventClass::Fault, ImageUsage { counts, ..pages.usage(Some(end)) }));
        }
        if let Some(stalls) = &image.stalls {
            all.push((EventClass::Reclaim, stalls.usage(Some(end))));
        }
        if let Some(mappings) = &image.mappings {
            self.budget.mapped_ranges -= mappings.count();
            all.push((EventClass::Map, mappings.usage(Some(end))));
        }
        let usage = image.heap.usage(Some(end), at, &self.settings);
        if has_usage(&usage) {
            all.push((EventClass::Heap, usage));
        }
        all
    }
}
