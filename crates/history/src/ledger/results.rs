//! Results of a ledger: snapshots, deltas, accounts and images that have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    Delta, EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, Owner, Pid, Snapshot, Stacks, Tick, TouchedProcesses,
};

use super::Ledger;
use super::image::has_usage;
use super::process::Process;
use crate::account_changes::{AccountChanges, GroupMember, ImageAccounts};

impl Ledger {
    /// Adds hot and cold bytes to the snapshots of running processes.
    pub fn set_touches(&mut self, touches: Arc<TouchedProcesses>) {
        self.touches = Some(touches);
    }

    /// Returns a snapshot of `class` at `now`. Images without usage are left out.
    #[must_use]
    pub fn snapshot(&self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.images.ended.iter().filter_map(|image| Some((image.id, usage_of(image, class)?.clone())));
        Snapshot {
            images: self.running(class, now).chain(ended).collect(),
            stacks: self.stacks(),
            ends: self.ends(),
            owners: self.owners(),
            oom_kills: self.oom_kills.clone(),
            losses: self.images.budget.losses.clone(),
        }
    }

    /// Returns the last snapshot, which reuses the memory of the ledger.
    #[must_use]
    pub fn finish(mut self, class: EventClass, now: Tick) -> Snapshot {
        let (ends, owners) = (self.ends(), self.owners());
        let mut images: BTreeMap<_, _> = self.running(class, now).collect();
        let mut stacks = Stacks::default();
        for process in self.images.processes.iter_mut() {
            stacks.merge(std::mem::take(&mut process.stacks));
        }
        for EndedImage { id, usage, stacks: ended, .. } in std::mem::take(&mut self.images.ended) {
            stacks.merge(ended);
            images.extend(usage.into_iter().find(|(of, _)| *of == class).map(|(_, usage)| (id, usage)));
        }
        let oom_kills = std::mem::take(&mut self.oom_kills);
        Snapshot { images, stacks, ends, owners, oom_kills, losses: self.images.budget.losses }
    }

    /// Tracks changes for deltas. The ledger must be new.
    #[must_use]
    pub fn with_deltas(mut self) -> Self {
        self.images.budget.tracks_changes = true;
        self.images.deltas.start(&self.images.settings);
        self
    }

    /// Leaves the stacks of images that start from now on out of deltas. Instead, deltas have the sum of the stacks
    /// of each image. Once the image has existed for `age`, a delta replaces the sum by the stacks. If the image
    /// ends earlier, [`EndedImage::unsent`] says so. The settings must have no minimum age, no peaks and no parts.
    pub fn defer_stacks(&mut self, age: Duration) {
        self.images.deltas.defer_stacks(age);
    }

    /// Adds all deferred stacks of running images to the next delta.
    pub(crate) fn send_stacks(&mut self) {
        self.images.deltas.send_stacks(&mut self.images.processes);
    }

    /// Returns the changes since the previous delta. `until`: end of the delta. Takes time in proportion to the
    /// number of changes.
    pub fn take_delta(&mut self, until: Tick) -> Delta {
        // Without a last process, the next event marks its process as changed.
        self.images.last = usize::MAX;
        self.images.deltas.take(until, &mut self.images.processes, &mut self.images.budget)
    }

    /// Starts an epoch at a mark. Blocks that are allocated later belong to this epoch. A delta must have ended at
    /// the mark.
    pub(crate) fn begin_epoch(&mut self, mark: Tick) {
        self.images.budget.epochs.begin(mark);
    }

    /// Removes and returns the images that have ended: one for each end that this ledger has received, in order.
    /// Later snapshots do not contain these images.
    pub fn take_ended(&mut self) -> Vec<EndedImage> {
        self.images.take_ended()
    }

    /// Ends an image if this ledger has not received its exit or exec. Does nothing if the image has ended, even if the
    /// ledger keeps it because other processes share its memory.
    pub(crate) fn end_if_running(&mut self, id: ImageId, end: ImageEnd, at: Tick) {
        if self.images.processes.current(id.pid) == id {
            self.images.end_image(id.pid, end, at);
        }
    }

    /// Returns the id of the image that `pid` runs, by the ends that this ledger has received.
    pub(crate) fn current(&self, pid: Pid) -> ImageId {
        self.images.processes.current(pid)
    }

    /// Removes and returns the images that have refused a reading of their profile before the first one was applied. A
    /// reading of the whole profile, with the number 0, makes them complete.
    pub(crate) fn take_refused(&mut self) -> Vec<ImageId> {
        std::mem::take(&mut self.images.refused)
    }

    /// Returns true if the image has ended, and other processes share its memory. [`Self::take_ended`] returns the
    /// image after the last of these processes has ended or called exec.
    pub(crate) fn keeps(&self, id: ImageId) -> bool {
        self.images.processes.keeps(id)
    }

    /// Returns true if images with accounts have ended since [`Self::take_accounts`].
    #[must_use]
    pub(crate) fn has_ended_accounts(&self) -> bool {
        self.images.budget.accounts.as_ref().is_some_and(|accounts| accounts.has_ended())
    }

    /// Merges accounts of ended threads. Then returns the accounts that have changed since the last call, and
    /// starts new water marks; `None` without accounts.
    pub fn take_accounts(&mut self) -> Option<AccountChanges> {
        let live = self.images.budget.live;
        let (mut images, marks, peak_at) = self.images.budget.accounts.as_mut()?.take(live);
        for process in self.images.processes.iter_mut() {
            let id = process.id;
            let Some(image) = process.image.as_mut() else { continue };
            let (ended_threads, merged) = image.heap.merge_ended_threads(&mut self.images.budget);
            let accounts = image.heap.accounts.take_changed();
            if !accounts.is_empty() || !ended_threads.is_empty() {
                images.push(ImageAccounts { id, ended: None, ended_threads, merged, accounts });
            }
        }
        let groups = self.images.budget.accounts.as_mut()?.groups.take_changed();
        let joined = self.join_groups();
        Some(AccountChanges {
            images,
            groups,
            joined,
            live,
            marks,
            peak_at,
            losses: self.images.budget.losses.clone(),
            interval_end: None,
        })
    }

    /// Makes accounts members of groups after the next [`Self::take_accounts`], which returns the new members. The
    /// ledger keeps exact water marks of the sum of a group's members, and no water marks of the single members.
    /// Does nothing without accounts.
    pub fn group_accounts(&mut self, members: Vec<GroupMember>) {
        if let Some(accounts) = &mut self.images.budget.accounts {
            accounts.groups.add(members);
        }
    }

    /// Makes the waiting accounts members of their groups. Returns the accounts that exist.
    fn join_groups(&mut self) -> Vec<GroupMember> {
        let Some(accounts) = &mut self.images.budget.accounts else { return Vec::new() };
        let mut joined = accounts.groups.take_waiting();
        joined.retain(|&GroupMember { image, account, group }| {
            let process = self.images.processes.image_mut(image);
            let Some(current) = process
                .and_then(|process| process.image.as_mut())
                .and_then(|image| image.heap.accounts.join(account, group))
            else {
                return false;
            };
            accounts.groups.join(group, current);
            true
        });
        joined
    }

    /// Returns the stacks of all images. Other shards may have the events of some of these stacks.
    fn stacks(&self) -> Stacks {
        let mut all = Stacks::default();
        let running = self.images.processes.iter().map(|process| &process.stacks);
        for stacks in running.chain(self.images.ended.iter().map(|image| &image.stacks)) {
            all.merge(stacks.clone());
        }
        all
    }

    /// Returns the ends of the images of [`Self::reported`].
    fn ends(&self) -> BTreeMap<ImageId, (ImageEnd, Tick)> {
        self.reported().map(|image| (image.id, (image.end, image.at))).collect()
    }

    /// Returns the owners of the images in [`Self::ends`], if known.
    fn owners(&self) -> BTreeMap<ImageId, Owner> {
        self.reported().filter_map(|image| Some((image.id, image.owner?))).collect()
    }

    /// Iterates over the ended images that were not taken and that reports show.
    fn reported(&self) -> impl Iterator<Item = &EndedImage> {
        self.images.ended.iter().filter(|image| image.is_reported())
    }

    /// Iterates over the running images with usage of `class`.
    fn running(&self, class: EventClass, now: Tick) -> impl Iterator<Item = (ImageId, ImageUsage)> + '_ {
        let touches = self.touches.as_deref();
        let usage = move |process: &Process| {
            let image = process.image.as_ref();
            match class {
                EventClass::Heap => {
                    let (heap, mut usage) = (&image?.heap, image?.heap.usage(None, now, &self.images.settings));
                    // The pid of a kept image can belong to another process.
                    let touches = touches.filter(|_| process.kept.is_none());
                    if let Some(pages) = touches.and_then(|touches| touches.0.get(&process.id.pid)) {
                        heap.add_touches(&mut usage, pages);
                    }
                    Some(usage)
                }
                EventClass::Map => Some(image?.mappings.as_ref()?.usage(None)),
                EventClass::Fault => process.page_usage(),
                EventClass::Reclaim => Some(image?.stalls.as_ref()?.usage(None)),
            }
        };
        self.images.processes.iter().filter_map(move |process| {
            let (own, main) = (usage(process), process.sharer.as_ref().and_then(|sharer| sharer.main_in(class)));
            if own.is_none() && main.is_none() {
                return None;
            }
            let has_forgotten = process.has_forgotten;
            let usage = ImageUsage { has_forgotten, shares_memory_of: main, ..own.unwrap_or_default() };
            has_usage(&usage).then_some((process.id, usage))
        })
    }
}

/// Returns the usage of `class` by an ended image.
fn usage_of(image: &EndedImage, class: EventClass) -> Option<&ImageUsage> {
    image.usage.iter().find(|(of, _)| *of == class).map(|(_, usage)| usage)
}
