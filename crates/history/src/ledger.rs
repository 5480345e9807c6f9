//! Ledger of one shard: live blocks, pages, mappings, stalls and losses, by process image and stack. Pure.
//!
//! [`Ledger::apply`] never panics and never fails; events that it cannot use are counted by [`LossReason`]. The
//! events of a process may be split by address over any number of ledgers. The sum of their snapshots is the same,
//! because the effect of an event depends only on earlier events of the same address and of the whole process. This does
//! not hold once a ledger is nearly full: each ledger demotes processes by its own blocks (`shares`).
//!
//! Processes can share their memory, as after vfork. The image of the process that had the memory first has the totals of
//! all these processes. If this image ends first, it is kept until the last of the other processes ends (`processes`).

mod account_budget;
mod account_groups;
mod accounts;
mod address_table;
mod block;
mod block_ages;
mod budget;
mod changed_stacks;
mod deferred_stacks;
mod deltas;
mod demotions;
mod epochs;
mod heap;
mod image;
mod images;
mod mappings;
mod merge_idle_stacks;
mod own_profile;
mod pages;
mod process;
mod processes;
#[cfg(test)]
mod reference_model;
mod results;
mod rusage;
mod samples;
mod sharer;
mod shares;
mod spreads;
mod stack_totals;
mod stalls;
mod tentative_free;
#[cfg(test)]
mod tests;
mod thinning;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AllocatorId, Amount, Bytes, Event, EventClass, EventKind, ImageEnd, ImageId, LossReason, Losses, OomKill,
    OutOfMemory, Owner, Part, Pid, StackKey, TagId, Tick, Tid, TouchedProcesses,
};

pub use budget::Settings;
pub use demotions::Demoted;
pub(crate) use demotions::UserOf;

use heap::{FreeCall, NewBlock};
use images::Images;
use own_profile::Reading;
use stack_totals::StackTotals;
use thinning::Thinning;

/// Number of events that [`Ledger::apply_all`] loads and applies together. It is larger than the number of entries
/// that a processor reads in parallel, and small enough that the entries stay in its first-level cache until they
/// are changed.
pub const BATCH: usize = 32;

/// Time after an OOM kill during which further reports on the victim belong to this kill. The kernel reports each
/// thread of the victim that fails to allocate while the victim is dying (`out_of_memory`, mm/oom_kill.c), until the
/// OOM reaper has finished, seconds later. The time is limited, because a new process can get the pid of a victim
/// without events.
const SAME_KILL: Duration = Duration::from_secs(60);

/// State of one shard.
#[derive(Debug)]
pub struct Ledger {
    images: Images,
    oom_kills: BTreeSet<OomKill>,
    events: u64,
    /// Touched pages of the processes, if they were measured.
    touches: Option<Arc<TouchedProcesses>>,
}

impl Ledger {
    /// Creates an empty ledger.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { images: Images::new(settings, BATCH as u64), oom_kills: BTreeSet::new(), events: 0, touches: None }
    }

    /// Applies events in order and removes them from `events`. This is faster than [`Self::apply`] for each event,
    /// because the cache misses of different events overlap.
    pub fn apply_all(&mut self, events: &mut Vec<Event>) {
        for batch in events.chunks(BATCH) {
            self.load_entries(batch);
            batch.iter().for_each(|event| self.apply(event));
        }
        events.clear();
    }

    /// Applies one event.
    // The event is a reference, because a copy would wait for the stores of the previous event.
    #[inline]
    pub fn apply(&mut self, event: &Event) {
        self.events += 1;
        self.images.merge_if_needed();
        let Event { pid, tid, tick, ref kind } = *event;
        match *kind {
            EventKind::Alloc { address, size, stack, allocator, tag } => {
                let part = self.part(tid, allocator, tag);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    let new = NewBlock { address, size, sample: None, level: 0, tid, tick };
                    image.heap.alloc(new, StackKey { stack, part }, budget);
                }
            }
            EventKind::SampledAlloc { address, size, ref sample, thinning, stack, allocator, tag } => {
                let part = self.part(tid, allocator, tag);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    let new = NewBlock { address, size, sample: Some(sample.as_ref()), level: thinning, tid, tick };
                    image.heap.alloc_sampled(new, StackKey { stack, part }, budget);
                }
            }
            EventKind::SampledFree { address } => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    image.heap.free_sampled(address, FreeCall { tid, is_last: false, tick }, budget);
                }
            }
            EventKind::HeapProfile { image, reading, ref changes } => {
                let parts = self.images.settings.parts;
                self.images.read_profile(image, Reading { number: reading, changes, tid, parts, tick });
            }
            EventKind::Free { address, is_last } => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    image.heap.free(address, FreeCall { tid, is_last, tick }, budget);
                }
            }
            EventKind::RepeatedFree { address } => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    image.heap.free_again(address, FreeCall { tid, is_last: false, tick }, budget);
                }
            }
            EventKind::Claim { address, tag } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, tag);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    image.heap.claim(address, part, tid, tick, budget);
                }
            }
            EventKind::TentativeFree { address, is_last } => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Heap) {
                    image.heap.free_tentatively(address, FreeCall { tid, is_last, tick }, budget);
                }
            }
            EventKind::UndoFree { address } => {
                // Without an image there is no tentative free.
                if let Some((image, budget)) = self.images.running(pid) {
                    image.heap.undo_free(tid, address, tick, budget);
                }
            }
            EventKind::Fault { page, touch, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                let main = self.images.memory_pid(pid);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Fault)
                    && !image.leaves_out_pages
                {
                    image.pages.get_or_insert_default().touch(main, page, touch, StackKey { stack, part }, budget);
                }
            }
            EventKind::MajorFault { page } => {
                if let Some((image, _)) = self.images.running(pid)
                    && let Some(pages) = &mut image.pages
                {
                    pages.add_major_fault(page);
                }
            }
            EventKind::Map { begin, size, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Map) {
                    image.mappings.get_or_insert_default().map(begin, size, StackKey { stack, part }, budget);
                }
            }
            EventKind::TentativeUnmap { begin, size } => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Map) {
                    image.mappings.get_or_insert_default().unmap_tentatively(tid, begin, size, budget);
                }
            }
            EventKind::UndoUnmap => {
                if let Some((image, budget)) = self.images.of(pid, EventClass::Map)
                    && let Some(mappings) = &mut image.mappings
                {
                    mappings.undo_unmap(tid, budget);
                }
            }
            EventKind::Move { old, old_size, begin, size, keeps, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                let main = self.images.memory_pid(pid);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Map) {
                    if let Some(pages) = &mut image.pages {
                        pages.move_range(main, [old, begin], Bytes(old_size.0.min(size.0)), budget);
                    }
                    let (from, to) = ([old.0, old_size.0], [begin.0, size.0]);
                    let mappings = image.mappings.get_or_insert_default();
                    mappings.move_range(tid, from, to, keeps, StackKey { stack, part }, budget);
                }
            }
            EventKind::Fork { child } => self.images.fork(pid, child, tick),
            EventKind::Share { child, is_traced } => self.images.share(pid, child, is_traced, tick),
            EventKind::Unshare => self.images.unshare(pid, tid, tick),
            EventKind::Stack { id, ref stack } => self.images.add_stack(pid, id, stack),
            EventKind::Stall(ref stall) => {
                let part = self.part(tid, AllocatorId::UNKNOWN, TagId::UNTAGGED);
                if let Some((image, budget)) = self.images.of(pid, EventClass::Reclaim) {
                    image.stalls.get_or_insert_default().add(stall, part, budget);
                }
            }
            EventKind::OomKill(ref kill) => self.oom_kill(pid, OutOfMemory::clone(kill), tick),
            EventKind::Rusage { counts, is_traced } => self.images.set_rusage(pid, counts, is_traced),
            EventKind::Dropped { min_size, sum } => {
                let image = self.images.image_of_sum(pid);
                self.images.set_dropped(Demoted { image, min_size, at: tick }, sum);
            }
            EventKind::Owner(ref owner) => {
                if let Some(process) = self.images.process_of(pid) {
                    process.owner = Some(Owner::clone(owner));
                }
            }
            EventKind::Exec => self.end_image(pid, tid, ImageEnd::Exec, tick),
            EventKind::Exit => self.end_image(pid, tid, ImageEnd::Exit, tick),
            EventKind::ThreadExit => self.images.end_thread(pid, tid, tick),
        }
    }

    /// Returns true if the shares of users must be compared now. The check is cheap, so the caller makes it after
    /// each batch of events.
    #[inline]
    pub(crate) const fn must_compare_shares(&self) -> bool {
        self.images.demotions.is_due(self.images.budget.blocks, self.blocks_and_events())
    }

    /// Demotes processes of users with more than a fair share, until there is room. Returns these processes: other
    /// ledgers must demote them too.
    #[cold]
    pub(crate) fn compare_shares(&mut self, now: Tick, user_of: UserOf) -> Vec<Demoted> {
        let demoted = self.images.demote_largest(now, user_of);
        self.images.demotions.set_compared(self.blocks_and_events());
        demoted
    }

    /// Returns the number of events plus the number of further blocks that sampled blocks count as in the limit of
    /// blocks. The result grows at least as fast as the number of live blocks that count towards this limit.
    const fn blocks_and_events(&self) -> u64 {
        self.events + self.images.budget.extra_blocks
    }

    /// Demotes a process that another ledger has demoted.
    pub(crate) fn demote(&mut self, demoted: Demoted) {
        self.images.demote(demoted);
    }

    /// Sets the sum of the blocks that the BPF programs have dropped since the demotion of a process.
    pub(crate) fn set_dropped(&mut self, demoted: Demoted, sum: Amount) {
        self.images.set_dropped(demoted, sum);
    }

    /// Thins the samples of an image to a level that its process has reached. `salt`: salt of the hashes of the process. Does
    /// nothing if the image has ended.
    pub(crate) fn thin(&mut self, image: ImageId, level: u8, salt: u64) {
        self.images.thin(image, Thinning::new(level, salt));
    }

    /// Removes the touched pages of an image, and ignores its later page faults. Does nothing if the image has ended.
    pub(crate) fn leave_out_pages(&mut self, image: ImageId) {
        self.images.leave_out_pages(image);
    }

    /// Adds losses of records that did not become events.
    pub(crate) fn add_loss(&mut self, reason: LossReason, count: u64) {
        self.images.budget.losses.add(reason, count);
    }

    /// Returns the live amount of all images, regardless of the age of blocks.
    #[must_use]
    pub const fn live(&self) -> Amount {
        self.images.budget.live
    }

    /// Returns the number of applied events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the losses so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.images.budget.losses
    }

    /// Reads the entries that `events` will change. There must be at most [`BATCH`] events. The entries of
    /// different events do not depend on each other, so the processor reads several at once, and [`Self::apply`]
    /// then finds them in the cache. The first pass looks up the blocks and stacks of all events, the second pass
    /// reads the indices of the stacks, and the third pass reads their totals.
    fn load_entries(&self, events: &[Event]) {
        let mut slot = self.images.last;
        let mut places = [const { None }; BATCH];
        for (place, &Event { pid, tid, ref kind, .. }) in places.iter_mut().zip(events) {
            if self.images.processes.slot(slot).is_none_or(|process| process.id.pid != pid) {
                let Some(other) = self.images.processes.find_memory(pid) else { continue };
                slot = other;
            }
            let Some(image) = self.images.processes.slot(slot).and_then(|process| process.image.as_ref()) else {
                continue;
            };
            *place = match *kind {
                EventKind::Alloc { address, stack, allocator, tag, .. }
                | EventKind::SampledAlloc { address, stack, allocator, tag, .. } => {
                    Some(image.heap.place_of_alloc(address, StackKey { stack, part: self.part(tid, allocator, tag) }))
                }
                EventKind::Free { address, .. }
                | EventKind::SampledFree { address }
                | EventKind::TentativeFree { address, .. }
                | EventKind::Claim { address, .. } => Some(image.heap.place_of_free(address)),
                _ => None,
            };
        }
        let totals = places.map(|place| place?.totals());
        black_box(totals.map(|totals| totals.map(StackTotals::load)));
    }

    fn end_image(&mut self, pid: Pid, tid: Tid, end: ImageEnd, at: Tick) {
        self.images.end_thread_of_sharer(pid, tid, at);
        self.images.end_image(pid, end, at);
    }

    const fn part(&self, tid: Tid, allocator: AllocatorId, tag: TagId) -> Part {
        Part::WHOLE.with_thread(tid).with_allocator(allocator).with_tag(tag).restricted_to(self.images.settings.parts)
    }

    /// Records that the OOM killer has selected `pid`, traced or not.
    fn oom_kill(&mut self, pid: Pid, kill: OutOfMemory, at: Tick) {
        // An unknown process is marked too: another shard may know it, and all shards must agree on its end.
        if let Some(process) = self.images.process_of(pid) {
            process.is_killed = true;
        }
        let victim = self.images.processes.current(pid);
        // The kills are in order of time.
        let since = at.since_start().saturating_sub(SAME_KILL);
        let mut recent = self.oom_kills.iter().rev().take_while(|kill| kill.at.since_start() >= since);
        if recent.any(|kill| kill.victim == victim) {
            return;
        }
        let OutOfMemory { comm, by, by_comm, group, full } = kill;
        // Each kill ends a process, so the maximum number of processes limits the kills.
        if self.oom_kills.len() < self.images.settings.processes as usize {
            let kill = OomKill { at, victim, comm, by, by_comm, group, full };
            self.images.deltas.add_oom_kill(&kill);
            self.oom_kills.insert(kill);
        }
    }
}
