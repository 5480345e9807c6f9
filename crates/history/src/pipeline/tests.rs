mod accounts;
mod deltas;
mod ended;
mod readings;
mod thinning;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use memtrace_common::wire::{ring_of, ring_of_memory};
use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, CgroupId, EventKind, Nanoseconds, Order, OutOfMemory, PAGE, PartKeys, Pid,
    ProfileChange, ReclaimKind, Sample, SampleSum, Stack, StackEnd, StackId, Stall, TagId, Tid, Touch, rounding_key,
};
use proptest::prelude::*;

use super::*;

const NOW: Tick = Tick(500);

/// Source that holds all its events from the start.
struct FixedSource(VecDeque<Event>);

impl Source for FixedSource {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        let records = self.0.len().min(limit);
        self.0.drain(..records).for_each(sink);
        Drained { records, bad: 0 }
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

/// Source with few events at a time.
struct SlowSource(FixedSource);

impl Source for SlowSource {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        self.0.drain(limit.min(10), sink)
    }

    fn wait(&mut self, timeout: Duration) {
        self.0.wait(timeout);
    }
}

/// Record of a [`ChannelSource`]; `None` is an invalid one.
type Record = Option<Event>;

/// Source that is filled while its shard runs. It reports the name of the thread that drains it.
struct ChannelSource {
    records: Receiver<Record>,
    name: Sender<String>,
}

impl Source for ChannelSource {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, mut sink: F) -> Drained {
        let _ = self.name.send(thread::current().name().unwrap_or_default().to_owned());
        let mut drained = Drained::default();
        for record in self.records.try_iter().take(limit) {
            drained.records += 1;
            match record {
                Some(event) => sink(event),
                None => drained.bad += 1,
            }
        }
        drained
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

/// Source with reads that end when the test permits it.
struct Gate(Receiver<()>);

impl Source for Gate {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, _: F) -> Drained {
        // After the test, the channel is closed.
        let _ = self.0.recv();
        Drained::default()
    }

    fn wait(&mut self, _: Duration) {}
}

/// Source that sends a message when it returns memory.
struct Returning(Sender<()>);

impl Source for Returning {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, _: F) -> Drained {
        Drained::default()
    }

    fn return_memory(&mut self) {
        let _ = self.0.send(());
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

#[test]
fn each_shard_returns_memory_on_request() {
    let (sender, returned) = channel();
    let sources = vec![Returning(sender.clone()), Returning(sender)];
    let mut shards = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
    shards.return_memory();
    assert!(shards.finish(NOW).failures.is_empty());
    assert_eq!(returned.iter().count(), 2);
}

struct Panicking;

impl Source for Panicking {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, _: F) -> Drained {
        panic!("the ring is on fire");
    }

    fn wait(&mut self, _: Duration) {}
}

fn alloc(address: u64, size: u64) -> Event {
    let kind = EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(size),
        stack: StackId(7),
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind }
}

fn run(events: &[Event], shards: u32, settings: Settings) -> Snapshot {
    finish(events, shards, settings).snapshots.0.remove(&EventClass::Heap).unwrap()
}

/// Returns the totals of a run in all event classes.
fn finish(events: &[Event], shards: u32, settings: Settings) -> RunTotals {
    Shards::start(sources(events, shards), settings, EventClass::ALL, &Sinks::default()).unwrap().finish(NOW)
}

/// Distributes events over the sources of shards as the BPF programs do over rings.
fn sources(events: &[Event], shards: u32) -> Vec<FixedSource> {
    let mut rings = vec![VecDeque::new(); shards as usize];
    // Process that had the memory first, for each process that shares its memory.
    let mut mains: BTreeMap<Pid, Pid> = BTreeMap::new();
    for event in events {
        let main = mains.get(&event.pid).copied().unwrap_or(event.pid);
        match event.kind {
            EventKind::Share { child, .. } => {
                mains.insert(child, main);
            }
            EventKind::Unshare | EventKind::Exec | EventKind::Exit => {
                mains.remove(&event.pid);
            }
            _ => {}
        }
        match event.kind {
            EventKind::Alloc { address, .. }
            | EventKind::SampledAlloc { address, .. }
            | EventKind::SampledFree { address }
            | EventKind::Free { address, .. }
            | EventKind::RepeatedFree { address }
            | EventKind::Claim { address, .. }
            | EventKind::TentativeFree { address, .. }
            | EventKind::UndoFree { address } => {
                rings[ring_of(main.0, address.0, shards) as usize].push_back(event.clone());
            }
            EventKind::Stack { id, .. } => rings[(id.0 % u64::from(shards)) as usize].push_back(event.clone()),
            EventKind::Stall(_) => {
                rings[ring_of(main.0, u64::from(event.tid.0) << 4, shards) as usize].push_back(event.clone());
            }
            EventKind::Fault { .. }
            | EventKind::HeapProfile { .. }
            | EventKind::MajorFault { .. }
            | EventKind::Rusage { .. }
            | EventKind::Fork { .. }
            | EventKind::Map { .. }
            | EventKind::TentativeUnmap { .. }
            | EventKind::UndoUnmap
            | EventKind::Move { .. } => {
                rings[ring_of_memory(main.0, true, shards) as usize].push_back(event.clone());
            }
            EventKind::Dropped { .. } => rings[0].push_back(event.clone()),
            EventKind::Owner(_)
            | EventKind::Exec
            | EventKind::Exit
            | EventKind::ThreadExit
            | EventKind::Share { .. }
            | EventKind::Unshare
            | EventKind::OomKill(_) => {
                rings.iter_mut().for_each(|ring| ring.push_back(event.clone()));
            }
        }
    }
    rings.into_iter().map(FixedSource).collect()
}

/// Step of a thread: pid, index of the thread, index of the address, and action.
type Step = (u32, u32, u64, Action);

#[derive(Clone, Debug)]
enum Action {
    Alloc {
        size: u64,
        stack: u64,
    },
    SampledAlloc {
        size: u64,
        stack: u64,
    },
    SampledFree,
    /// Reads the profile of the process, with these numbers of samples.
    Profile {
        stack: u64,
        alloc: u64,
        free: u64,
    },
    Free,
    TentativeFree,
    /// Undoes the last tentative free of the thread.
    UndoFree,
    Stack(u64),
    Touch {
        touch: Touch,
        stack: u64,
    },
    Wait,
    Stall {
        work: ReclaimKind,
        stack: u64,
    },
    OomKill,
    Map {
        pages: u64,
        stack: u64,
    },
    TentativeUnmap(u64),
    UndoUnmap,
    /// Moves a mapping to another address.
    Move {
        pages: u64,
        to: u64,
        keeps: bool,
    },
    Fork,
    Share {
        is_traced: bool,
    },
    Unshare,
    Exec,
    Exit,
}

fn any_step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        8 => (0..100u64, 0..8u64).prop_map(|(size, stack)| Action::Alloc { size, stack }),
        4 => (1..100u64, 0..8u64).prop_map(|(size, stack)| Action::SampledAlloc { size, stack }),
        3 => Just(Action::SampledFree),
        4 => (0..8u64, 0..4u64, 0..4u64).prop_map(|(stack, alloc, free)| Action::Profile { stack, alloc, free }),
        6 => Just(Action::Free),
        5 => Just(Action::TentativeFree),
        5 => Just(Action::UndoFree),
        2 => (2..8u64).prop_map(Action::Stack),
        6 => (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), 0..8u64)
            .prop_map(|(present, write, huge, stack)| Action::Touch { touch: Touch { present, write, huge }, stack }),
        2 => Just(Action::Wait),
        3 => (prop::sample::select(ReclaimKind::ALL), 0..8u64).prop_map(|(work, stack)| Action::Stall { work, stack }),
        1 => Just(Action::OomKill),
        4 => (1..9u64, 0..8u64).prop_map(|(pages, stack)| Action::Map { pages, stack }),
        3 => (1..9u64).prop_map(Action::TentativeUnmap),
        1 => Just(Action::UndoUnmap),
        2 => (1..9u64, 1..12u64, any::<bool>()).prop_map(|(pages, to, keeps)| Action::Move { pages, to, keeps }),
        1 => Just(Action::Fork),
        2 => any::<bool>().prop_map(|is_traced| Action::Share { is_traced }),
        1 => Just(Action::Unshare),
        1 => Just(Action::Exec),
        1 => Just(Action::Exit),
    ];
    (1..3u32, 0..3u32, 1..12u64, action)
}

/// Returns the events of these steps. There are three constraints. An undo refers to the thread's last tentative free in the
/// same memory: a thread cannot have two pending reallocs. The child of a fork shares no memory: the fork would end the share
/// in one shard only. Nor do processes with profiles share memory: each profile is read once.
fn events_of(steps: Vec<Step>) -> Vec<Event> {
    let mut events = Vec::new();
    let mut pending = BTreeMap::new();
    let mut sharers = BTreeSet::new();
    let mut ordinals: BTreeMap<u32, u32> = BTreeMap::new();
    let mut readings: BTreeMap<ImageId, u32> = BTreeMap::new();
    for (tick, (pid, thread, nth, action)) in steps.into_iter().enumerate() {
        let (tid, address) = (Tid(10 * pid + thread), AbsAddr(0x7000_0000 + nth * 48));
        // Pages with a distance of five pages, so that mappings of up to eight pages can overlap.
        let page = AbsAddr(0x7000_0000 + nth * 5 * PAGE.0);
        let kind = match action {
            Action::Alloc { size, stack } => EventKind::Alloc {
                address,
                size: Bytes(size),
                stack: StackId(stack),
                allocator: AllocatorId::UNKNOWN,
                tag: TagId::UNTAGGED,
            },
            Action::SampledAlloc { size, stack } => EventKind::SampledAlloc {
                address,
                size: Bytes(size),
                sample: Box::new(Sample::of_poisson(Bytes(size), Bytes(256), rounding_key(address, Tick(tick as u32)))),
                thinning: 0,
                stack: StackId(stack),
                allocator: AllocatorId::UNKNOWN,
                tag: TagId::UNTAGGED,
            },
            Action::SampledFree => EventKind::SampledFree { address },
            Action::Profile { .. } if !sharers.is_empty() => continue,
            Action::Profile { stack, alloc, free } => {
                let ordinal = ordinals.get(&pid).copied().unwrap_or_default();
                let image = ImageId { pid: Pid(pid), ordinal };
                let reading = readings.entry(image).or_default();
                *reading += 1;
                let sum = |samples| SampleSum::of_poisson(samples, Bytes(nth * 8), Bytes(256), nth);
                let (stack, allocator) = (StackId(stack), AllocatorId::UNKNOWN);
                let changes = [ProfileChange { stack, allocator, alloc: sum(alloc), free: sum(free) }].into();
                EventKind::HeapProfile { image, reading: *reading - 1, changes }
            }
            Action::Free => EventKind::Free { address, is_last: tick % 2 == 0 },
            Action::TentativeFree => {
                pending.insert(tid, address);
                EventKind::TentativeFree { address, is_last: tick % 2 == 0 }
            }
            Action::UndoFree => match pending.get(&tid) {
                Some(&address) => EventKind::UndoFree { address },
                None => continue,
            },
            Action::Stack(id) => {
                let stack = Box::new(Stack {
                    frames: [AbsAddr(id)].into(),
                    end: StackEnd::Complete,
                    taken: Duration::from_nanos(tick as u64),
                });
                EventKind::Stack { id: StackId(id), stack }
            }
            Action::Touch { touch, stack } => EventKind::Fault { page, touch, stack: StackId(stack) },
            Action::Wait => EventKind::MajorFault { page },
            Action::Stall { work, stack } => EventKind::Stall(Box::new(Stall {
                work,
                order: Order::of(nth as u32 % 12),
                group: CgroupId::of(nth % 3),
                stack: StackId(stack),
                duration: Nanoseconds(nth * 1000),
                throttled: Nanoseconds(nth),
                scanned: 32,
                reclaimed: nth,
            })),
            Action::OomKill => EventKind::OomKill(Box::new(OutOfMemory {
                comm: String::from("victim"),
                by: Pid(3 - pid),
                by_comm: String::from("eater"),
                group: CgroupId::of(nth % 3),
                full: None,
            })),
            Action::Map { pages, stack } => {
                EventKind::Map { begin: page, size: Bytes(pages * PAGE.0), stack: StackId(stack) }
            }
            Action::TentativeUnmap(pages) => EventKind::TentativeUnmap { begin: page, size: Bytes(pages * PAGE.0) },
            Action::UndoUnmap => EventKind::UndoUnmap,
            Action::Move { pages, to, keeps } => EventKind::Move {
                old: page,
                old_size: Bytes(3 * PAGE.0),
                begin: AbsAddr(0x7100_0000 + to * 5 * PAGE.0),
                size: Bytes(pages * PAGE.0),
                keeps,
                stack: StackId(3),
            },
            Action::Fork if sharers.contains(&Pid(3 - pid)) => continue,
            Action::Fork => EventKind::Fork { child: Pid(3 - pid) },
            Action::Share { is_traced } => EventKind::Share { child: Pid(3 - pid), is_traced },
            Action::Unshare => EventKind::Unshare,
            Action::Exec => EventKind::Exec,
            Action::Exit => EventKind::Exit,
        };
        if matches!(kind, EventKind::Exec | EventKind::Exit) {
            *ordinals.entry(pid).or_default() += 1;
        }
        // A process that gets other memory has no pending call.
        let changed = match kind {
            EventKind::Share { child, .. } => Some(child),
            EventKind::Unshare | EventKind::Exec | EventKind::Exit => Some(Pid(pid)),
            _ => None,
        };
        if let EventKind::Share { child, .. } = kind {
            sharers.insert(child);
        } else if let Some(ended) = changed {
            sharers.remove(&ended);
        }
        pending.retain(|tid: &Tid, _| changed.is_none_or(|Pid(changed)| tid.0 / 10 != changed));
        events.push(Event { pid: Pid(pid), tid, tick: Tick(tick as u32), kind });
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn snapshots_are_equal_for_any_number_of_shards(
        steps in prop::collection::vec(any_step(), 0..300),
        older in prop::option::of((0..300u32).prop_map(|ticks| Tick(ticks).since_start())),
    ) {
        let events = events_of(steps);
        let settings = Settings { older, lifetimes: true, ..Settings::UNLIMITED };
        let one = finish(&events, 1, settings).snapshots;
        for shards in [2, 4, 7] {
            prop_assert_eq!(&finish(&events, shards, settings).snapshots, &one);
        }
    }
}

#[test]
fn finishing_applies_all_remaining_events() {
    let events: Vec<_> = (1..=100_000).map(|n| alloc(n * 16, 1)).collect();
    let totals = finish(&events, 2, Settings::UNLIMITED);
    assert_eq!(totals.events, 100_000);
    let live = totals.snapshots.0[&EventClass::Heap].total().live();
    assert_eq!((live.bytes, live.count), (Bytes(100_000), 100_000));
}

#[test]
fn a_peak_is_kept_by_a_single_shard_only() {
    let settings = Settings { track_peak: true, ..Settings::UNLIMITED };
    let peaks = |shards| run(&[alloc(16, 10)], shards, settings).images.into_values().map(|image| image.peak);
    assert_eq!(peaks(1).collect::<Vec<_>>(), [Some(Bytes(10))]);
    assert_eq!(peaks(2).collect::<Vec<_>>(), [None]);
}

#[test]
fn the_limit_of_live_blocks_is_divided_among_shards() {
    // Every second block is small. Each shard exceeds its share of the limit and drops its small blocks.
    let events: Vec<_> = (1..=8000).map(|n| alloc(n * 16, if n % 2 == 0 { 16 } else { 100 })).collect();
    let snapshot = run(&events, 4, Settings { blocks: 6000, ..Settings::UNLIMITED });
    let usage = &snapshot.images[&ImageId { pid: Pid(1), ordinal: 0 }];
    assert_eq!((usage.total.alloc().count, usage.total.live()), (8000, Amount { bytes: Bytes(400_000), count: 4000 }));
    assert_eq!(usage.demotion.dropped, Amount { bytes: Bytes(64_000), count: 4000 });
    assert_eq!((usage.demotion.min_size, snapshot.losses.total()), (Bytes(32), 0));
}

#[test]
fn shares_are_compared_in_a_trace_with_few_events() {
    let events: VecDeque<_> = (1..=2000).map(|n| alloc(n * 16, 16)).collect();
    let settings = Settings { blocks: 1000, ..Settings::UNLIMITED };
    let sources = vec![SlowSource(FixedSource(events))];
    let mut shards = Shards::start(sources, settings, EventClass::ALL, &Sinks::default()).unwrap();
    let totals = shards.finish(NOW);
    assert_eq!(totals.demoted.iter().map(|demoted| demoted.image.pid).collect::<Vec<_>>(), [Pid(1)]);
    let heap = &totals.snapshots.0[&EventClass::Heap];
    assert_eq!((heap.losses.total(), heap.total().alloc().count), (0, 2000));
}

#[test]
fn missing_frames_are_counted_for_each_allocation() {
    let stack = Box::new(Stack { frames: [AbsAddr(1)].into(), end: StackEnd::Complete, taken: Duration::ZERO });
    let frames = Event { kind: EventKind::Stack { id: StackId(7), stack }, ..alloc(16, 1) };
    let other = EventKind::Alloc {
        address: AbsAddr(64),
        size: Bytes(1),
        stack: StackId(8),
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let none = EventKind::Alloc {
        address: AbsAddr(80),
        size: Bytes(1),
        stack: StackId::NOT_TAKEN,
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let event = |kind| Event { kind, ..alloc(16, 1) };
    let events = [alloc(16, 1), alloc(32, 1), frames, event(other.clone()), event(other), event(none)];
    // The shard that receives the frames of stack 7 has no events with this stack.
    let mut snapshot = run(&events, 3, Settings::UNLIMITED);
    count_missing_frames(&mut snapshot);
    assert_eq!(snapshot.losses.get(LossReason::StackFramesLost), 2);
    snapshot.images.values_mut().for_each(|image| image.has_forgotten = true);
    count_missing_frames(&mut snapshot);
    assert_eq!(snapshot.losses.get(LossReason::StackFramesLost), 2, "they may have been merged");
}

#[test]
fn running_shards_report_progress_on_named_threads() {
    let (feeds, (sources, names)): (Vec<_>, (Vec<_>, Vec<_>)) = (0..2)
        .map(|_| {
            let ((feed, records), (name, names)) = (channel(), channel());
            (feed, (ChannelSource { records, name }, names))
        })
        .unzip();
    let mut shards = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
    for (number, names) in names.iter().enumerate() {
        assert_eq!(names.recv().unwrap(), format!("memtrace-shard-{number}"));
    }
    feeds[0].send(Some(alloc(16, 10))).unwrap();
    feeds[0].send(None).unwrap();
    feeds[1].send(Some(alloc(32, 20))).unwrap();
    let calls = [(Bytes(10), 1), (Bytes(20), 1)].into_iter().collect();
    let expected = Progress { events: 2, live: Bytes(30), lost: 1, calls };
    let deadline = Instant::now() + Duration::from_secs(20);
    while shards.progress() != expected {
        assert!(Instant::now() < deadline, "{:?}", shards.progress());
        thread::yield_now();
    }
    let RunTotals { mut snapshots, events, .. } = shards.finish(NOW);
    let snapshot = snapshots.0.remove(&EventClass::Heap).unwrap();
    assert_eq!(events, 2);
    assert_eq!(snapshot.losses.get(LossReason::BadRecord), 1);
    assert_eq!(snapshot.total().live().bytes, Bytes(30));
}

#[test]
fn shard_that_panics_is_a_failure() {
    let totals =
        Shards::start(vec![Panicking], Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap().finish(NOW);
    assert_eq!(totals.failures, ["shard 0 panicked: the ring is on fire"]);
}

#[test]
fn dropped_shards_end() {
    let ((feed, records), (name, names)) = (channel(), channel());
    drop(
        Shards::start(vec![ChannelSource { records, name }], Settings::UNLIMITED, EventClass::ALL, &Sinks::default())
            .unwrap(),
    );
    // The channel closes when the thread has dropped its source.
    names.iter().for_each(drop);
    assert!(feed.send(None).is_err());
}

#[test]
fn shard_that_does_not_read_has_not_answered() {
    let (gates, sources): (Vec<_>, Vec<_>) =
        [(); 2].map(|()| channel()).map(|(gate, read)| (gate, Gate(read))).into_iter().unzip();
    let shards = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
    let wait_for = |shard: usize| {
        gates[shard].send(()).unwrap();
        while !shards.shards[shard].progress.has_answered() {
            thread::yield_now();
        }
    };
    for _ in 0..2 {
        assert!(!shards.have_answered());
        wait_for(1);
        assert!(!shards.have_answered());
        wait_for(0);
        assert!(shards.have_answered());
    }
}
