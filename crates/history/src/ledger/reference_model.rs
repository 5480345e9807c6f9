//! Comparison of the ledger with a simple reference model.

mod image;

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, AllocatorId, BlockHistograms, BlockQuantity, Bytes, EndedImage, EventClass, ImageId, ImageUsage, PartKeys,
    ProfileChange, Quantities, Quantity, Sample, SampleSum, Snapshot, Stack, StackEnd, StackId, TagId, Tid,
    UnsentStacks,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::budget::{MERGED_PART, is_limited};
use super::*;

use image::{ReferenceBlock, ReferenceImage};

/// Reference model of a ledger. It recomputes each number whenever the number is needed.
struct ReferenceModel {
    settings: Settings,
    ordinals: BTreeMap<Pid, u32>,
    /// Images that run, and images that have ended while other processes share their memory.
    running: BTreeMap<ImageId, ReferenceImage>,
    /// Ends of the images with memory that other processes still share.
    kept: BTreeMap<ImageId, ImageEnd>,
    /// For each process that shares the memory of another process: the image that has this memory.
    memory: BTreeMap<Pid, ImageId>,
    /// Images that have ended and were not taken.
    ended: Vec<EndedImage>,
    totals: ReferenceBudget,
    frames: ReferenceBudget,
    out: Snapshot,
}

/// Number of requested stacks since the last merge, and number of stacks of ended images that were not taken.
#[derive(Default)]
struct ReferenceBudget {
    requests: u32,
    untaken: usize,
}

impl ReferenceModel {
    fn new(settings: Settings) -> Self {
        Self {
            settings,
            ordinals: BTreeMap::new(),
            running: BTreeMap::new(),
            kept: BTreeMap::new(),
            memory: BTreeMap::new(),
            ended: Vec::new(),
            totals: ReferenceBudget::default(),
            frames: ReferenceBudget::default(),
            out: Snapshot::default(),
        }
    }

    fn lose(&mut self, reason: LossReason) {
        self.out.losses.add(reason, 1);
    }

    fn has_room(&self) -> bool {
        self.running.len() + self.ended.len() < self.settings.processes as usize
    }

    fn open(&mut self, pid: Pid) -> bool {
        let id = self.id(pid);
        if !self.running.contains_key(&id) && !self.has_room() {
            self.lose(LossReason::ProcessesFull);
            return false;
        }
        self.running.entry(id).or_default();
        true
    }

    /// Returns the ID of the image with the memory of `pid`.
    fn memory_of(&self, pid: Pid) -> ImageId {
        self.memory.get(&pid).copied().unwrap_or_else(|| self.id(pid))
    }

    fn has_sharers(&self, id: ImageId) -> bool {
        self.memory.values().any(|memory| *memory == id)
    }

    /// Returns the image with the memory of `pid`, for an event of `pid`.
    fn image(&mut self, pid: Pid) -> &mut ReferenceImage {
        let (own, memory) = (self.id(pid), self.memory_of(pid));
        if own != memory
            && let Some((_, has_events)) = &mut self.running.get_mut(&own).unwrap().sharer
        {
            *has_events = true;
        }
        let image = self.running.get_mut(&memory).unwrap();
        image.is_open = true;
        image
    }

    fn id(&self, pid: Pid) -> ImageId {
        ImageId { pid, ordinal: self.ordinals.get(&pid).copied().unwrap_or(0) }
    }

    fn used_totals(&self) -> usize {
        self.totals.untaken + self.running.values().map(ReferenceImage::used_totals).sum::<usize>()
    }

    fn used_frames(&self) -> usize {
        self.frames.untaken + self.running.values().map(|image| image.with_frames().count()).sum::<usize>()
    }

    fn merge_totals(&mut self) {
        self.totals.requests = 0;
        let images = self.running.iter();
        let idle = images.flat_map(|(&id, image)| image.idle_totals().map(move |(alloc, key)| (alloc, (id, key))));
        let idle: Vec<_> = idle.collect();
        let all = sum_of(idle.iter().flat_map(|(alloc, _)| alloc));
        for (id, key) in smallest_first(idle, all).take((self.settings.stacks / MERGED_PART) as usize + 1) {
            self.running.get_mut(&id).unwrap().merge(key);
        }
    }

    fn merge_frames(&mut self) {
        self.frames.requests = 0;
        let count = (self.settings.stacks as usize).min(self.used_frames()) / MERGED_PART as usize + 1;
        let images = self.running.iter();
        let idle = images.flat_map(|(&of, image)| image.idle_frames().map(move |(alloc, id)| (alloc, (of, id))));
        let idle = idle.collect();
        let all = sum_of(self.running.values().flat_map(|image| image.alloc.values()));
        for (of, id) in smallest_first(idle, all).take(count) {
            let stack = self.running.get_mut(&of).unwrap().stacks.get_mut(&id).unwrap();
            *stack = Stack::merged();
        }
        let merged = |image: &ReferenceImage| image.stacks.len() - image.with_frames().count();
        let all = |model: &Self| model.running.values().map(merged).sum::<usize>() as u64;
        let most = 4 * u64::from(self.settings.stacks);
        if all(self) > most {
            let mut ids: Vec<_> = self.running.iter().map(|(&id, image)| (merged(image), id)).collect();
            ids.sort_by_key(|&(merged, id)| (usize::MAX - merged, id));
            for (_, id) in ids {
                if all(self) > most / 2 {
                    self.running.get_mut(&id).unwrap().forget_merged();
                }
            }
        }
    }

    fn has_room_for_frames(&mut self) -> bool {
        self.frames.requests += 1;
        self.used_frames() < self.settings.stacks as usize
    }

    fn add_stack(&mut self, pid: Pid, id: StackId, stack: &Stack) {
        let image = self.memory_of(pid);
        let known = self.running[&image].stacks.get(&id).filter(|known| known.end != StackEnd::Merged);
        if known.is_some_and(|known| known.taken <= stack.taken) {
            return;
        }
        let mut fits = known.is_some() || self.has_room_for_frames();
        let most = (self.settings.stacks as usize).min(self.used_frames());
        if !fits && self.frames.requests as usize > most / 64 {
            self.merge_frames();
            fits = self.has_room_for_frames();
        }
        if fits {
            self.running.get_mut(&image).unwrap().stacks.insert(id, stack.clone());
        } else {
            self.lose(LossReason::StacksFull);
            self.running.get_mut(&image).unwrap().stacks.insert(id, Stack::merged());
        }
    }

    fn apply(&mut self, event: &Event) {
        let stacks = self.settings.stacks;
        if self.used_totals() >= stacks as usize && self.totals.requests > stacks / 64 {
            self.merge_totals();
        }
        let Event { pid, tid, tick, ref kind } = *event;
        match *kind {
            EventKind::Alloc { address, size, stack, allocator, tag } if self.open(pid) => {
                let key = StackKey { stack, part: self.part(tid, allocator, tag) };
                let block = ReferenceBlock { size: size.0, sample: None, level: 0, key, tick: tick.0, tid };
                self.alloc(pid, address, block);
            }
            EventKind::SampledAlloc { address, size, ref sample, thinning, stack, allocator, tag }
                if self.open(pid) =>
            {
                let key = StackKey { stack, part: self.part(tid, allocator, tag) };
                let sample = Some(Sample::clone(sample));
                let block = ReferenceBlock { size: size.0, sample, level: thinning, key, tick: tick.0, tid };
                let image = self.image(pid);
                if let Some(salt) = image.patched.filter(|_| thinning > image.level) {
                    image.thin(thinning, salt);
                    image.recount_peak();
                }
                if image.live.get(&address).is_some_and(|old| old.sample.is_some() && old.level < thinning) {
                    image.leave_out(address);
                }
                self.alloc(pid, address, block);
                let image = self.image(pid);
                image.recount_peak();
                image.thin_block(address);
            }
            EventKind::SampledFree { address } if self.open(pid) => {
                let image = self.image(pid);
                if image.live.get(&address).is_some_and(|block| block.sample.is_some()) {
                    image.free(address, tick);
                } else if image.level == 0 {
                    image.unmatched_samples += 1;
                }
            }
            EventKind::HeapProfile { image, .. }
                if image != self.id(image.pid) || image != self.memory_of(image.pid) =>
            {
                self.lose(LossReason::ProfileLate);
            }
            EventKind::HeapProfile { image, reading, ref changes } if self.open(image.pid) => {
                self.read_profile(image.pid, reading, changes, |model, id| model.part(tid, id, TagId::UNTAGGED));
            }
            EventKind::Free { address, is_last } if self.open(pid) => {
                let image = self.image(pid);
                image.add_temporary(address, tid, is_last);
                if image.free(address, tick).is_none() {
                    image.unmatched += 1;
                }
            }
            EventKind::Claim { address, tag } if self.open(pid) => {
                let image = self.image(pid);
                match image.free(address, tick) {
                    None => image.unmatched += 1,
                    Some(block) => {
                        let part = self.part(tid, block.key.part.allocator().unwrap_or_default(), tag);
                        let key = StackKey { stack: block.key.stack, part };
                        // The limit of blocks does not matter, because the block is known.
                        self.insert(pid, address, ReferenceBlock { key, tid, ..block });
                    }
                }
            }
            EventKind::RepeatedFree { address } if self.open(pid) => {
                let image = self.image(pid);
                if image.free(address, tick).is_none() {
                    image.repeated += 1;
                }
            }
            EventKind::TentativeFree { address, is_last } if self.open(pid) => {
                let image = self.image(pid);
                let is_temporary = image.add_temporary(address, tid, is_last);
                let block = image.free(address, tick);
                let is_unmatched = block.is_none() && image.level == 0;
                image.unmatched += u64::from(is_unmatched);
                image.tentative.insert(tid, (address, block, tick, is_temporary, is_unmatched));
            }
            EventKind::UndoFree { address } => {
                let memory = self.memory_of(pid);
                if let Some(image) = self.running.get_mut(&memory)
                    && let Some(&(freed, block, at, is_temporary, is_unmatched)) = image.tentative.get(&tid)
                    && freed == address
                {
                    image.tentative.remove(&tid);
                    match block {
                        _ if image.live.contains_key(&address) => {}
                        None => image.unmatched -= u64::from(is_unmatched),
                        Some(block) => {
                            image.live.insert(address, block);
                            *image.free.get_mut(&block.key).unwrap() -= block.amount();
                            if is_temporary {
                                *image.temporary.get_mut(&block.key).unwrap() -= block.amount();
                            }
                            let times = image.lifetimes.get_mut(&block.key).unwrap();
                            let lifetime = (at.0.saturating_sub(block.tick), block.amount().count);
                            let undone = times.iter().position(|time| *time == lifetime).unwrap();
                            times.remove(undone);
                            image.recount_peak();
                            image.thin_block(address);
                        }
                    }
                }
            }
            EventKind::Stack { id, .. } if !id.has_frames() => self.lose(LossReason::BadRecord),
            EventKind::Stack { id, ref stack } if self.open(pid) => self.add_stack(pid, id, stack),
            EventKind::Share { child, is_traced } if self.open(pid) && self.open(child) => {
                self.share(pid, child, is_traced, tick);
            }
            EventKind::Unshare => self.unshare(pid, tid, tick),
            EventKind::Exec => self.end_with_thread(pid, tid, ImageEnd::Exec, tick),
            EventKind::Exit => self.end_with_thread(pid, tid, ImageEnd::Exit, tick),
            EventKind::ThreadExit => self.end_thread(pid, tid),
            // The budget was exceeded, or the model does not cover the event.
            EventKind::Alloc { .. }
            | EventKind::SampledAlloc { .. }
            | EventKind::SampledFree { .. }
            | EventKind::HeapProfile { .. }
            | EventKind::Free { .. }
            | EventKind::Claim { .. }
            | EventKind::RepeatedFree { .. }
            | EventKind::TentativeFree { .. }
            | EventKind::Stack { .. }
            | EventKind::Share { .. }
            | EventKind::Fault { .. }
            | EventKind::MajorFault { .. }
            | EventKind::Rusage { .. }
            | EventKind::Owner(_)
            | EventKind::Dropped { .. }
            | EventKind::Map { .. }
            | EventKind::TentativeUnmap { .. }
            | EventKind::UndoUnmap
            | EventKind::Move { .. }
            | EventKind::Stall(_)
            | EventKind::OomKill(_)
            | EventKind::Fork { .. } => {}
        }
        self.running.values_mut().for_each(ReferenceImage::recount_peak);
    }

    fn part(&self, tid: Tid, allocator: AllocatorId, tag: TagId) -> Part {
        let has = |key| self.settings.parts.contains(key);
        let part = if has(PartKeys::THREAD) { Part::WHOLE.with_thread(tid) } else { Part::WHOLE };
        let part = if has(PartKeys::ALLOCATOR) { part.with_allocator(allocator) } else { part };
        if has(PartKeys::TAG) { part.with_tag(tag) } else { part }
    }

    fn alloc(&mut self, pid: Pid, address: AbsAddr, block: ReferenceBlock) {
        if self.image(pid).free(address, Tick(block.tick)).is_some() {
            self.lose(LossReason::FreeUnseen);
        } else if self.blocks() + block.blocks() > self.settings.blocks {
            self.lose(LossReason::LedgerFull);
            return;
        }
        self.insert(pid, address, block);
    }

    /// Returns the number of blocks that all live blocks count as in the limit of blocks.
    fn blocks(&self) -> u64 {
        self.running.values().flat_map(|image| image.live.values()).map(ReferenceBlock::blocks).sum()
    }

    fn insert(&mut self, pid: Pid, address: AbsAddr, block: ReferenceBlock) {
        let key = self.admit(pid, block.key);
        let image = self.image(pid);
        *image.alloc.entry(key).or_default() += block.amount();
        image.sizes.entry(key).or_default().push((block.size, block.amount().count));
        image.samples.entry(key).or_default().extend(block.sample);
        image.sampled.extend(block.sample.map(|_| key));
        image.live.insert(address, ReferenceBlock { key, ..block });
    }

    /// Returns the key of the totals that an allocation counts for.
    fn admit(&mut self, pid: Pid, key: StackKey) -> StackKey {
        if is_limited(key) && !self.image(pid).alloc.contains_key(&key) {
            self.totals.requests += 1;
            if self.used_totals() >= self.settings.stacks as usize {
                self.lose(LossReason::StacksFull);
                return StackId::FAILED.into();
            }
        }
        key
    }

    fn read_profile(
        &mut self,
        pid: Pid,
        reading: u32,
        changes: &[ProfileChange],
        part: impl Fn(&Self, AllocatorId) -> Part,
    ) {
        if self.image(pid).profile.readings != reading {
            self.lose(LossReason::ProfileUnread);
            return;
        }
        self.image(pid).profile.readings += 1;
        for ProfileChange { stack, allocator, alloc, .. } in changes {
            if alloc.amount != Amount::default() {
                let key = self.admit(pid, StackKey { stack: *stack, part: part(self, *allocator) });
                let image = self.image(pid);
                *image.alloc.entry(key).or_default() += alloc.amount;
                image.profile.alloc.entry(key).or_default().push(*alloc);
                *image.profile.live.entry(key).or_default() += *alloc;
            }
        }
        for ProfileChange { stack, allocator, free, .. } in changes {
            let key = StackKey { stack: *stack, part: part(self, *allocator) };
            let rest = self.image(pid).free_profiled(key, *free);
            let rest = self.image(pid).free_profiled(StackId::FAILED.into(), rest);
            if rest.amount != Amount::default() {
                self.lose(LossReason::BadRecord);
            }
        }
    }

    fn thin(&mut self, id: ImageId, level: u8, salt: u64) {
        if self.memory.contains_key(&id.pid) || !self.open(id.pid) {
            return;
        }
        let image = self.running.get_mut(&id).unwrap();
        image.is_open = true;
        image.thin(level, salt);
        image.recount_peak();
    }

    fn share(&mut self, parent: Pid, child: Pid, is_listed: bool, at: Tick) {
        let (own, memory) = (self.id(child), self.memory_of(parent));
        let before = if own == memory { self.memory.remove(&child) } else { self.memory.insert(child, memory) };
        if own != memory && is_listed {
            self.running.get_mut(&own).unwrap().sharer.get_or_insert((memory.pid, false));
        }
        before.into_iter().for_each(|before| self.leave(before, at));
    }

    fn unshare(&mut self, pid: Pid, tid: Tid, at: Tick) {
        let Some(memory) = self.memory.get(&pid).copied() else { return };
        self.end_thread(pid, tid);
        self.memory.remove(&pid);
        let own = self.id(pid);
        let image = &self.running[&own];
        if !self.has_sharers(own) && image.sharer.is_none() && !image.is_open && image.stacks.is_empty() {
            self.running.remove(&own);
        }
        self.leave(memory, at);
    }

    /// Ends a kept image, if no process shares its memory any more.
    fn leave(&mut self, memory: ImageId, at: Tick) {
        if !self.has_sharers(memory)
            && let Some(end) = self.kept.remove(&memory)
        {
            self.add_ended(memory, end, at);
        }
    }

    fn end_thread(&mut self, pid: Pid, tid: Tid) {
        // The realloc of a thread that has ended does not return.
        let memory = self.memory_of(pid);
        if let Some(image) = self.running.get_mut(&memory) {
            image.tentative.remove(&tid);
        }
    }

    fn end_with_thread(&mut self, pid: Pid, tid: Tid, end: ImageEnd, at: Tick) {
        if self.memory.contains_key(&pid) {
            self.end_thread(pid, tid);
        }
        self.end(pid, end, at);
    }

    fn end(&mut self, pid: Pid, end: ImageEnd, at: Tick) {
        let id = self.id(pid);
        *self.ordinals.entry(pid).or_insert(0) += 1;
        let memory = self.memory.remove(&pid);
        if self.has_sharers(id) {
            self.kept.insert(id, end);
        } else {
            self.add_ended(id, end, at);
        }
        memory.into_iter().for_each(|memory| self.leave(memory, at));
    }

    fn add_ended(&mut self, id: ImageId, end: ImageEnd, at: Tick) {
        let image = self.running.remove(&id).unwrap_or_default();
        if self.has_room() {
            let usage = image.reported(Some(end), at, &self.settings).map(|usage| (EventClass::Heap, usage));
            self.totals.untaken += image.used_totals();
            self.frames.untaken += image.with_frames().count();
            let stacks = image.stacks.into_iter().collect();
            let usage = usage.into_iter().collect();
            self.ended.push(EndedImage { id, end, at, owner: None, usage, stacks, unsent: UnsentStacks::None });
        } else {
            self.lose(LossReason::ProcessesFull);
        }
    }

    fn take_ended(&mut self) -> Vec<EndedImage> {
        (self.totals.untaken, self.frames.untaken) = (0, 0);
        std::mem::take(&mut self.ended)
    }

    fn snapshot(&self, now: Tick) -> Snapshot {
        let mut snapshot = self.out.clone();
        for image in self.running.values() {
            image.stacks.iter().for_each(|(&id, stack)| snapshot.stacks.insert(id, stack));
        }
        let reported = |(&id, image): (&ImageId, &ReferenceImage)| {
            image.reported(None, now, &self.settings).map(|usage| (id, usage))
        };
        snapshot.images.extend(self.running.iter().filter_map(reported));
        for image in &self.ended {
            image.stacks.ids().for_each(|id| snapshot.stacks.insert(id, &image.stacks.get(id).unwrap()));
            if image.end == ImageEnd::Exit || !image.usage.is_empty() {
                snapshot.ends.insert(image.id, (image.end, image.at));
            }
            snapshot.images.extend(image.usage.iter().map(|(_, usage)| (image.id, usage.clone())));
        }
        snapshot
    }
}

/// Step of a run.
#[derive(Clone, Debug)]
enum Step {
    Apply(Event),
    /// Takes the ended images.
    Take,
    /// Ends an image after the record of its end was lost: pid, true for its current image or false for its
    /// previous image, and time.
    EndLost(Pid, bool, Tick),
    /// Reads the profile of a process: pid, changes, and errors in the ordinal of the image and in the number of the
    /// reading.
    Read(Pid, Vec<ProfileChange>, [u32; 2]),
    /// Thins the samples of the current image of a process: pid, level and salt.
    Thin(Pid, u8, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => any_event().prop_map(Step::Apply),
        1 => Just(Step::Take),
        1 => (1..=3u32, any::<bool>(), 0..60u32).prop_map(|(pid, current, at)| Step::EndLost(Pid(pid), current, Tick(at))),
        4 => (1..=3u32, prop::collection::vec(any_change(), 0..4), select(vec![[0, 0], [0, 0], [0, 0], [1, 0], [0, 1]]))
            .prop_map(|(pid, changes, errors)| Step::Read(Pid(pid), changes, errors)),
        3 => (1..=3u32, 0..5u8, any::<u64>()).prop_map(|(pid, level, salt)| Step::Thin(Pid(pid), level, salt)),
    ]
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (0..500_u64, 1..9_u64, 0..1_u128 << 90, 0..1_u128 << 40).prop_map(
        |(bytes, count, bytes_variance, count_variance)| Sample {
            amount: Amount { bytes: Bytes(bytes), count },
            bytes_variance,
            count_variance,
        },
    )
}

/// Returns a change of a profile. It can have more frees than allocations.
fn any_change() -> impl Strategy<Value = ProfileChange> {
    let sum = || {
        prop::collection::vec(any_sample(), 0..3).prop_map(|samples| {
            samples.into_iter().fold(SampleSum::default(), |mut sum, sample| {
                sum += SampleSum::from(sample);
                sum
            })
        })
    };
    (0..8u64, 0..3u16, sum(), sum()).prop_map(|(stack, allocator, alloc, free)| ProfileChange {
        stack: StackId(stack),
        allocator: AllocatorId(allocator),
        alloc,
        free,
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let older = select(vec![None, Some(0), Some(1), Some(20 << 20), Some((20 << 20) + 1)]);
    let parts = select(vec![
        PartKeys::NONE,
        PartKeys::THREAD,
        PartKeys::ALLOCATOR,
        PartKeys::TAG,
        PartKeys::THREAD.union(PartKeys::TAG),
    ]);
    let bounds = (select(vec![2, 5, u64::MAX]), select(vec![0, 2, 5, u32::MAX]), select(vec![1, 2, u32::MAX]));
    (bounds, any::<(bool, bool)>(), older, parts).prop_map(
        |((blocks, stacks, processes), (track_peak, lifetimes), older, parts)| {
            let older = older.map(Duration::from_nanos);
            Settings { blocks, stacks, processes, track_peak, older, lifetimes, page_sample: 1, parts, accounts: None }
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let address = (1..=6u64).prop_map(|n| AbsAddr(n * 16));
    let stack = (0..8u64).prop_map(StackId);
    let kind = prop_oneof![
        10 => (address.clone(), 0..100u64, stack.clone(), 0..3u16).prop_map(|(address, size, stack, number)| {
            let (allocator, tag) = (AllocatorId(number), TagId(2 - number));
            EventKind::Alloc { address, size: Bytes(size), stack, allocator, tag }
        }),
        8 => (address.clone(), 0..100u64, stack.clone(), 0..3u16, any_sample(), 0..4u8).prop_map(
            |(address, size, stack, number, sample, thinning)| {
                let (allocator, tag, sample) = (AllocatorId(number), TagId(2 - number), Box::new(sample));
                EventKind::SampledAlloc { address, size: Bytes(size), sample, thinning, stack, allocator, tag }
            },
        ),
        4 => address.clone().prop_map(|address| EventKind::SampledFree { address }),
        3 => (address.clone(), 0..3u16).prop_map(|(address, tag)| EventKind::Claim { address, tag: TagId(tag) }),
        6 => (address.clone(), any::<bool>()).prop_map(|(address, is_last)| EventKind::Free { address, is_last }),
        2 => address.clone().prop_map(|address| EventKind::RepeatedFree { address }),
        5 => (address.clone(), any::<bool>()).prop_map(|(address, is_last)| EventKind::TentativeFree { address, is_last }),
        5 => address.prop_map(|address| EventKind::UndoFree { address }),
        3 => (stack, 0..3u64).prop_map(|(id, taken)| EventKind::Stack {
            id,
            stack: Box::new(Stack { frames: [AbsAddr(id.0)].into(), end: StackEnd::Complete, taken: Duration::from_nanos(taken) }),
        }),
        2 => (1..=3u32, any::<bool>()).prop_map(|(child, is_traced)| EventKind::Share { child: Pid(child), is_traced }),
        1 => Just(EventKind::Unshare),
        1 => Just(EventKind::Exec),
        1 => Just(EventKind::Exit),
        1 => Just(EventKind::ThreadExit),
    ];
    (1..=3u32, 0..2u32, 0..60u32, kind).prop_map(|(pid, thread, tick, kind)| Event {
        pid: Pid(pid),
        tid: Tid(pid * 10 + thread),
        tick: Tick(tick),
        kind,
    })
}

/// Returns the items, the smallest first. The size of an item is its share of all allocated bytes plus its share of
/// all allocations.
fn smallest_first<T: Ord>(items: Vec<(Vec<Amount>, T)>, all: Amount) -> impl Iterator<Item = T> {
    let share = |part: u64, all: u64| (u128::from(part) << 48) / u128::from(all.max(1));
    let size = |alloc: &Amount| share(alloc.bytes.0, all.bytes.0) + share(alloc.count, all.count);
    let mut items: Vec<_> =
        items.into_iter().map(|(parts, item)| (parts.iter().map(size).sum::<u128>(), item)).collect();
    items.sort_unstable();
    items.into_iter().map(|(_, item)| item)
}

/// Returns the sum of `amounts`.
fn sum_of<'a>(amounts: impl Iterator<Item = &'a Amount>) -> Amount {
    amounts.fold(Amount::default(), |sum, amount| sum + *amount)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_ledger_equals_the_reference_model(
        settings in any_settings(),
        steps in prop::collection::vec(any_step(), 0..120),
        now in 0..60u32,
    ) {
        let (mut ledger, mut naive) = (Ledger::new(settings), ReferenceModel::new(settings));
        let mut events = 0;
        for step in &steps {
            match step {
                Step::Apply(event) => {
                    events += 1;
                    ledger.apply(event);
                    naive.apply(event);
                }
                Step::Take => prop_assert_eq!(ledger.take_ended(), naive.take_ended()),
                &Step::EndLost(pid, is_current, at) => {
                    let id = naive.id(pid);
                    if is_current {
                        naive.end(pid, ImageEnd::Exit, at);
                        ledger.end_if_running(id, ImageEnd::Exit, at);
                    } else if let Some(ordinal) = id.ordinal.checked_sub(1) {
                        ledger.end_if_running(ImageId { pid, ordinal }, ImageEnd::Exit, at);
                    }
                }
                Step::Read(pid, changes, [ordinal, reading]) => {
                    events += 1;
                    let known = naive.running.get(&naive.memory_of(*pid)).map_or(0, |image| image.profile.readings);
                    let ImageId { pid, ordinal: current } = naive.id(*pid);
                    let image = ImageId { pid, ordinal: current + ordinal };
                    let changes = changes.as_slice().into();
                    let kind = EventKind::HeapProfile { image, reading: known + reading, changes };
                    let event = Event { pid, tid: Tid(pid.0 * 10), tick: Tick(0), kind };
                    ledger.apply(&event);
                    naive.apply(&event);
                }
                &Step::Thin(pid, level, salt) => {
                    let id = naive.id(pid);
                    naive.thin(id, level, salt);
                    ledger.thin(id, level, salt);
                }
            }
            prop_assert_eq!(ledger.snapshot(EventClass::Heap, Tick(now)), naive.snapshot(Tick(now)), "after {:?}", step);
        }
        let live = naive.running.values().flat_map(ReferenceImage::all_live);
        let live = live.fold(Amount::default(), |sum, (_, live)| sum + live);
        prop_assert_eq!(ledger.live(), live);
        prop_assert_eq!(ledger.events(), events);
    }

    #[test]
    fn allocated_is_the_sum_of_its_parts(
        events in prop::collection::vec((any_event(), prop::option::weighted(0.1, (1..=3u32, 0..5u8))), 0..120),
    ) {
        let settings = Settings { blocks: 5, stacks: 3, processes: 9, track_peak: true, older: None, lifetimes: true, page_sample: 1, parts: PartKeys::NONE, accounts: None };
        let mut ledger = Ledger::new(settings);
        for (event, thinned) in events {
            ledger.apply(&event);
            if let Some((pid, level)) = thinned {
                ledger.thin(ledger.current(Pid(pid)), level, 7);
            }
        }
        let snapshot = ledger.snapshot(EventClass::Heap, Tick(0));
        for image in snapshot.images.values().filter(|image| image.shares_memory_of.is_none()) {
            prop_assert_eq!(image.total.left_out(), Amount::default());
            for (key, stack) in &image.by_stack {
                let histograms = image.histograms.get(key).cloned().unwrap_or_default();
                let totals = BlockQuantity::ALL.map(|quantity| histograms.total(quantity));
                let held = stack.live().count + stack.exit().count;
                prop_assert_eq!(totals, [stack.alloc().count, stack.free().count, held]);
            }
            let at_peak: u64 = image.by_stack.values().map(|stack| stack[Quantity::AtPeakBytes]).sum();
            prop_assert_eq!(image.peak, Some(Bytes(at_peak)));
        }
    }
}
