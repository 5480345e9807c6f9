//! The books of one shard: which blocks are live, who allocated them, what was freed and what was lost. Pure.
//!
//! [`Ledger::apply`] never panics and never fails; what it can't use is counted by [`LossReason`]. The events of a
//! process may be split by address over any number of ledgers, and their [`Snapshot`]s merged: what an event means depends
//! only on earlier events about the same address and about the whole process.

#[cfg(test)]
mod against_a_naive_model;
mod block;
mod books;
mod counts;
mod image;
mod pages;
mod parked;
mod ranges;
mod stalls;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::model::{
    AllocatorId, Amount, Bytes, Event, EventClass, EventKind, ImageEnd, ImageId, ImageUsage, LossReason, Losses,
    OomKill, OutOfMemory, Partition, PartitionBy, Pid, Snapshot, Stack, StackId, StackKey, Stacks, Tick, Tid,
};
use counts::Counts;
use image::{Image, Room};

/// What a ledger is told before its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many live blocks it may hold; one more is [`LossReason::LedgerFull`].
    pub blocks: u64,
    /// How many stacks it may hold, counted for each image and each part that is kept apart; one more is [`LossReason::StacksFull`].
    pub stacks: u32,
    /// How many processes, and how many programs run by them, it may hold; one more is [`LossReason::ProcessesFull`].
    pub processes: u32,
    /// Whether the peak of each image's live bytes is kept. Right only where this ledger gets every event.
    pub track_peak: bool,
    /// Live numbers count only blocks that have lived at least this long: until now, or until their process' exit.
    pub older: Option<Duration>,
    /// Which parts of a process are kept apart.
    pub parts: PartitionBy,
}

/// The books of one shard.
#[derive(Debug)]
pub struct Ledger {
    settings: Settings,
    /// Every pid ever seen: its ordinal must outlive its image.
    processes: Vec<Process>,
    by_pid: FxHashMap<Pid, usize>,
    /// The index of the process that the last event was about; the next one mostly is about the same.
    last: usize,
    /// How many processes have an image.
    running: usize,
    /// The books of images that have ended, by what they are about.
    ended: BTreeMap<EventClass, Vec<(ImageId, ImageUsage)>>,
    oom_kills: BTreeSet<OomKill>,
    stacks: Stacks,
    room: Room,
    events: u64,
}

/// What is known of one pid.
#[derive(Debug)]
struct Process {
    pid: Pid,
    ordinal: u32,
    /// It is being killed for want of memory.
    is_killed: bool,
    /// What the kernel has counted of it.
    counts: Counts,
    /// The program that it runs, from its first booked event on.
    image: Option<Box<Image>>,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            processes: Vec::new(),
            by_pid: FxHashMap::default(),
            last: 0,
            running: 0,
            ended: BTreeMap::new(),
            oom_kills: BTreeSet::new(),
            stacks: Stacks::default(),
            room: Room::new(&settings),
            events: 0,
        }
    }

    /// Books one event.
    #[inline]
    pub fn apply(&mut self, event: Event) {
        self.events += 1;
        let Event { pid, tid, tick, kind } = event;
        match kind {
            EventKind::Alloc { address, size, stack, allocator } => {
                let part = self.part(tid, allocator);
                if let Some((image, room)) = self.image_of(pid) {
                    image.alloc(address, size, StackKey { stack, part }, tick, room);
                }
            }
            EventKind::Free { address } => {
                if let Some((image, room)) = self.image_of(pid) {
                    image.free(address, room);
                }
            }
            EventKind::TentativeFree { address } => {
                if let Some((image, room)) = self.image_of(pid) {
                    image.park(tid, address, room);
                }
            }
            EventKind::UndoFree { address } => {
                // Where there is no image, nothing was parked.
                let process = self.by_pid.get(&pid).and_then(|&index| self.processes.get_mut(index));
                if let Some(image) = process.and_then(|process| process.image.as_mut()) {
                    image.restore(tid, address, &mut self.room);
                }
            }
            EventKind::Fault { page, touch, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN);
                if let Some((image, room)) = self.image_of(pid) {
                    image.pages.get_or_insert_default().touch(page, touch, StackKey { stack, part }, room);
                }
            }
            EventKind::MajorFault { page } => {
                if let Some(pages) = self.running_image(pid).and_then(|image| image.pages.as_mut()) {
                    pages.waited(page);
                }
            }
            EventKind::Map { begin, size, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN);
                if let Some((image, room)) = self.image_of(pid) {
                    image.ranges.get_or_insert_default().map(begin, size, StackKey { stack, part }, room);
                }
            }
            EventKind::TentativeUnmap { begin, size } => {
                if let Some((image, room)) = self.image_of(pid) {
                    image.ranges.get_or_insert_default().park(tid, begin, size, room);
                }
            }
            EventKind::UndoUnmap => {
                if let Some((image, room)) = self.image_of(pid)
                    && let Some(ranges) = &mut image.ranges
                {
                    ranges.restore(tid, room);
                }
            }
            EventKind::Move { old, old_size, begin, size, keeps, stack } => {
                let part = self.part(tid, AllocatorId::UNKNOWN);
                if let Some((image, room)) = self.image_of(pid) {
                    if let Some(pages) = &mut image.pages {
                        pages.moved(old, begin, Bytes(old_size.0.min(size.0)), room);
                    }
                    let (from, to) = ([old.0, old_size.0], [begin.0, size.0]);
                    let ranges = image.ranges.get_or_insert_default();
                    ranges.moved(tid, from, to, keeps, StackKey { stack, part }, room);
                }
            }
            EventKind::Fork { child } => self.copy_memory(pid, child),
            EventKind::Stack { id, stack } => self.remember(id, &stack),
            EventKind::Stall(stall) => {
                let part = self.part(tid, AllocatorId::UNKNOWN);
                if let Some((image, room)) = self.image_of(pid) {
                    image.waits.get_or_insert_default().add(&stall, part, room);
                }
            }
            EventKind::OomKill(kill) => self.kill(pid, *kill, tick),
            EventKind::Rusage { counts, is_traced } => self.count(pid, counts, is_traced),
            EventKind::Exec => self.end_image(pid, ImageEnd::Exec, tick),
            EventKind::Exit => self.end_image(pid, ImageEnd::Exit, tick),
        }
    }

    /// Counts what was lost before it could become an event.
    pub fn add_loss(&mut self, reason: LossReason, count: u64) {
        self.room.losses.add(reason, count);
    }

    /// What is live now, of whatever age.
    #[must_use]
    pub const fn live(&self) -> Amount {
        self.room.live
    }

    /// How many events were applied.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// What was lost.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.room.losses
    }

    /// The books of `class` at the moment `now`. Images in which nothing happened are left out.
    #[must_use]
    pub fn snapshot(&self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.ended.get(&class).into_iter().flatten();
        Snapshot {
            images: self.running(class, now).chain(ended.cloned()).collect(),
            // Those of which this shard has no events too: another one may have them.
            stacks: self.stacks.clone(),
            oom_kills: self.oom_kills.clone(),
            losses: self.room.losses.clone(),
        }
    }

    /// As [`Ledger::snapshot`], the last: what is in it need not be held twice.
    #[must_use]
    pub fn finish(mut self, class: EventClass, now: Tick) -> Snapshot {
        let ended = self.ended.remove(&class).unwrap_or_default();
        Snapshot {
            images: self.running(class, now).chain(ended).collect(),
            stacks: std::mem::take(&mut self.stacks),
            oom_kills: std::mem::take(&mut self.oom_kills),
            losses: self.room.losses,
        }
    }

    /// The books of `class` of what still runs.
    fn running(&self, class: EventClass, now: Tick) -> impl Iterator<Item = (ImageId, ImageUsage)> + '_ {
        let usage = move |process: &Process| {
            let image = process.image.as_ref();
            match class {
                EventClass::Heap => Some(image?.usage(None, now, &self.settings)),
                EventClass::Map => Some(image?.ranges.as_ref()?.usage(None)),
                EventClass::Fault => counts::of_pages(process),
                EventClass::Reclaim => Some(image?.waits.as_ref()?.usage(None)),
            }
        };
        self.processes.iter().filter_map(move |process| {
            let usage = usage(process)?;
            image::has_books(&usage).then_some((process.image_id(), usage))
        })
    }

    const fn part(&self, tid: Tid, allocator: AllocatorId) -> Partition {
        match self.settings.parts {
            // What kind of memory a page is of is asked at the end.
            PartitionBy::Whole | PartitionBy::Memory => Partition::Whole,
            PartitionBy::Threads => Partition::Thread(tid),
            PartitionBy::Allocators => Partition::Allocator(allocator),
        }
    }

    /// The kernel kills `pid`, followed or not, and it ends soon.
    fn kill(&mut self, pid: Pid, kill: OutOfMemory, at: Tick) {
        // Known or not: another shard may have books of it, and the shards must agree on how it ends.
        let process = self.find_or_add(pid).and_then(|index| self.processes.get_mut(index));
        let ordinal = process.map_or(0, |process| {
            process.is_killed = true;
            process.ordinal
        });
        let OutOfMemory { comm, by, by_comm, group, full } = kill;
        // Each is a process' end, and of these there are not more than there may be processes.
        if self.oom_kills.len() < self.settings.processes as usize {
            self.oom_kills.insert(OomKill { at, victim: ImageId { pid, ordinal }, comm, by, by_comm, group, full });
        }
    }

    /// The image that `pid` runs, where there is one.
    fn running_image(&mut self, pid: Pid) -> Option<&mut Image> {
        let index = self.by_pid.get(&pid).copied()?;
        self.processes.get_mut(index)?.image.as_deref_mut()
    }

    /// The new process `child` has the pages and mappings of `parent`, and no others.
    fn copy_memory(&mut self, parent: Pid, child: Pid) {
        // Somebody had the pid whose exit was lost.
        if let Some(image) = self.running_image(child) {
            let (pages, ranges) = (image.pages.take(), image.ranges.take());
            self.room.pages -= pages.map_or(0, |pages| pages.count());
            self.room.ranges -= ranges.map_or(0, |ranges| ranges.count());
        }
        let index = self.by_pid.get(&parent).copied();
        let image = index.and_then(|index| self.processes.get(index)).and_then(|process| process.image.as_ref());
        let (pages, ranges) = image.map_or((&None, &None), |image| (&image.pages, &image.ranges));
        let pages = pages.as_ref().and_then(|pages| pages.copied(&mut self.room));
        let ranges = ranges.as_ref().and_then(|ranges| ranges.copied(&mut self.room));
        if let Some((image, _)) = self.image_of(child) {
            image.pages = pages;
            image.ranges = ranges;
            image.copy_of = Some(parent);
        }
    }

    /// The image that `pid` runs, opened where there is none; `None`, and a loss, where there is no room for it.
    #[inline]
    fn image_of(&mut self, pid: Pid) -> Option<(&mut Image, &mut Room)> {
        if self.processes.get(self.last).is_none_or(|process| process.pid != pid || process.image.is_none()) {
            self.open_image(pid)?;
        }
        let image = self.processes.get_mut(self.last)?.image.as_mut()?;
        Some((image, &mut self.room))
    }

    /// Makes `pid` the last process, with an image; `None`, and a loss, where there is no room for it.
    #[cold]
    fn open_image(&mut self, pid: Pid) -> Option<()> {
        let index = self.find_or_add(pid)?;
        let images = self.running + self.ended.values().map(Vec::len).max().unwrap_or(0);
        let process = self.processes.get_mut(index)?;
        if process.image.is_none() {
            if images >= self.settings.processes as usize {
                self.room.losses.add(LossReason::ProcessesFull, 1);
                return None;
            }
            process.image = Some(Box::default());
            self.running += 1;
        }
        self.last = index;
        Some(())
    }

    fn find_or_add(&mut self, pid: Pid) -> Option<usize> {
        if let Some(&index) = self.by_pid.get(&pid) {
            return Some(index);
        }
        let index = self.processes.len();
        if index >= self.settings.processes as usize {
            self.room.losses.add(LossReason::ProcessesFull, 1);
            return None;
        }
        self.processes.push(Process { pid, ordinal: 0, is_killed: false, counts: Counts::default(), image: None });
        self.by_pid.insert(pid, index);
        Some(index)
    }

    /// Closes the books of the image that `pid` runs. Where it has none the ordinal advances all the same: another
    /// shard may have books of it, and the shards must agree on what comes next.
    fn end_image(&mut self, pid: Pid, ending: ImageEnd, tick: Tick) {
        let Some(process) = self.find_or_add(pid).and_then(|index| self.processes.get_mut(index)) else { return };
        let id = process.image_id();
        process.ordinal = process.ordinal.saturating_add(1);
        let was_killed = std::mem::take(&mut process.is_killed);
        let ending = if was_killed && ending == ImageEnd::Exit { ImageEnd::OomKill } else { ending };
        let counts = process.counts.end(ending);
        if let Some(image) = process.image.take() {
            let mut keep = |class, usage| self.ended.entry(class).or_default().push((id, usage));
            self.running -= 1;
            self.room.live -= image.live();
            if let Some(pages) = &image.pages {
                self.room.pages -= pages.count();
                keep(EventClass::Fault, ImageUsage { counts, ..pages.usage(Some(ending)) });
            }
            if let Some(waits) = &image.waits {
                keep(EventClass::Reclaim, waits.usage(Some(ending)));
            }
            if let Some(ranges) = &image.ranges {
                self.room.ranges -= ranges.count();
                keep(EventClass::Map, ranges.usage(Some(ending)));
            }
            let usage = image.usage(Some(ending), tick, &self.settings);
            if image::has_books(&usage) {
                keep(EventClass::Heap, usage);
            }
        }
    }

    fn remember(&mut self, id: StackId, stack: &Stack) {
        if !id.has_frames() {
            self.room.losses.add(LossReason::BadRecord, 1);
        } else if self.stacks.contains(id) || self.stacks.len() < self.settings.stacks as usize {
            self.stacks.insert(id, stack);
        } else {
            self.room.losses.add(LossReason::StacksFull, 1);
        }
    }
}

impl Process {
    const fn image_id(&self) -> ImageId {
        ImageId { pid: self.pid, ordinal: self.ordinal }
    }
}
