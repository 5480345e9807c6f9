//! Images of a ledger, running and ended, within its limits.

use memtrace_model::{
    EndedImage, EventClass, ImageEnd, ImageId, ImageRusage, LossReason, Pid, Rusage, Stack, StackEnd, StackId, Stacks,
    Tick, Tid, UnsentStacks,
};

use super::account_budget::AccountCounts;
use super::budget::{Budget, Settings, Untaken};
use super::deltas::Deltas;
use super::demotions::Demotions;
use super::image::Image;
use super::merge_idle_stacks;
use super::own_profile::Reading;
use super::process::Process;
use super::processes::Processes;
use super::rusage::RusageBounds;
use super::sharer::Sharer;
use super::thinning::Thinning;
use crate::account_changes::{AccountState, ImageAccounts};
use crate::ordinals::Ordinals;

/// Running images, and ended images that were not taken.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) settings: Settings,
    pub(super) processes: Processes,
    /// Slot of the process of the latest event. The next event usually has the same process. The slot never belongs to
    /// a process that shares the memory of another process.
    pub(super) last: usize,
    pub(super) ended: Vec<EndedImage>,
    /// Amounts of the budget that `ended` uses.
    untaken: Untaken,
    pub(super) budget: Budget,
    pub(super) deltas: Deltas,
    pub(super) demotions: Demotions,
    /// Images that have no reading of their profile yet, and have refused a reading because an earlier reading was lost.
    pub(super) refused: Vec<ImageId>,
}

impl Images {
    /// Returns the empty collection of a new ledger. `batch`: number of events that are applied together.
    pub(super) fn new(settings: Settings, batch: u64) -> Self {
        Self {
            settings,
            processes: Processes::default(),
            last: 0,
            ended: Vec::new(),
            untaken: Untaken::default(),
            budget: Budget::new(&settings),
            deltas: Deltas::default(),
            demotions: Demotions::new(settings.blocks, settings.processes, batch),
            refused: Vec::new(),
        }
    }

    /// Returns the pid of the process that has the memory of `pid`. The returned pid selects the sampled pages.
    pub(super) fn memory_pid(&self, pid: Pid) -> Pid {
        let slot = self.processes.find_memory(pid);
        slot.and_then(|slot| self.processes.slot(slot)).map_or(pid, |process| process.id.pid)
    }

    /// Returns the image with the memory of `pid`, if there is one.
    pub(super) fn running(&mut self, pid: Pid) -> Option<(&mut Image, &mut Budget)> {
        let slot = self.processes.find_memory(pid)?;
        let image = self.processes.slot_mut(slot)?.image.as_mut()?;
        self.deltas.set_changed(slot);
        Some((image, &mut self.budget))
    }

    /// Returns the image with the memory of `pid`, and creates it if it is new. `class`: class of the event. If the
    /// budget is exceeded, counts a loss and returns `None`.
    #[inline]
    pub(super) fn of(&mut self, pid: Pid, class: EventClass) -> Option<(&mut Image, &mut Budget)> {
        let mut slot = self.last;
        if self.processes.slot(slot).is_none_or(|process| process.id.pid != pid || process.image.is_none()) {
            slot = self.open_image(pid, class)?;
        }
        let image = self.processes.slot_mut(slot)?.image.as_mut()?;
        Some((image, &mut self.budget))
    }

    /// Applies a reading of the heap profile that a target keeps. Counts a loss if the image has ended, or if the process
    /// shares the memory of another process. The profile of shared memory is read for the process that has the memory.
    pub(super) fn read_profile(&mut self, id: ImageId, reading: Reading<'_>) {
        let memory = self.processes.find_memory(id.pid).and_then(|slot| self.processes.slot(slot));
        if self.processes.current(id.pid) != id || memory.is_some_and(|process| process.id != id) {
            self.budget.losses.add(LossReason::ProfileLate, 1);
            return;
        }
        let image = self.of(id.pid, EventClass::Heap);
        if !image.is_some_and(|(image, budget)| image.heap.read_profile(reading, budget)) {
            self.refused.push(id);
        }
    }

    /// Thins the samples of an image, unless it has ended or shares the memory of another process. An image without events gets
    /// the level for its first samples.
    pub(super) fn thin(&mut self, id: ImageId, thinning: Thinning) {
        let Some(slot) = self.open_image_with_memory(id) else { return };
        if let Some(image) = self.processes.slot_mut(slot).and_then(|process| process.image.as_mut()) {
            image.heap.thin(thinning, &mut self.budget);
        }
    }

    /// Removes the touched pages of an image and ignores its later page faults, unless the image has ended or shares the memory of
    /// another process.
    pub(super) fn leave_out_pages(&mut self, id: ImageId) {
        let Some(slot) = self.open_image_with_memory(id) else { return };
        let Some(process) = self.processes.slot_mut(slot) else { return };
        let Some(image) = &mut process.image else { return };
        image.leaves_out_pages = true;
        self.deltas.remove_totals(process.id, EventClass::Fault, image);
        let before = image.limited_stacks();
        let pages = image.pages.take();
        self.budget.totals.release(before - image.limited_stacks());
        self.budget.pages -= pages.map_or(0, |pages| pages.count());
    }

    /// Returns true if the page faults of the process in a slot are ignored.
    fn leaves_out_pages(&self, slot: usize) -> bool {
        let image = self.processes.slot(slot).and_then(|process| process.image.as_ref());
        image.is_some_and(|image| image.leaves_out_pages)
    }

    /// Returns the slot of an image; `None` if the image has ended or shares the memory of another process. An image without
    /// events gets a state.
    fn open_image_with_memory(&mut self, id: ImageId) -> Option<usize> {
        let slot = match self.processes.find_image(id) {
            Some(slot) => slot,
            None if self.processes.current(id.pid) == id => self.find_or_add(id.pid)?,
            None => return None,
        };
        if self.processes.memory_of(slot) != slot {
            return None;
        }
        self.open_image_in(slot)?;
        Some(slot)
    }

    /// Returns the slot with the memory of `pid`, and creates its image if there is none. Makes `pid` the process of
    /// the latest event, unless `pid` shares memory. If the budget is exceeded, counts a loss and returns `None`.
    #[cold]
    fn open_image(&mut self, pid: Pid, class: EventClass) -> Option<usize> {
        let own = self.find_or_add(pid)?;
        let slot = self.processes.memory_of(own);
        if slot == own {
            self.last = own;
        } else {
            self.list_sharer(own, class);
        }
        self.open_image_in(slot)?;
        Some(slot)
    }

    /// Gives the process in a slot an image if it has none, and records that the image changes.
    pub(super) fn open_image_in(&mut self, slot: usize) -> Option<()> {
        let process = self.processes.slot_mut(slot)?;
        if process.image.is_none() {
            let image = process.image.insert(Box::default());
            self.deltas.add_image(slot, process.id, image);
            // The pid of a kept image can belong to another process.
            if process.kept.is_none()
                && let Some(demoted) = self.demotions.of(process.id.pid)
            {
                image.heap.demote(demoted.min_size, demoted.at, &mut self.budget);
            }
        }
        self.deltas.set_changed(slot);
        Some(())
    }

    /// Records an event of the process in a slot. This process shares the memory of another process.
    fn list_sharer(&mut self, slot: usize, class: EventClass) {
        let sharer = self.processes.slot_mut(slot).and_then(|process| process.sharer.as_mut());
        if sharer.is_some_and(|sharer| sharer.add_event(class)) {
            self.deltas.set_changed(slot);
        }
    }

    /// Returns the process `pid`, and adds it if it is new. If the budget is exceeded, counts a loss and returns
    /// `None`.
    pub(super) fn process_of(&mut self, pid: Pid) -> Option<&mut Process> {
        let slot = self.find_or_add(pid)?;
        self.processes.slot_mut(slot)
    }

    /// Returns the slot of the process `pid`, as [`Self::process_of`] does.
    fn find_or_add(&mut self, pid: Pid) -> Option<usize> {
        if let Some(slot) = self.processes.find(pid) {
            return Some(slot);
        }
        if !Ordinals::is_valid(pid) {
            self.budget.losses.add(LossReason::BadRecord, 1);
            return None;
        }
        if !self.has_room_for_image() {
            self.budget.losses.add(LossReason::ProcessesFull, 1);
            return None;
        }
        Some(self.processes.add(pid))
    }

    /// Returns true if there are fewer processes and ended images than the maximum.
    fn has_room_for_image(&self) -> bool {
        self.processes.len() + self.ended.len() < self.settings.processes as usize
    }

    /// Sets the rusage of `pid` at the end of its image. The event of the end comes next.
    pub(super) fn set_rusage(&mut self, pid: Pid, rusage: Option<Rusage>, is_traced: bool) {
        let Some(slot) = self.find_or_add(pid) else { return };
        let Some(process) = self.processes.slot_mut(slot) else { return };
        process.rusage.end = rusage;
        if !is_traced {
            return;
        }
        // Reports show the image even if none of its pages is in the sample.
        if let Some(memory) = process.memory {
            if !self.leaves_out_pages(memory) {
                self.list_sharer(slot, EventClass::Fault);
            }
        } else if let Some((image, _)) = self.of(pid, EventClass::Fault)
            && !image.leaves_out_pages
        {
            image.pages.get_or_insert_default();
        }
    }

    /// Merges the totals of stacks without live blocks, if the limit of stacks is reached.
    #[inline]
    pub(super) fn merge_if_needed(&mut self) {
        if self.budget.totals.needs_merge() {
            merge_idle_stacks::merge_totals(&mut self.processes, &mut self.budget, &mut self.deltas);
        }
    }

    /// Gives the new process `child` the pages and mappings of `parent`.
    pub(super) fn fork(&mut self, parent: Pid, child: Pid, at: Tick) {
        // If the pid has an image, the exit of an earlier process with this pid was lost.
        if let Some(process) = self.processes.get_mut(child)
            && let Some(image) = &mut process.image
        {
            for class in [EventClass::Fault, EventClass::Map] {
                self.deltas.remove_totals(process.id, class, image);
            }
            let before = image.limited_stacks();
            let (pages, mappings) = (image.pages.take(), image.mappings.take());
            self.budget.totals.release(before - image.limited_stacks());
            self.budget.pages -= pages.map_or(0, |pages| pages.count());
            self.budget.mapped_ranges -= mappings.map_or(0, |mappings| mappings.count());
        }
        // A command to leave out the pages of the child can arrive before the record of its fork.
        let ignores_pages = self.processes.find(child).is_some_and(|slot| self.leaves_out_pages(slot));
        let memory = self.processes.find_memory(parent);
        let process = memory.and_then(|slot| self.processes.slot(slot));
        let main = process.map_or(parent, |process| process.id.pid);
        let image = process.and_then(|process| process.image.as_ref());
        let (pages, mappings) = image.map_or((&None, &None), |image| (&image.pages, &image.mappings));
        let pages = pages.as_ref().filter(|_| !ignores_pages).and_then(|pages| pages.fork(&mut self.budget));
        let mappings = mappings.as_ref().and_then(|mappings| mappings.fork(&mut self.budget));
        if (pages.is_some() || mappings.is_some())
            && let Some(process) = memory.and_then(|slot| self.processes.slot_mut(slot))
            && let Some(image) = process.image.as_mut()
        {
            image.has_forked = true;
        }
        let Some(slot) = self.find_or_add(child) else { return };
        // The exit of an earlier process with this pid was lost, if the pid shares memory.
        if let Some(process) = self.processes.slot_mut(slot)
            && let Some(before) = process.memory.take()
        {
            process.sharer = None;
            self.leave_memory(before, at);
        }
        self.open_image_in(slot);
        if let Some(image) = self.processes.slot_mut(slot).and_then(|process| process.image.as_mut()) {
            image.pages = pages;
            image.mappings = mappings;
            image.copy_of = Some(main);
        }
    }

    /// Records that the new process `child` shares the memory of `parent`. `is_listed`: true if reports list the child.
    pub(super) fn share(&mut self, parent: Pid, child: Pid, is_listed: bool, at: Tick) {
        let Some(parent) = self.find_or_add(parent) else { return };
        let Some(slot) = self.find_or_add(child) else { return };
        let memory = self.processes.memory_of(parent);
        let is_shared = memory != slot;
        let Some(main) = self.processes.slot_mut(memory) else { return };
        main.sharers += u32::from(is_shared);
        let main = main.id.pid;
        let Some(process) = self.processes.slot_mut(slot) else { return };
        let before = std::mem::replace(&mut process.memory, is_shared.then_some(memory));
        if is_shared && is_listed {
            process.sharer.get_or_insert_with(|| Sharer::new(main));
        }
        self.last = usize::MAX;
        // The exit of an earlier process with this pid was lost.
        if let Some(before) = before {
            self.leave_memory(before, at);
        }
    }

    /// Records that `pid` no longer shares the memory of another process. Reports do not list `pid`. `tid`: last thread
    /// of the process.
    pub(super) fn unshare(&mut self, pid: Pid, tid: Tid, at: Tick) {
        self.end_thread_of_sharer(pid, tid, at);
        let Some(process) = self.processes.get_mut(pid) else { return };
        let Some(memory) = process.memory.take() else { return };
        // No event of its exit follows.
        if process.is_unused() {
            self.processes.remove(pid);
        }
        self.leave_memory(memory, at);
    }

    /// Records that a process no longer shares the memory in a slot. If the image in the slot has ended, and no other
    /// process shares its memory, the totals of the image end.
    fn leave_memory(&mut self, slot: usize, at: Tick) {
        let Some(main) = self.processes.slot_mut(slot) else { return };
        main.sharers = main.sharers.saturating_sub(1);
        if main.sharers == 0
            && let Some((end, counts)) = main.kept
            && let Some(process) = self.processes.take(slot)
        {
            self.demotions.forget_kept(process.id);
            self.add_ended(process.id, (end, at), Some((process, counts)));
        }
    }

    /// Records the end of a thread. The memory of the process outlasts the thread.
    pub(super) fn end_thread(&mut self, pid: Pid, tid: Tid, at: Tick) {
        if let Some((image, _)) = self.running(pid) {
            image.heap.end_thread(tid, at);
        }
    }

    /// Records the end of the last thread of a process that shares the memory of another one, because the memory
    /// outlasts the process.
    pub(super) fn end_thread_of_sharer(&mut self, pid: Pid, tid: Tid, at: Tick) {
        if self.processes.get(pid).is_some_and(|process| process.memory.is_some()) {
            self.end_thread(pid, tid, at);
        }
    }

    /// Adds the frames of a stack to the process with the memory of `pid`, within the limit.
    pub(super) fn add_stack(&mut self, pid: Pid, id: StackId, stack: &Stack) {
        if !id.has_frames() {
            self.budget.losses.add(LossReason::BadRecord, 1);
            return;
        }
        let Some(own) = self.find_or_add(pid) else { return };
        let slot = self.processes.memory_of(own);
        self.add_stack_in(slot, id, stack);
    }

    fn add_stack_in(&mut self, slot: usize, id: StackId, stack: &Stack) {
        let Some(process) = self.processes.slot(slot) else { return };
        if process.stacks.has_frames_of(id) || self.has_room_for_frames() {
            self.insert_stack(slot, id, stack, stack);
        } else {
            self.budget.losses.add(LossReason::StacksFull, 1);
            // The frames have arrived, so events with this stack must not count as `StackFramesLost`. Deltas get
            // the frames, because their receivers have limits of their own.
            self.insert_stack(slot, id, &Stack::merged(), stack);
        }
    }

    /// Gives the stacks of an ending image to running processes that have inherited pages or mappings of these
    /// stacks.
    fn leave_stacks(&mut self, stacks: &Stacks) {
        let wanted_by = |process: &Process| {
            let inherited = process.image.iter().flat_map(|image| image.inherited_stacks());
            let wanted = inherited.filter(|&id| stacks.contains(id) && !process.stacks.contains(id));
            wanted.map(|id| (process.id, id)).collect::<Vec<_>>()
        };
        let wanted: Vec<_> = self.processes.iter().flat_map(wanted_by).collect();
        for (image, id) in wanted {
            let Some(slot) = self.processes.find_image(image) else { continue };
            match stacks.get(id) {
                Some(stack) if stacks.has_frames_of(id) => self.add_stack_in(slot, id, &stack),
                Some(merged) => self.insert_stack(slot, id, &merged, &merged),
                None => {}
            }
        }
    }

    /// Inserts a stack. If it has frames, the budget must have counted it. `sent`: the stack for deltas.
    fn insert_stack(&mut self, slot: usize, id: StackId, stack: &Stack, sent: &Stack) {
        let defers = self.deltas.defers_stacks();
        if let Some(process) = self.processes.slot_mut(slot) {
            // A process without an image is about to get a new one.
            let is_deferred = process.image.as_ref().map_or(defers, |image| image.defers_stacks());
            let (nodes, before) = (process.stacks.calls().len(), process.stacks.find(id));
            process.stacks.insert(id, stack);
            self.budget.nodes += (process.stacks.calls().len() - nodes) as u64;
            if !is_deferred && process.stacks.find(id) != before && sent.end != StackEnd::Merged {
                self.deltas.add_stack(process.id, id, sent, &mut self.budget);
            }
        }
    }

    /// Returns true and counts one more stack with frames, if it is within the limit. Merges stacks if the limit is
    /// reached.
    fn has_room_for_frames(&mut self) -> bool {
        if self.budget.request_frames() {
            return true;
        }
        if !self.budget.frames.is_merge_due() {
            return false;
        }
        merge_idle_stacks::merge_frames(&mut self.processes, &mut self.budget, self.settings.stacks);
        self.budget.request_frames()
    }

    /// Removes and returns the images that have ended.
    pub(super) fn take_ended(&mut self) -> Vec<EndedImage> {
        let Untaken { totals, frames, nodes } = std::mem::take(&mut self.untaken);
        self.budget.totals.release(totals);
        self.budget.release_frames(frames, nodes);
        std::mem::take(&mut self.ended)
    }

    /// Ends the image that `pid` runs. If processes share its memory, its totals end with the last of them.
    pub(super) fn end_image(&mut self, pid: Pid, end: ImageEnd, at: Tick) {
        if !Ordinals::is_valid(pid) {
            self.budget.losses.add(LossReason::BadRecord, 1);
            return;
        }
        let (id, slot) = self.processes.end_image(pid);
        if end != ImageEnd::Exec {
            let process = slot.and_then(|slot| self.processes.slot(slot));
            self.demotions.end(pid, process.is_some_and(|process| process.sharers > 0).then_some(id));
        }
        let Some(slot) = slot else {
            self.add_ended(id, (end, at), None);
            return;
        };
        let Some(process) = self.processes.slot_mut(slot) else { return };
        let end = if process.is_killed && end == ImageEnd::Exit { ImageEnd::OomKill } else { end };
        let mut rusage = process.rusage;
        let counts = rusage.end_image(end);
        let memory = process.memory.take();
        if process.sharers > 0 {
            process.kept = Some((end, counts));
            self.processes.keep(id, slot);
            self.last = usize::MAX;
            self.begin_next_image(pid, rusage);
        } else if let Some(process) = self.processes.take(slot) {
            self.begin_next_image(pid, rusage);
            self.add_ended(id, (end, at), Some((process, counts)));
        }
        if let Some(memory) = memory {
            self.leave_memory(memory, at);
        }
    }

    /// Starts the next image of `pid` with the rusage at the exec.
    fn begin_next_image(&mut self, pid: Pid, rusage: RusageBounds) {
        if rusage.begin.is_some()
            && let Some(next) = self.process_of(pid)
        {
            next.rusage = rusage;
        }
    }

    /// Adds an image that has ended. `process`: its process and the rusage of the image; `None` if this ledger received
    /// no event of the image.
    fn add_ended(&mut self, id: ImageId, (end, at): (ImageEnd, Tick), process: Option<(Process, ImageRusage)>) {
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
        let has_forgotten = process.as_ref().is_some_and(|(process, _)| process.has_forgotten);
        let mut last_image = None;
        let mut accounts = (AccountCounts::default(), Vec::new());
        if let Some((Process { owner, mut image, stacks, sharer, .. }, counts)) = process {
            ended.owner = owner;
            untaken.frames += stacks.with_frames() as u32;
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
                ended.usage = image.usage_at_end(end, at, counts, &self.settings, &mut self.budget);
                if image.defers_stacks() && ended.heap().is_some() {
                    ended.unsent = UnsentStacks::All;
                }
            }
            if let Some(sharer) = sharer {
                sharer.add_to(&mut ended.usage, end, counts);
            }
            ended.stacks = stacks;
            last_image = image;
        }
        self.deltas.add_end(&ended, last_image, &self.settings, &mut self.budget);
        // This flag is set after the delta was made, because it is not a change.
        ended.usage.iter_mut().for_each(|(_, usage)| usage.has_forgotten = has_forgotten);
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

    /// Reports the accounts of an ending image. The tuple has the numbers of accounts of the image, and the changed
    /// accounts. Threads that have ended since the last take keep their accounts.
    fn end_accounts(&mut self, ended: &EndedImage, (counts, accounts): (AccountCounts, Vec<AccountState>)) {
        if let Some(budget) = &mut self.budget.accounts
            && counts.own > 0
        {
            let (id, end) = (ended.id, Some(ended.end));
            let (ended_threads, merged) = Default::default();
            budget.add_ended(ImageAccounts { id, ended: end, ended_threads, merged, accounts }, counts);
        }
    }
}
