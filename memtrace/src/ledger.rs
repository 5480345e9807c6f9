//! Ledger of one shard: live blocks, pages, mappings, stalls and losses, by process image and stack. Pure.
//!
//! [`Ledger::apply`] never panics and never fails; events that it cannot use are counted by [`LossReason`]. The events of a
//! process may be split by address over any number of ledgers whose snapshots are merged: the effect of an event depends
//! only on earlier events of the same address and of the whole process.

mod account_budget;
mod account_changes;
mod account_groups;
mod accounts;
mod address_table;
mod block;
mod budget;
mod changed_stacks;
mod deferred_stacks;
mod deltas;
mod ends;
mod epochs;
mod forks;
mod frames;
mod heap;
mod image;
mod mappings;
mod merge;
mod next_delta;
mod pages;
mod process;
mod processes;
#[cfg(test)]
mod reference_model;
mod rusage;
mod snapshots;
mod stack_totals;
mod stalls;
mod tentative_free;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use crate::model::{
    AllocatorId, Amount, Bytes, EndedImage, Event, EventKind, ImageEnd, LossReason, Losses, OomKill, Ordinals,
    OutOfMemory, Part, Pid, Rusage, StackKey, TagId, Tick, Tid, TouchedProcesses,
};
pub use budget::Settings;

use budget::{Budget, Untaken};
use heap::FreeCall;
use image::Image;
use next_delta::NextDelta;
use process::Process;
use processes::Processes;

/// Good number of events for [`Ledger::apply_all`]: more than a processor reads at once, and few enough that their entries
/// stay in its first-level cache until they are changed.
pub const BATCH: usize = 32;

/// State of one shard.
#[derive(Debug)]
pub struct Ledger {
    settings: Settings,
    processes: Processes,
    /// Slot of the process of the latest event, which is usually that of the next event.
    last: usize,
    /// Images that have ended and were not taken.
    ended: Vec<EndedImage>,
    oom_kills: BTreeSet<OomKill>,
    /// Parts of the budget that the ended images use.
    untaken: Untaken,
    budget: Budget,
    events: u64,
    /// `None` without deltas.
    next_delta: Option<Box<NextDelta>>,
    /// Touched pages of the processes, if they were measured.
    touches: Option<Arc<TouchedProcesses>>,
}

impl Ledger {
    /// Creates an empty ledger.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            processes: Processes::default(),
            last: 0,
            ended: Vec::new(),
            oom_kills: BTreeSet::new(),
            untaken: Untaken::default(),
            budget: Budget::new(&settings),
            events: 0,
            next_delta: None,
            touches: None,
        }
    }

    /// Applies events in order and removes them from `events`. Faster than [`Self::apply`] for each: the cache misses of
    /// different events overlap.
    pub fn apply_all(&mut self, events: &mut Vec<Event>) {
        self.load_entries(events);
        events.drain(..).for_each(|event| self.apply(event));
    }

    /// Applies one event.
    #[inline]
    pub fn apply(&mut self, event: Event) {
        self.events += 1;
        if self.budget.totals.needs_merge() {
            self.merge_totals();
        }
        let Event { pid, tid, tick, kind } = event;
        match kind {
            EventKind::Alloc { address, size, stack, allocator, tag } => {
                let part = self.part(tid, allocator, tag);
                if let Some((image, budget)) = self.image_of(pid) {
                    image.heap.alloc(address, size, StackKey { stack, part }, tid, tick, budget);
                }
            }
            EventKind::Free { address, is_last } => {
                if let Some((image, budget)) = self.image_of(pid) {
                    image.heap.free(address, FreeCall { tid, is_last, tick }, budget);
                }
            }
            EventKind::RepeatedFree { address } => {
                if let Some((image, budget)) = self.image_of(pid) {
                    image.heap.free_again(address, FreeCall { tid, is_last: false, tick }, budget);
                }
            }
            EventKind::Claim { address, tag } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, tag);
                if let Some((image, budget)) = self.image_of(pid) {
                    image.heap.claim(address, part, tid, tick, budget);
                }
            }
            EventKind::TentativeFree { address, is_last } => {
                if let Some((image, budget)) = self.image_of(pid) {
                    image.heap.free_tentatively(address, FreeCall { tid, is_last, tick }, budget);
                }
            }
            EventKind::UndoFree { address } => {
                // Without an image there is no tentative free.
                if let Some((image, budget)) = self.running_image(pid) {
                    image.heap.undo_free(tid, address, tick, budget);
                }
            }
            EventKind::Fault { page, touch, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.image_of(pid) {
                    image.pages.get_or_insert_default().touch(page, touch, StackKey { stack, part }, budget);
                }
            }
            EventKind::MajorFault { page } => {
                if let Some((image, _)) = self.running_image(pid)
                    && let Some(pages) = &mut image.pages
                {
                    pages.add_major_fault(page);
                }
            }
            EventKind::Map { begin, size, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.image_of(pid) {
                    image.mappings.get_or_insert_default().map(begin, size, StackKey { stack, part }, budget);
                }
            }
            EventKind::TentativeUnmap { begin, size } => {
                if let Some((image, budget)) = self.image_of(pid) {
                    image.mappings.get_or_insert_default().unmap_tentatively(tid, begin, size, budget);
                }
            }
            EventKind::UndoUnmap => {
                if let Some((image, budget)) = self.image_of(pid)
                    && let Some(mappings) = &mut image.mappings
                {
                    mappings.undo_unmap(tid, budget);
                }
            }
            EventKind::Move { old, old_size, begin, size, keeps, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.image_of(pid) {
                    if let Some(pages) = &mut image.pages {
                        pages.move_range(old, begin, Bytes(old_size.0.min(size.0)), budget);
                    }
                    let (from, to) = ([old.0, old_size.0], [begin.0, size.0]);
                    let mappings = image.mappings.get_or_insert_default();
                    mappings.move_range(tid, from, to, keeps, StackKey { stack, part }, budget);
                }
            }
            EventKind::Fork { child } => self.fork(pid, child),
            EventKind::Stack { id, stack } => self.add_stack(pid, id, &stack),
            EventKind::Stall(stall) => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.image_of(pid) {
                    image.stalls.get_or_insert_default().add(&stall, part, budget);
                }
            }
            EventKind::OomKill(kill) => self.oom_kill(pid, *kill, tick),
            EventKind::Rusage { counts, is_traced } => self.set_rusage(pid, counts, is_traced),
            EventKind::Owner(owner) => {
                if let Some(process) = self.process_of(pid) {
                    process.owner = Some(*owner);
                }
            }
            EventKind::Exec => self.end_image(pid, ImageEnd::Exec, tick),
            EventKind::Exit => self.end_image(pid, ImageEnd::Exit, tick),
            EventKind::ThreadExit => {
                if let Some((image, _)) = self.running_image(pid) {
                    image.heap.end_thread(tid, tick);
                }
            }
        }
    }

    /// Adds losses of records that did not become events.
    pub fn add_loss(&mut self, reason: LossReason, count: u64) {
        self.budget.losses.add(reason, count);
    }

    /// Live amount, regardless of age.
    #[must_use]
    pub const fn live(&self) -> Amount {
        self.budget.live
    }

    /// Number of applied events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Losses so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.budget.losses
    }

    /// Reads the entries that `events` will change. The entries of different events do not depend on each other, so the
    /// processor reads several at once; [`Self::apply`] then finds them in its cache.
    fn load_entries(&self, events: &[Event]) {
        let mut slot = self.last;
        let mut read = 0;
        for &Event { pid, tid, ref kind, .. } in events {
            if self.processes.slot(slot).is_none_or(|process| process.id.pid != pid) {
                let Some(found) = self.processes.find(pid) else { continue };
                slot = found;
            }
            let Some(image) = self.processes.slot(slot).and_then(|process| process.image.as_ref()) else { continue };
            read ^= match *kind {
                EventKind::Alloc { address, stack, allocator, tag, .. } => {
                    image.heap.load_alloc(address, StackKey { stack, part: self.part(tid, allocator, tag) })
                }
                EventKind::Free { address, .. }
                | EventKind::TentativeFree { address, .. }
                | EventKind::Claim { address, .. } => image.heap.load_free(address),
                _ => 0,
            };
        }
        black_box(read);
    }

    const fn part(&self, tid: Tid, allocator: AllocatorId, tag: TagId) -> Part {
        Part::WHOLE.with_thread(tid).with_allocator(allocator).with_tag(tag).restricted_to(self.settings.parts)
    }

    /// Records that the OOM killer has selected `pid`, traced or not.
    fn oom_kill(&mut self, pid: Pid, kill: OutOfMemory, at: Tick) {
        // Also for an unknown process: another shard may know it, and all shards must agree on its end.
        if let Some(process) = self.process_of(pid) {
            process.is_killed = true;
        }
        let OutOfMemory { comm, by, by_comm, group, full } = kill;
        // Each kill ends a process, so the maximum number of processes limits the kills.
        if self.oom_kills.len() < self.settings.processes as usize {
            let victim = self.processes.current(pid);
            let kill = OomKill { at, victim, comm, by, by_comm, group, full };
            self.add_new_oom_kill(&kill);
            self.oom_kills.insert(kill);
        }
    }

    /// Returns the current image of `pid`, if it has one.
    fn running_image(&mut self, pid: Pid) -> Option<(&mut Image, &mut Budget)> {
        self.processes.get(pid)?.image.as_ref()?;
        self.image_of(pid)
    }

    /// Returns the image of `pid`, which is created if needed; `None`, and a loss, if the budget is exceeded.
    #[inline]
    fn image_of(&mut self, pid: Pid) -> Option<(&mut Image, &mut Budget)> {
        if self.processes.slot(self.last).is_none_or(|process| process.id.pid != pid || process.image.is_none()) {
            self.open_image(pid)?;
        }
        let image = self.processes.slot_mut(self.last)?.image.as_mut()?;
        Some((image, &mut self.budget))
    }

    /// Makes `pid` the process of the latest event and gives it an image; `None`, and a loss, if the budget is exceeded.
    #[cold]
    fn open_image(&mut self, pid: Pid) -> Option<()> {
        let slot = self.find_or_add(pid)?;
        let process = self.processes.slot_mut(slot)?;
        if process.image.is_none() {
            let image = process.image.insert(Box::default());
            if let Some(next) = &mut self.next_delta {
                next.add_image(slot, process.id, image);
            }
        }
        self.set_changed(slot);
        self.last = slot;
        Some(())
    }

    /// Returns the process `pid`, which is added if needed; `None`, and a loss, if the budget is exceeded.
    fn process_of(&mut self, pid: Pid) -> Option<&mut Process> {
        let slot = self.find_or_add(pid)?;
        self.processes.slot_mut(slot)
    }

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

    /// Sets the rusage of `pid`, whose image is about to end.
    fn set_rusage(&mut self, pid: Pid, rusage: Option<Rusage>, is_traced: bool) {
        let Some(process) = self.process_of(pid) else { return };
        process.rusage.end = rusage;
        // The image is reported even if none of its pages is in the sample.
        if is_traced && let Some((image, _)) = self.image_of(pid) {
            image.pages.get_or_insert_default();
        }
    }
}
