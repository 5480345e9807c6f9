//! Replay of 24 hours of synthetic events through the shards and the collection of ended processes. The totals must be
//! exact, and memory must not grow. `MEMTRACE_REPLAY_PROCESSES` sets the number of processes of the day.

#[path = "../src/test_code.rs"]
mod test_code;

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::Settings;
use memtrace_history::pipeline::{Drained, EndedParts, EndedReceiver, RunTotals, Shards, Sinks, Source, ended_channel};
use memtrace_history::{
    ChangesInParts, CompletedImage, EndedProcesses, EndedSettings, ExactTotals, FramesByObject, NamedClasses,
};
use memtrace_model::{
    AbsAddr, AllocatorId, Amount, BuildId, Bytes, EndedImage, Event, EventClass, EventKind, FileOffset, ImageEnd,
    ImageId, ImageStart, Losses, Mapping, Object, PartKeys, Pid, ProcessImage, Quantities, Quantity, Stack, StackEnd,
    StackId, TagId, Tick, Tid,
};
use test_code::TestCode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOURS: u64 = 24;

const SHARDS: u64 = 2;
/// Lifetime of a process in steps of the day.
const LIFE: u64 = 16;
/// Number of steps that the shards may be ahead of the collection, so that a fast replay fills no queue that a day
/// would not fill.
const AHEAD: u64 = 64;
/// Number of pids before they wrap around.
const PIDS: u64 = 3000;
const EXECUTABLES: u64 = 40;
/// Number of stacks of a process.
const STACKS: u64 = 8;
/// Number of versions of the code during the day, each with call paths of its own.
const VERSIONS: u64 = 200;
/// Number of long-running processes. Their pids start at 2.
const DAEMONS: u64 = 2;
/// Number of live blocks of a daemon. It allocates one block in each step.
const KEPT: u64 = 50;
/// Number of steps during which a daemon keeps its mappings, and thus its stack.
const GENERATION: u64 = 10;

const FIRST_PID: u64 = 10;
const DAEMON_BLOCK: Bytes = Bytes(100);

/// Schedule of a day with short-lived processes: one starts in each step, and exits [`LIFE`] steps later.
#[derive(Clone, Copy)]
struct Schedule {
    processes: u64,
}

impl Schedule {
    const fn steps(self) -> u64 {
        self.processes + LIFE
    }

    fn tick(self, step: u64) -> Tick {
        Tick(u32::try_from(u64::from(Tick::at(DAY).0) * step / self.steps()).expect("a step is in the day"))
    }

    /// Passes the events of a step to `emit`, with the shard that receives the event; `None` stands
    /// for all shards.
    fn step(self, step: u64, mut emit: impl FnMut(Option<u64>, Pid, EventKind)) {
        for daemon in 0..DAEMONS {
            let pid = Pid(2 + daemon as u32);
            let stack = StackId(1 << 60 | daemon << 40 | (step / GENERATION + 3));
            if step.is_multiple_of(GENERATION) {
                let frames = [AbsAddr(0x40_1000), AbsAddr(0x40_2000 + step % 4096)].into();
                emit(Some(step / GENERATION % SHARDS), pid, frames_of(stack, frames));
            }
            let address = |step: u64| AbsAddr(0x10_0000 + step * 128);
            let alloc = EventKind::Alloc {
                address: address(step),
                size: DAEMON_BLOCK,
                stack,
                allocator: AllocatorId::UNKNOWN,
                tag: TagId::UNTAGGED,
            };
            emit(Some(step % SHARDS), pid, alloc);
            if let Some(old) = step.checked_sub(KEPT) {
                emit(Some(old % SHARDS), pid, EventKind::Free { address: address(old), is_last: false });
            }
        }
        for phase in 0..=LIFE {
            if let Some(number) = step.checked_sub(phase).filter(|&number| number < self.processes) {
                let process = Process { number, version: number * VERSIONS / self.processes };
                process.phase(phase, |shard, kind| emit(shard, process.pid(), kind));
            }
        }
    }
}

fn frames_of(id: StackId, frames: Box<[AbsAddr]>) -> EventKind {
    let stack = Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO };
    EventKind::Stack { id, stack: Box::new(stack) }
}

/// A short-lived process. One in eight executes another file in the middle of its life.
#[derive(Clone, Copy)]
struct Process {
    number: u64,
    version: u64,
}

impl Process {
    fn pid(self) -> Pid {
        Pid((FIRST_PID + self.number % PIDS) as u32)
    }

    const fn executes(self) -> bool {
        self.number.is_multiple_of(8)
    }

    /// Returns the executable before or after the exec.
    const fn executable(self, after: bool) -> u64 {
        (self.number * 31 + if after { 17 } else { 0 }) % EXECUTABLES
    }

    /// Returns the load address, which differs between processes.
    const fn base(self, after: bool) -> u64 {
        0x5500_0000_0000 + (self.number % 4096) * 0x200_0000 + if after { 0x100_0000 } else { 0 }
    }

    const fn stack(self, after: bool, nth: u64) -> StackId {
        StackId(3 + (self.number * 2 + after as u64) * STACKS + nth)
    }

    const fn size(self, block: u64) -> u64 {
        16 * (1 + (self.number + block) % 32)
    }

    fn phase(self, phase: u64, mut emit: impl FnMut(Option<u64>, EventKind)) {
        let after = self.executes() && phase >= LIFE / 2;
        if phase == LIFE {
            return emit(None, EventKind::Exit);
        }
        if after && phase == LIFE / 2 {
            emit(None, EventKind::Exec);
        }
        if phase == 0 || after && phase == LIFE / 2 {
            for nth in 0..STACKS {
                // The leaf of one stack is in code that changes during the day.
                let leaf = 0x1000 + nth * 64 + if nth == 0 { self.version * 4096 } else { 0 };
                let callers = (0..10 + nth).map(|depth| 0x400 + depth * 16 + nth % 3);
                let frames =
                    [leaf].into_iter().chain(callers).map(|offset| AbsAddr(self.base(after) + offset)).collect();
                emit(Some(nth % SHARDS), frames_of(self.stack(after, nth), frames));
            }
        }
        for block in [2 * phase, 2 * phase + 1] {
            let address = AbsAddr(0x7f00_0000_0000 + block * 1024);
            let stack = self.stack(after, (self.number + block) % STACKS);
            let size = Bytes(self.size(block));
            emit(
                Some(block % SHARDS),
                EventKind::Alloc { address, size, stack, allocator: AllocatorId::UNKNOWN, tag: TagId::UNTAGGED },
            );
            if block % 3 == 0 {
                emit(Some(block % SHARDS), EventKind::Free { address, is_last: false });
            }
        }
    }

    fn image(self, after: bool) -> ProcessImage {
        let executable = self.executable(after);
        let path = PathBuf::from(format!("/usr/bin/program-{executable}"));
        let object = Object {
            path: path.clone(),
            handle: None,
            build_id: Some(BuildId([executable as u8; 20].into())),
            root: None,
        };
        let start = AbsAddr(self.base(after));
        let mapping = Mapping {
            start,
            end: AbsAddr(start.0 + 0x100_0000),
            offset: FileOffset(0),
            object: Some(Arc::new(object)),
        };
        ProcessImage {
            comm: format!("program-{executable}").as_str().into(),
            exe: Some(path),
            mappings: vec![mapping],
            start: ImageStart::Fork(Tick(0)),
            ..ProcessImage::default()
        }
    }

    /// Returns the totals of the images of the process, by executable.
    fn totals(self) -> Vec<(String, Totals)> {
        let mut images = vec![Totals { runs: 1, ..Totals::default() }];
        for block in 0..2 * LIFE {
            if self.executes() && block == LIFE {
                images.push(Totals { runs: 1, ..Totals::default() });
            }
            let is_last = !self.executes() || images.len() == 2;
            let Some(image) = images.last_mut() else { continue };
            let amount = Amount { bytes: Bytes(self.size(block)), count: 1 };
            image.usage.add_amount(Quantity::AllocBytes, amount);
            match (block % 3, is_last) {
                (0, _) => {}
                (_, true) => image.usage.add_amount(Quantity::ExitBytes, amount),
                (_, false) => image.usage.add_amount(Quantity::DiscardedBytes, amount),
            }
        }
        let name = |after| format!("program-{}", self.executable(after));
        images.into_iter().zip([false, true]).map(|(totals, after)| (name(after), totals)).collect()
    }
}

/// Totals of the images of an executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    runs: u64,
    usage: Quantities,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.usage += other.usage;
    }
}

/// Source of the events that one shard receives.
struct Part {
    schedule: Schedule,
    shard: u64,
    step: u64,
    /// Number of collected processes.
    collected: Arc<AtomicU64>,
}

impl Source for Part {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, mut sink: F) -> Drained {
        let mut records = 0;
        let last = self.schedule.steps().min(self.collected.load(Ordering::Acquire) + LIFE + AHEAD);
        while self.step <= last && self.step <= self.schedule.steps() && records < limit {
            let tick = self.schedule.tick(self.step);
            self.schedule.step(self.step, |shard, pid, kind| {
                if shard.is_none_or(|shard| shard == self.shard) {
                    records += 1;
                    sink(Event { pid, tid: Tid(pid.0), tick, kind });
                }
            });
            self.step += 1;
        }
        Drained { records, bad: 0 }
    }

    fn wait(&mut self, timeout: Duration) {
        // The shard waits for the collection, which takes less time than this.
        thread::sleep(timeout.min(Duration::from_millis(1)));
    }
}

const SETTINGS: Settings = Settings {
    blocks: 1 << 20,
    // The limit is lower than the number of stacks of the daemons during the day.
    stacks: 1024,
    processes: 1024,
    track_peak: false,
    older: None,
    lifetimes: true,
    page_sample: 1,
    parts: PartKeys::NONE,
    accounts: None,
};

const ENDED: EndedSettings = EndedSettings {
    keep: 100,
    max_stack_entries: 1 << 10,
    max_call_paths: 6 << 10,
    max_name_bytes: 1 << 20,
    start: Tick(0),
};

/// Result of a replay.
struct Outcome {
    totals: RunTotals,
    ended: EndedProcesses,
    /// Allocated memory after each hour, in bytes.
    memory: Vec<usize>,
}

/// Waits for images from a shard.
fn next_images(receiver: &EndedReceiver) -> Vec<EndedImage> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some((_, images)) = receiver.arrived().next() {
            return images;
        }
        assert!(Instant::now() < deadline, "the shards send ended images");
        thread::sleep(Duration::from_millis(1));
    }
}

fn replay(schedule: Schedule) -> Outcome {
    let collected = Arc::new(AtomicU64::new(0));
    let part = |shard| Part { schedule, shard, step: 0, collected: Arc::clone(&collected) };
    let (sender, receiver) = ended_channel(64, usize::MAX);
    let sources = (0..SHARDS).map(part).collect();
    let mut shards =
        Shards::start(sources, SETTINGS, &[EventClass::Heap], &Sinks { ended: Some(sender), ..Sinks::default() })
            .expect("threads can be started");
    let mut parts = EndedParts::new(SHARDS as usize);
    let mut ended = EndedProcesses::new(ENDED);
    let mut memory = Vec::new();
    // Number of the current process with each pid.
    let mut numbers: HashMap<Pid, u64> = HashMap::new();
    let mut exited = 0;
    while exited < schedule.processes {
        parts.add(next_images(&receiver));
        for EndedImage { id, end, at, usage, stacks, .. } in parts.take_complete(|_| true) {
            let number = numbers.entry(id.pid).or_insert(u64::from(id.pid.0) - FIRST_PID);
            let process = Process { number: *number, version: 0 };
            let image = process.image(process.executes() && end == ImageEnd::Exit);
            let mut code = TestCode::new();
            ended.add(CompletedImage { id, end, at, image, usage, stacks }, &mut code);
            if end == ImageEnd::Exit {
                *number += PIDS;
                exited += 1;
                collected.store(exited, Ordering::Release);
                if exited.is_multiple_of(schedule.processes / HOURS) {
                    memory.push(heap::allocated());
                }
            }
        }
    }
    let totals = shards.finish(Tick::at(DAY));
    Outcome { totals, ended, memory }
}

/// There is only one test, since the counters of the allocator are global.
#[test]
fn a_day_has_exact_totals_and_bounded_memory() {
    let processes = env::var("MEMTRACE_REPLAY_PROCESSES").map_or(12_000, |text| text.parse().unwrap());
    let schedule = Schedule { processes };
    let mut expected: BTreeMap<String, Totals> = BTreeMap::new();
    for number in 0..processes {
        for (name, totals) in (Process { number, version: 0 }).totals() {
            *expected.entry(name).or_default() += totals;
        }
    }
    let allocated = schedule.steps() + 1;
    let amount = |count| Amount { bytes: Bytes(DAEMON_BLOCK.0 * count), count };
    let usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, amount(KEPT))
        .with_amount(Quantity::AllocBytes, amount(allocated));
    let daemon = Totals { runs: 1, usage };
    expected.extend((0..DAEMONS).map(|number| (format!("daemon-{number}"), daemon)));

    let Outcome { totals, ended, memory } = replay(schedule);
    println!("memory after each hour: {memory:?}");
    assert_eq!((totals.failures, totals.ended), (Vec::new(), Vec::new()));
    let ids = totals.snapshots.0.values().flat_map(|snapshot| snapshot.images.keys().copied());
    let daemon = |id: ImageId| ProcessImage {
        comm: format!("daemon-{}", id.pid.0 - 2).as_str().into(),
        ..ProcessImage::default()
    };
    let images = ids.map(|id| (id, daemon(id))).collect();
    let window = Tick(0)..Tick::at(DAY);
    let code_of = |_, _: &ProcessImage| TestCode::new();
    let end = ExactTotals::new(totals.snapshots, &images, code_of, ended, &window, ChangesInParts::default());
    let mut classes = NamedClasses::new(&end, &FramesByObject::default());
    let profile = classes.take(EventClass::Heap).into_profile(Default::default(), Vec::new(), |_| None);
    assert_eq!(profile.losses, Losses::default());

    let mut found: BTreeMap<String, Totals> = BTreeMap::new();
    for process in &profile.processes {
        let runs = process.group.as_ref().map_or(1, |group| group.runs);
        let totals = Totals { runs, usage: process.total };
        *found.entry(process.comm.to_string()).or_default() += totals;
    }
    assert_eq!(found, expected);
    let mut stacks = vec![Quantities::default(); profile.processes.len()];
    profile.stacks.iter().for_each(|stack| stacks[stack.process] += stack.usage.additive());
    assert!(stacks.iter().zip(&profile.processes).all(|(stacks, process)| *stacks == process.total));
    assert!(profile.processes.iter().any(|process| process.group.is_some()), "no process was added to a group");
    assert!(profile.stacks.iter().any(|stack| stack.end == StackEnd::Merged), "no limit was reached");

    // Memory rises until a limit is reached, falls, and rises again.
    let (first, second) = memory.split_at(memory.len() / 2);
    let [first, second] = [first, second].map(|half| half.iter().copied().max().unwrap_or_default());
    assert!(second <= first + first / 4, "at most {first} bytes in the first half of the day, then {second}");
}
