use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use memtrace_common::wire::{ring_of, ring_of_memory};
use proptest::prelude::*;

use super::*;
use crate::model::{
    AbsAddr, AllocatorId, CgroupId, Event, EventKind, Nanoseconds, Order, OutOfMemory, PAGE, PartitionBy, Pid,
    ReclaimKind, Stack, StackEnd, StackId, Stall, Tid, Touch,
};

const SETTINGS: Settings = Settings {
    blocks: u64::MAX,
    stacks: u32::MAX,
    processes: u32::MAX,
    track_peak: false,
    older: None,
    parts: PartitionBy::Whole,
};
const NOW: Tick = Tick(500);

/// A source that holds all its events from the start.
struct Ready(VecDeque<Event>);

impl Source for Ready {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        let records = self.0.len().min(limit);
        self.0.drain(..records).for_each(sink);
        Drained { records, bad: 0 }
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

/// What a channel gives a shard: a record that can be understood, or one that can't.
type Record = Option<Event>;

/// A source that is filled while its shard runs. It tells the name of the thread that drains it.
struct Fed {
    records: Receiver<Record>,
    name: Sender<String>,
}

impl Source for Fed {
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
    };
    Event { pid: Pid(1), tid: Tid(1), tick: Tick(0), kind }
}

/// Books `events` with as many shards as asked for, split as the kernel splits them; the books of blocks.
fn run(events: &[Event], shards: u32, settings: Settings) -> Snapshot {
    finish(events, shards, settings).snapshots.0.remove(&EventClass::Heap).unwrap()
}

/// As [`run`], and how many events that were.
fn finish(events: &[Event], shards: u32, settings: Settings) -> Books {
    let mut rings = vec![VecDeque::new(); shards as usize];
    for event in events {
        match event.kind {
            EventKind::Alloc { address, .. }
            | EventKind::Free { address }
            | EventKind::TentativeFree { address }
            | EventKind::UndoFree { address } => {
                rings[ring_of(event.pid.0, address.0, shards) as usize].push_back(event.clone());
            }
            EventKind::Stack { id, .. } => rings[(id.0 % u64::from(shards)) as usize].push_back(event.clone()),
            EventKind::Stall(_) => {
                rings[ring_of(event.pid.0, u64::from(event.tid.0) << 4, shards) as usize].push_back(event.clone());
            }
            EventKind::Fault { .. }
            | EventKind::MajorFault { .. }
            | EventKind::Rusage { .. }
            | EventKind::Fork { .. }
            | EventKind::Map { .. }
            | EventKind::TentativeUnmap { .. }
            | EventKind::UndoUnmap
            | EventKind::Move { .. } => {
                rings[ring_of_memory(event.pid.0, true, shards) as usize].push_back(event.clone());
            }
            EventKind::Exec | EventKind::Exit | EventKind::OomKill(_) => {
                rings.iter_mut().for_each(|ring| ring.push_back(event.clone()));
            }
        }
    }
    let sources = rings.into_iter().map(Ready).collect();
    Shards::start(sources, settings, EventClass::ALL).unwrap().finish(NOW)
}

/// One step of a thread: which of two processes, which of three threads, which address, and what.
type Step = (u32, u32, u64, What);

#[derive(Clone, Debug)]
enum What {
    Alloc {
        size: u64,
        stack: u64,
    },
    Free,
    Park,
    /// Takes back what the thread parked last, wherever that is.
    Restore,
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
    /// Moves what the thread is about to, to another address.
    Move {
        pages: u64,
        to: u64,
        keeps: bool,
    },
    Fork,
    Exec,
    Exit,
}

fn any_step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        8 => (0..100u64, 0..8u64).prop_map(|(size, stack)| What::Alloc { size, stack }),
        6 => Just(What::Free),
        5 => Just(What::Park),
        5 => Just(What::Restore),
        2 => (2..8u64).prop_map(What::Stack),
        6 => (any::<bool>(), any::<bool>(), 0..8u64)
            .prop_map(|(present, write, stack)| What::Touch { touch: Touch { present, write }, stack }),
        2 => Just(What::Wait),
        3 => (prop::sample::select(ReclaimKind::ALL), 0..8u64).prop_map(|(work, stack)| What::Stall { work, stack }),
        1 => Just(What::OomKill),
        4 => (1..9u64, 0..8u64).prop_map(|(pages, stack)| What::Map { pages, stack }),
        3 => (1..9u64).prop_map(What::TentativeUnmap),
        1 => Just(What::UndoUnmap),
        2 => (1..9u64, 1..12u64, any::<bool>()).prop_map(|(pages, to, keeps)| What::Move { pages, to, keeps }),
        1 => Just(What::Fork),
        1 => Just(What::Exec),
        1 => Just(What::Exit),
    ];
    (1..3u32, 0..3u32, 1..12u64, what)
}

/// The events of threads that take such steps. Anything goes, but that a restore is of what its thread parked last: no
/// thread can have two reallocs that may still fail.
fn events_of(steps: Vec<Step>) -> Vec<Event> {
    let mut events = Vec::new();
    let mut parked = BTreeMap::new();
    for (tick, (pid, thread, nth, what)) in steps.into_iter().enumerate() {
        let (tid, address) = (Tid(10 * pid + thread), AbsAddr(0x7000_0000 + nth * 48));
        // Pages side by side, in several groups.
        let page = AbsAddr(0x7000_0000 + nth * 5 * PAGE.0);
        let kind = match what {
            What::Alloc { size, stack } => {
                EventKind::Alloc { address, size: Bytes(size), stack: StackId(stack), allocator: AllocatorId::UNKNOWN }
            }
            What::Free => EventKind::Free { address },
            What::Park => {
                parked.insert(tid, address);
                EventKind::TentativeFree { address }
            }
            What::Restore => match parked.get(&tid) {
                Some(&address) => EventKind::UndoFree { address },
                None => continue,
            },
            What::Stack(id) => {
                let stack = Box::new(Stack {
                    frames: [AbsAddr(id)].into(),
                    end: StackEnd::Complete,
                    taken: Duration::from_nanos(tick as u64),
                });
                EventKind::Stack { id: StackId(id), stack }
            }
            What::Touch { touch, stack } => EventKind::Fault { page, touch, stack: StackId(stack) },
            What::Wait => EventKind::MajorFault { page },
            What::Stall { work, stack } => EventKind::Stall(Box::new(Stall {
                work,
                order: Order::of(nth as u32 % 12),
                group: CgroupId::of(nth % 3),
                stack: StackId(stack),
                duration: Nanoseconds(nth * 1000),
                throttled: Nanoseconds(nth),
                scanned: 32,
                reclaimed: nth,
            })),
            What::OomKill => EventKind::OomKill(Box::new(OutOfMemory {
                comm: String::from("victim"),
                by: Pid(3 - pid),
                by_comm: String::from("eater"),
                group: CgroupId::of(nth % 3),
                full: None,
            })),
            What::Map { pages, stack } => {
                EventKind::Map { begin: page, size: Bytes(pages * PAGE.0), stack: StackId(stack) }
            }
            What::TentativeUnmap(pages) => EventKind::TentativeUnmap { begin: page, size: Bytes(pages * PAGE.0) },
            What::UndoUnmap => EventKind::UndoUnmap,
            What::Move { pages, to, keeps } => EventKind::Move {
                old: page,
                old_size: Bytes(3 * PAGE.0),
                begin: AbsAddr(0x7100_0000 + to * 5 * PAGE.0),
                size: Bytes(pages * PAGE.0),
                keeps,
                stack: StackId(3),
            },
            What::Fork => EventKind::Fork { child: Pid(3 - pid) },
            What::Exec => EventKind::Exec,
            What::Exit => EventKind::Exit,
        };
        events.push(Event { pid: Pid(pid), tid, tick: Tick(tick as u32), kind });
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_same_events_give_the_same_snapshot_for_any_number_of_shards(
        steps in prop::collection::vec(any_step(), 0..300),
        older in prop::option::of((0..300u32).prop_map(|ticks| Tick(ticks).since_start())),
    ) {
        let events = events_of(steps);
        let settings = Settings { older, ..SETTINGS };
        let one = finish(&events, 1, settings).snapshots;
        for shards in [2, 4, 7] {
            prop_assert_eq!(&finish(&events, shards, settings).snapshots, &one);
        }
    }
}

#[test]
fn finishing_books_everything_that_the_sources_still_hold() {
    let events: Vec<_> = (1..=100_000).map(|n| alloc(n * 16, 1)).collect();
    let books = finish(&events, 2, SETTINGS);
    assert_eq!(books.events, 100_000);
    let live = books.snapshots.0[&EventClass::Heap].total().live;
    assert_eq!((live.bytes, live.count), (Bytes(100_000), 100_000));
}

#[test]
fn a_peak_is_kept_by_a_single_shard_only() {
    let settings = Settings { track_peak: true, ..SETTINGS };
    let peaks = |shards| run(&[alloc(16, 10)], shards, settings).images.into_values().map(|image| image.peak);
    assert_eq!(peaks(1).collect::<Vec<_>>(), [Some(Bytes(10))]);
    assert_eq!(peaks(2).collect::<Vec<_>>(), [None]);
}

#[test]
fn the_shards_share_the_bound_on_live_blocks() {
    let events: Vec<_> = (1..=1000).map(|n| alloc(n * 16, 1)).collect();
    let snapshot = run(&events, 4, Settings { blocks: 100, ..SETTINGS });
    assert_eq!(snapshot.total().live.count, 100);
    assert_eq!(snapshot.losses.get(LossReason::LedgerFull), 900);
}

#[test]
fn frames_that_reached_no_shard_are_lost_for_every_allocation() {
    let stack = Box::new(Stack { frames: [AbsAddr(1)].into(), end: StackEnd::Complete, taken: Duration::ZERO });
    let frames = Event { kind: EventKind::Stack { id: StackId(7), stack }, ..alloc(16, 1) };
    let other =
        EventKind::Alloc { address: AbsAddr(64), size: Bytes(1), stack: StackId(8), allocator: AllocatorId::UNKNOWN };
    let none = EventKind::Alloc {
        address: AbsAddr(80),
        size: Bytes(1),
        stack: StackId::NOT_TAKEN,
        allocator: AllocatorId::UNKNOWN,
    };
    let event = |kind| Event { kind, ..alloc(16, 1) };
    let events = [alloc(16, 1), alloc(32, 1), frames, event(other.clone()), event(other), event(none)];
    // The frames of stack 7 go to a shard of three that needs them in none of its own books.
    assert_eq!(run(&events, 3, SETTINGS).losses.get(LossReason::StackFramesLost), 2);
}

#[test]
fn progress_is_told_while_the_shards_run_and_each_runs_on_a_thread_of_its_name() {
    let (feeds, (sources, names)): (Vec<_>, (Vec<_>, Vec<_>)) = (0..2)
        .map(|_| {
            let ((feed, records), (name, names)) = (channel(), channel());
            (feed, (Fed { records, name }, names))
        })
        .unzip();
    let shards = Shards::start(sources, SETTINGS, EventClass::ALL).unwrap();
    for (number, names) in names.iter().enumerate() {
        assert_eq!(names.recv().unwrap(), format!("memtrace-shard-{number}"));
    }
    feeds[0].send(Some(alloc(16, 10))).unwrap();
    feeds[0].send(None).unwrap();
    feeds[1].send(Some(alloc(32, 20))).unwrap();
    let expected = Progress { events: 2, live: Bytes(30), lost: 1 };
    let deadline = Instant::now() + Duration::from_secs(20);
    while shards.progress() != expected {
        assert!(Instant::now() < deadline, "{:?}", shards.progress());
        thread::yield_now();
    }
    let Books { mut snapshots, events, .. } = shards.finish(NOW);
    let snapshot = snapshots.0.remove(&EventClass::Heap).unwrap();
    assert_eq!(events, 2);
    assert_eq!(snapshot.losses.get(LossReason::BadRecord), 1);
    assert_eq!(snapshot.total().live.bytes, Bytes(30));
}

#[test]
fn shard_that_panics_is_a_failure() {
    let books = Shards::start(vec![Panicking], SETTINGS, EventClass::ALL).unwrap().finish(NOW);
    assert_eq!(books.failures, ["shard 0 panicked: the ring is on fire"]);
}

#[test]
fn shards_that_are_dropped_end() {
    let ((feed, records), (name, names)) = (channel(), channel());
    drop(Shards::start(vec![Fed { records, name }], SETTINGS, EventClass::ALL).unwrap());
    // The channel closes when the thread has dropped its source.
    names.iter().for_each(drop);
    assert!(feed.send(None).is_err());
}
