//! Comparison of the ledger with a simple reference model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::model::{
    AbsAddr, AllocatorId, Bytes, EventClass, ImageId, ImageUsage, Snapshot, StackEnd, StackUsage, Tid, Usage,
};

#[derive(Clone, Copy)]
struct ReferenceBlock {
    size: u64,
    key: StackKey,
    tick: u32,
}

#[derive(Default)]
struct ReferenceImage {
    live: BTreeMap<AbsAddr, ReferenceBlock>,
    tentative: BTreeMap<Tid, (AbsAddr, Option<ReferenceBlock>)>,
    alloc: BTreeMap<StackKey, Amount>,
    free: BTreeMap<StackKey, Amount>,
    unmatched: u64,
    repeated: u64,
    peak: u64,
    at_peak: BTreeMap<StackKey, u64>,
}

/// Reference model, which recounts each number on demand.
struct ReferenceModel {
    settings: Settings,
    ordinals: BTreeMap<Pid, u32>,
    running: BTreeMap<Pid, ReferenceImage>,
    /// Images that have ended and were not taken.
    ended: Vec<EndedImage>,
    counted_stacks: BTreeSet<(ImageId, StackKey)>,
    out: Snapshot,
}

impl ReferenceImage {
    fn live_by_stack(&self, counts: impl Fn(&ReferenceBlock) -> bool) -> BTreeMap<StackKey, Amount> {
        let mut sums = BTreeMap::new();
        for block in self.live.values().filter(|block| counts(block)) {
            *sums.entry(block.key).or_default() += Amount::one(Bytes(block.size));
        }
        sums
    }

    fn recount_peak(&mut self) {
        let live: u64 = self.live.values().map(|block| block.size).sum();
        if live > self.peak {
            self.peak = live;
            self.at_peak = self.live_by_stack(|_| true).into_iter().map(|(id, live)| (id, live.bytes.0)).collect();
        }
    }

    fn remove(&mut self, address: AbsAddr) -> Option<ReferenceBlock> {
        let block = self.live.remove(&address)?;
        *self.free.entry(block.key).or_default() += Amount::one(Bytes(block.size));
        Some(block)
    }

    fn usage(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> ImageUsage {
        let age_of = |block: &ReferenceBlock| now.0.checked_sub(block.tick).map(|ticks| Tick(ticks).since_start());
        let counts = |block: &ReferenceBlock| settings.older.is_none_or(|older| age_of(block) >= Some(older));
        let everything = self.live_by_stack(|_| true);
        let held = if ended == Some(ImageEnd::Exec) { BTreeMap::new() } else { self.live_by_stack(counts) };
        let (live, exit) = if ended.is_none() { (held, BTreeMap::new()) } else { (BTreeMap::new(), held) };
        let (unmatched_frees, repeated_frees) = (self.unmatched, self.repeated);
        let mut usage = ImageUsage { ended, unmatched_frees, repeated_frees, ..ImageUsage::default() };
        for (&id, &alloc) in &self.alloc {
            let numbers = Usage {
                live: live.get(&id).copied().unwrap_or_default(),
                exit: exit.get(&id).copied().unwrap_or_default(),
                alloc,
                free: self.free.get(&id).copied().unwrap_or_default(),
                ..Usage::default()
            };
            let at_peak = Bytes(if settings.track_peak { self.at_peak.get(&id).copied().unwrap_or(0) } else { 0 });
            usage.total += numbers;
            usage.by_stack.insert(id, StackUsage { usage: numbers, at_peak, ..StackUsage::default() });
        }
        if ended == Some(ImageEnd::Exec) {
            everything.values().for_each(|live| usage.discarded += *live);
        }
        usage.peak = settings.track_peak.then_some(Bytes(self.peak));
        usage
    }

    fn has_usage(&self) -> bool {
        !self.alloc.is_empty() || self.unmatched > 0 || self.repeated > 0
    }
}

impl ReferenceModel {
    fn new(settings: Settings) -> Self {
        let (ordinals, running, counted_stacks) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { settings, ordinals, running, ended: Vec::new(), counted_stacks, out: Snapshot::default() }
    }

    fn lose(&mut self, reason: LossReason) {
        self.out.losses.add(reason, 1);
    }

    fn has_room(&self) -> bool {
        self.running.len() + self.ended.len() < self.settings.processes as usize
    }

    fn open(&mut self, pid: Pid) -> bool {
        if !self.running.contains_key(&pid) && !self.has_room() {
            self.lose(LossReason::ProcessesFull);
            return false;
        }
        self.running.entry(pid).or_default();
        true
    }

    fn id(&self, pid: Pid) -> ImageId {
        ImageId { pid, ordinal: self.ordinals.get(&pid).copied().unwrap_or(0) }
    }

    fn apply(&mut self, event: &Event) {
        let Event { pid, tid, tick, ref kind } = *event;
        match *kind {
            EventKind::Alloc { address, size, stack, allocator } if self.open(pid) => {
                let part = match self.settings.parts {
                    PartitionBy::Whole | PartitionBy::Memory => Partition::Whole,
                    PartitionBy::Threads => Partition::Thread(tid),
                    PartitionBy::Allocators => Partition::Allocator(allocator),
                };
                self.alloc(pid, address, size, StackKey { stack, part }, tick);
            }
            EventKind::Free { address } if self.open(pid) => {
                let image = self.running.get_mut(&pid).unwrap();
                if image.remove(address).is_none() {
                    image.unmatched += 1;
                }
            }
            EventKind::RepeatedFree { address } if self.open(pid) => {
                let image = self.running.get_mut(&pid).unwrap();
                if image.remove(address).is_none() {
                    image.repeated += 1;
                }
            }
            EventKind::TentativeFree { address } if self.open(pid) => {
                let image = self.running.get_mut(&pid).unwrap();
                let block = image.remove(address);
                if block.is_none() {
                    image.unmatched += 1;
                }
                image.tentative.insert(tid, (address, block));
            }
            EventKind::UndoFree { address } => {
                if let Some(image) = self.running.get_mut(&pid)
                    && let Some(&(freed, block)) = image.tentative.get(&tid)
                    && freed == address
                {
                    image.tentative.remove(&tid);
                    match block {
                        _ if image.live.contains_key(&address) => {}
                        None => image.unmatched -= 1,
                        Some(block) => {
                            image.live.insert(address, block);
                            *image.free.get_mut(&block.key).unwrap() -= Amount::one(Bytes(block.size));
                        }
                    }
                }
            }
            EventKind::Stack { id, .. } if !id.has_frames() => self.lose(LossReason::BadRecord),
            EventKind::Stack { id, ref stack } => {
                let known = self.out.stacks.get(id);
                if known.is_some() || self.out.stacks.len() < self.settings.stacks as usize {
                    if known.is_none_or(|known| stack.taken < known.taken) {
                        self.out.stacks.insert(id, stack);
                    }
                } else {
                    self.lose(LossReason::StacksFull);
                }
            }
            EventKind::Exec => self.end(pid, ImageEnd::Exec, tick),
            EventKind::Exit => self.end(pid, ImageEnd::Exit, tick),
            // The budget was exceeded, or the event concerns pages, mappings or stalls.
            EventKind::Alloc { .. }
            | EventKind::Free { .. }
            | EventKind::RepeatedFree { .. }
            | EventKind::TentativeFree { .. }
            | EventKind::Fault { .. }
            | EventKind::MajorFault { .. }
            | EventKind::Rusage { .. }
            | EventKind::Owner(_)
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

    fn alloc(&mut self, pid: Pid, address: AbsAddr, size: Bytes, mut key: StackKey, tick: Tick) {
        if self.running.get_mut(&pid).unwrap().remove(address).is_some() {
            self.lose(LossReason::FreeUnseen);
        } else if self.running.values().map(|image| image.live.len() as u64).sum::<u64>() >= self.settings.blocks {
            self.lose(LossReason::LedgerFull);
            return;
        }
        let book = (self.id(pid), key);
        if (key.stack.has_frames() || key.part != Partition::Whole) && !self.counted_stacks.contains(&book) {
            if self.counted_stacks.len() < self.settings.stacks as usize {
                self.counted_stacks.insert(book);
            } else {
                self.lose(LossReason::StacksFull);
                key = StackKey { stack: StackId::FAILED, part: Partition::Whole };
            }
        }
        let image = self.running.get_mut(&pid).unwrap();
        *image.alloc.entry(key).or_default() += Amount::one(size);
        image.live.insert(address, ReferenceBlock { size: size.0, key, tick: tick.0 });
    }

    fn end(&mut self, pid: Pid, end: ImageEnd, at: Tick) {
        let id = self.id(pid);
        *self.ordinals.entry(pid).or_insert(0) += 1;
        let image = self.running.remove(&pid).filter(ReferenceImage::has_usage);
        if self.has_room() {
            let usage = image.map(|image| (EventClass::Heap, image.usage(Some(end), at, &self.settings)));
            self.ended.push(EndedImage {
                id,
                end,
                at,
                owner: None,
                usage: usage.into_iter().collect(),
                stacks: Stacks::default(),
            });
        } else {
            self.lose(LossReason::ProcessesFull);
        }
    }

    fn snapshot(&self, now: Tick) -> Snapshot {
        let mut snapshot = self.out.clone();
        for (&pid, image) in self.running.iter().filter(|(_, image)| image.has_usage()) {
            snapshot.images.insert(self.id(pid), image.usage(None, now, &self.settings));
        }
        for image in &self.ended {
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
    /// Ends an image whose end was lost: that of a pid, or one before it.
    EndLost(Pid, bool, Tick),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => any_event().prop_map(Step::Apply),
        1 => Just(Step::Take),
        1 => (1..=3u32, any::<bool>(), 0..60u32).prop_map(|(pid, current, at)| Step::EndLost(Pid(pid), current, Tick(at))),
    ]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let older = select(vec![None, Some(0), Some(1), Some(20 << 20), Some((20 << 20) + 1)]);
    let parts = select(vec![PartitionBy::Whole, PartitionBy::Threads, PartitionBy::Allocators]);
    let bounds = (select(vec![2, 5, u64::MAX]), select(vec![0, 2, u32::MAX]), select(vec![1, 2, u32::MAX]));
    (bounds, any::<bool>(), older, parts).prop_map(|((blocks, stacks, processes), track_peak, older, parts)| {
        let older = older.map(Duration::from_nanos);
        Settings { blocks, stacks, processes, track_peak, older, parts }
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let address = (1..=6u64).prop_map(|n| AbsAddr(n * 16));
    let stack = (0..6u64).prop_map(StackId);
    let kind = prop_oneof![
        10 => (address.clone(), 0..100u64, stack.clone(), 0..3u16).prop_map(|(address, size, stack, allocator)| {
            EventKind::Alloc { address, size: Bytes(size), stack, allocator: AllocatorId(allocator) }
        }),
        6 => address.clone().prop_map(|address| EventKind::Free { address }),
        2 => address.clone().prop_map(|address| EventKind::RepeatedFree { address }),
        5 => address.clone().prop_map(|address| EventKind::TentativeFree { address }),
        5 => address.prop_map(|address| EventKind::UndoFree { address }),
        2 => (stack, 0..3u64, 0..3u64).prop_map(|(id, frame, taken)| EventKind::Stack {
            id,
            stack: Box::new(Stack { frames: [AbsAddr(frame)].into(), end: StackEnd::Complete, taken: Duration::from_nanos(taken) }),
        }),
        1 => Just(EventKind::Exec),
        1 => Just(EventKind::Exit),
    ];
    (1..=3u32, 0..2u32, 0..60u32, kind).prop_map(|(pid, thread, tick, kind)| Event {
        pid: Pid(pid),
        tid: Tid(pid * 10 + thread),
        tick: Tick(tick),
        kind,
    })
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
                    ledger.apply(event.clone());
                    naive.apply(event);
                }
                Step::Take => prop_assert_eq!(ledger.take_ended(), std::mem::take(&mut naive.ended)),
                &Step::EndLost(pid, is_current, at) => {
                    let id = naive.id(pid);
                    if is_current {
                        naive.end(pid, ImageEnd::Exit, at);
                        ledger.end_if_running(id, ImageEnd::Exit, at);
                    } else if let Some(ordinal) = id.ordinal.checked_sub(1) {
                        ledger.end_if_running(ImageId { pid, ordinal }, ImageEnd::Exit, at);
                    }
                }
            }
            prop_assert_eq!(ledger.snapshot(EventClass::Heap, Tick(now)), naive.snapshot(Tick(now)), "after {:?}", step);
        }
        let live = naive.running.values().flat_map(|image| image.live.values());
        let live = live.fold(Amount::default(), |sum, block| sum + Amount::one(Bytes(block.size)));
        prop_assert_eq!(ledger.live(), live);
        prop_assert_eq!(ledger.events(), events);
    }

    #[test]
    fn allocated_is_the_sum_of_its_parts(
        events in prop::collection::vec(any_event(), 0..120),
    ) {
        let settings = Settings { blocks: 5, stacks: 3, processes: 9, track_peak: true, older: None, parts: PartitionBy::Whole };
        let mut ledger = Ledger::new(settings);
        events.into_iter().for_each(|event| ledger.apply(event));
        for image in ledger.snapshot(EventClass::Heap, Tick(0)).images.values() {
            prop_assert_eq!(image.total.alloc, image.total.free + image.total.live + image.total.exit + image.discarded);
            let at_peak: u64 = image.by_stack.values().map(|stack| stack.at_peak.0).sum();
            prop_assert_eq!(image.peak, Some(Bytes(at_peak)));
        }
    }
}
