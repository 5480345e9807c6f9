//! Merging of ended processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{
    Amount, Bytes, Cgroup, Comm, EventClass, ImageEnd, ImageId, ImageStart, Nanoseconds, Part, Pid, Quantities,
    Quantity, ReclaimKind, StackEnd, Stall, StallKey, StallStats, Tick,
};

use super::sample_intervals::{header, process};
use super::{empty_store, store_or_keep};
use crate::*;

/// A process that runs all the time.
const RUNNING: ImageId = ImageId { pid: Pid(1), ordinal: 0 };

/// Group that the recorder has chosen for every second process.
const GROUP: ImageId = ImageId::of_group(0);

/// Bytes held at exit by the first process of second 100, the largest process.
const LARGE: u64 = 1 << 30;

/// Start of tracing, within the first interval.
const TRACE_START: Duration = Duration::from_millis(500);

/// Sums over all processes at a boundary. `peak_rss` and `longest` are maxima.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    live: Amount,
    exit: Amount,
    alloc: Amount,
    merged_stacks: u64,
    unmatched_frees: u64,
    peak_rss: u64,
    stalls: u64,
    longest: u64,
    /// Number of ended processes with blocks.
    ended: u64,
    /// Number of processes that the OOM killer ended.
    killed: u64,
    traced: Duration,
}

impl Sums {
    fn add_ended(&mut self, image: &RecordedImage) {
        if let Some((end, at)) = image.ended {
            self.ended += 1;
            self.killed += u64::from(end == ImageEnd::OomKill);
            let start = image.start.tick().unwrap().since_start();
            self.traced += at.since_start() - start.max(TRACE_START);
        }
    }
}

fn id(number: u64) -> ImageId {
    ImageId { pid: Pid(1000 + (number % 5000) as u32), ordinal: (number / 5000) as u32 }
}

fn change(image: ImageId, path: u32, end: StackEnd, usage: Quantities) -> Change {
    let key = TotalKey { image, class: EventClass::Heap, path: PathNumber(path), end, part: Part::WHOLE };
    Change { key, usage: usage.with(Quantity::MergedStacks, u64::from(end == StackEnd::Merged)) }
}

/// An interval of one second. `processes` processes start and end in it.
pub(super) fn second(at: u64, processes: u64) -> Interval {
    let end = Duration::from_secs(at + 1);
    let mut interval = Interval { span: Duration::from_secs(at)..end, ..Interval::default() };
    if at == 0 {
        interval.images.extend([
            RecordedImage { id: RUNNING, ..process(1, None) },
            RecordedImage { id: GROUP, cgroup: None, threads: None, thread_names: BTreeMap::new(), ..process(1, None) },
        ]);
        let start = FactValue::Number(TRACE_START.as_nanos() as u64);
        interval.facts.push(Fact { topic: "run".into(), item: "start_ns".into(), value: start });
    }
    let block = Amount { bytes: Bytes(16), count: 1 };
    let allocated = Quantities::ZERO.with_amount(Quantity::LiveBytes, block).with_amount(Quantity::AllocBytes, block);
    interval.changes.push(change(RUNNING, 1, StackEnd::Complete, allocated));
    for number in at * processes..(at + 1) * processes {
        let image = id(number);
        let bytes = if number == 100 * processes { LARGE } else { 16 * (number % 7 + 1) };
        let held = Amount { bytes: Bytes(bytes), count: 1 };
        let usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, held).with_amount(Quantity::AllocBytes, held);
        let path = 2 + (number % 3) as u32;
        let stack = if number % 2 == 0 { (0, StackEnd::Merged) } else { (path, StackEnd::Complete) };
        interval.changes.push(change(image, stack.0, stack.1, usage));
        let value = |kind, value| ImageChange { image, class: EventClass::Heap, kind, index: 0, value };
        interval.image_changes.extend([
            value(ImageValue::UnmatchedFrees, number % 3),
            value(ImageValue::Peak, bytes),
            value(ImageValue::PeakRss, number),
        ]);
        if number % 10 == 0 {
            let mut stats = StallStats::default();
            stats.add(&Stall {
                work: ReclaimKind::Direct,
                order: None,
                group: None,
                stack: memtrace_model::StackId(7),
                duration: Nanoseconds(number),
                throttled: Nanoseconds(0),
                scanned: 1,
                reclaimed: 1,
            });
            let key = StallKey { group: None, work: ReclaimKind::Direct };
            interval.stalls.push(StallChange { image, key, stats });
            let (subject, counter) = (Subject::Process(image), "rss_anon_bytes".into());
            interval.samples.push(Sample { subject, counter, value: number });
        }
        let end_kind = if number % 1000 == 7 { ImageEnd::OomKill } else { ImageEnd::Exit };
        let name = ["cc1", "as", "ld"][(number % 3) as usize];
        interval.images.push(RecordedImage {
            id: image,
            comm: Comm::from(name),
            exe: Some(PathBuf::from(format!("/usr/bin/{name}"))),
            start: ImageStart::Fork(Tick::at(Duration::from_secs(at))),
            ended: Some((end_kind, Tick::at(end))),
            member_of: (number % 2 == 0).then_some(GROUP),
            ..process(1, None)
        });
        if at > 0 {
            // The processes of the previous second do not change any more.
            interval.finished.push(id(number - processes));
        }
    }
    interval
}

/// The sums of intervals, computed without the database.
fn fed(intervals: &[Interval]) -> Sums {
    let mut sums = Sums::default();
    for interval in intervals {
        for change in &interval.changes {
            sums.live += change.usage.live();
            sums.exit += change.usage.exit();
            sums.alloc += change.usage.alloc();
            sums.merged_stacks += change.usage[Quantity::MergedStacks];
        }
        for change in &interval.image_changes {
            match change.kind {
                ImageValue::UnmatchedFrees => sums.unmatched_frees += change.value,
                ImageValue::PeakRss => sums.peak_rss = sums.peak_rss.max(change.value),
                _ => {}
            }
        }
        for stall in &interval.stalls {
            sums.stalls += stall.stats.stalls.count;
            sums.longest = sums.longest.max(stall.stats.longest.0);
        }
        interval.images.iter().for_each(|image| sums.add_ended(image));
    }
    sums
}

/// The sums that the recording has at a boundary.
fn read(recording: &Recording, at: Boundary) -> Sums {
    let totals = recording.totals(Boundary::START, at).unwrap();
    let mut sums = Sums::default();
    for stack in &totals.stacks {
        sums.live += stack.usage.live();
        sums.exit += stack.usage.exit();
        sums.alloc += stack.usage.alloc();
        sums.merged_stacks += stack.usage[Quantity::MergedStacks];
    }
    for values in totals.images.values() {
        let value = |kind| values.get(&(kind, 0)).copied().unwrap_or_default();
        sums.unmatched_frees += value(ImageValue::UnmatchedFrees);
        sums.peak_rss = sums.peak_rss.max(value(ImageValue::PeakRss));
    }
    for stats in totals.stalls.values() {
        sums.stalls += stats.stalls.count;
        sums.longest = sums.longest.max(stats.longest.0);
    }
    recording.images(at).unwrap().values().for_each(|image| sums.add_ended(image));
    let merged = recording.merged_images(Boundary::START, at).unwrap();
    for (_, merged) in merged.iter().filter(|((_, class), _)| *class == EventClass::Heap) {
        sums.ended += merged.ends.values().sum::<u64>();
        sums.killed += merged.ends.get(&ImageEnd::OomKill).copied().unwrap_or_default();
        sums.traced += merged.traced;
    }
    sums
}

/// Checks the sums at a boundary of a recording of [`second`] with `processes` in each second. Returns the number
/// of processes with rows.
pub(super) fn check_boundary(recording: &Recording, at: Boundary, processes: u64) -> usize {
    let intervals: Vec<_> = (0..at.at().as_secs()).map(|at| second(at, processes)).collect();
    assert_eq!(read(recording, at), fed(&intervals), "at {:?}", at.at());
    recording.images(at).unwrap().keys().filter(|id| !id.stands_for_group()).count()
}

#[test]
fn ended_processes_are_merged_if_they_fill_the_file() {
    const LIMIT: Bytes = Bytes(4 << 20);
    const PROCESSES: u64 = 100;
    const SECONDS: u64 = 250;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let settings = Settings { size_limit: LIMIT, queue: 4, ..Settings::default() };
    let writer = Writer::create(&path, &header(), settings).unwrap();
    for at in 0..SECONDS {
        writer.push(second(at, PROCESSES));
        while writer.status().intervals <= at {
            assert_eq!(writer.status().open_gap, None);
            std::thread::yield_now();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    }
    let status = writer.finish();
    assert_eq!((status.gaps, status.merged, status.compaction_error), (0, 0, None));
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    let recording = Recording::open(&path).unwrap();
    let intervals = recording.intervals();
    for interval in intervals.iter().step_by(intervals.len() / 10) {
        check_boundary(&recording, interval.end(), PROCESSES);
    }
    let rows = check_boundary(&recording, recording.end(), PROCESSES);
    println!("{rows} processes and {} intervals", intervals.len());
    assert!((rows as u64) < SECONDS * PROCESSES * 2 / 3, "{rows}");
    let images = recording.images(recording.end()).unwrap();
    assert!(images.contains_key(&RUNNING));
    assert!(images.contains_key(&id(100 * PROCESSES)), "the largest process is kept");
    let groups: Vec<_> = images.values().filter(|image| image.id.stands_for_group() && image.id != GROUP).collect();
    let names: std::collections::BTreeSet<_> = groups.iter().map(|group| group.comm.to_string()).collect();
    assert_eq!((groups.len(), names), (3, ["as", "cc1", "ld"].map(String::from).into()));
}

#[test]
fn sums_and_counts_are_exact_after_each_step_of_a_merge() {
    const PROCESSES: u64 = 50;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 20));
    let mut merged = std::collections::BTreeSet::new();
    let reader = rusqlite::Connection::open(&path).unwrap();
    let mut version = 0;
    let mut has_changed = || {
        let last =
            std::mem::replace(&mut version, reader.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap());
        last != version
    };
    for at in 0..100 {
        let interval = second(at, PROCESSES);
        if store.write(&interval, 1, None).is_err() {
            while store.compact(true).unwrap() {}
            store.write(&interval, 1, None).unwrap();
        }
        // The recording is checked after each step, as if the writer were killed there.
        while store.compact(false).unwrap() {
            if !has_changed() {
                continue;
            }
            let recording = Recording::open_while_written(&path).unwrap();
            check_boundary(&recording, recording.end(), PROCESSES);
            let all = recording.intervals();
            check_boundary(&recording, all[all.len() / 2].end(), PROCESSES);
            let counts = recording.merged_images(Boundary::START, recording.end()).unwrap();
            merged.insert(counts.values().flat_map(|images| images.ends.values()).sum::<u64>());
        }
    }
    assert!(merged.len() > 10, "the steps of several merges were seen: {merged:?}");
}

#[test]
fn processes_with_forged_sizes_are_merged() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 30));
    let forged = Amount { bytes: Bytes(1 << 62), count: 1 };
    let usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, forged).with_amount(Quantity::AllocBytes, forged);
    let with_forged = |at| {
        let mut interval = second(at, 50);
        // The two sums of each process exceed 2^63.
        let numbers = (at * 50..(at + 1) * 50).flat_map(|number| [(number, 7), (number, 8)]);
        interval.changes.extend(numbers.map(|(number, path)| change(id(number), path, StackEnd::Complete, usage)));
        interval
    };
    let all: Vec<_> = (0..4).map(with_forged).collect();
    all.iter().for_each(|interval| store.write(interval, 1, None).unwrap());
    assert!(store.merge_images().unwrap());
    while store.compact(false).unwrap() {}
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(read(&recording, recording.end()), fed(&all));
    assert!(recording.images(recording.end()).unwrap().len() < 200);
}

#[test]
fn processes_with_later_changes_are_not_merged() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 20));
    let mut all = Vec::new();
    for at in 0..100 {
        let mut interval = second(at, 50);
        // The ends of some processes are known, but not all of their changes.
        interval.finished.retain(|id| id.pid.0 % 50 != 0);
        if at > 90 {
            let block = Amount { bytes: Bytes(16), count: 1 };
            let usage =
                Quantities::ZERO.with_amount(Quantity::ExitBytes, block).with_amount(Quantity::AllocBytes, block);
            interval.changes.push(change(id(0), 2, StackEnd::Complete, usage));
        }
        all.push(interval);
        let interval = &all[all.len() - 1];
        if store.write(interval, 1, None).is_err() {
            while store.compact(true).unwrap() {}
            store.write(interval, 1, None).unwrap();
        }
        while store.compact(false).unwrap() {}
    }
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(read(&recording, recording.end()), fed(&all));
    let images = recording.images(recording.end()).unwrap();
    let unfinished = images.keys().filter(|id| !id.stands_for_group() && id.pid.0 % 50 == 0).count();
    assert_eq!(unfinished, 100);
    assert!(images.len() < 4000, "{}", images.len());
}

#[test]
fn processes_with_the_longest_stalls_are_kept() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 20));
    let longest = id(10);
    for at in 0..100 {
        let mut interval = second(at, 50);
        interval.changes.clear();
        for stall in &mut interval.stalls {
            // Longer than all other stalls together.
            if stall.image == longest {
                stall.stats.stalls.time = Nanoseconds(1 << 30);
            }
        }
        if store.write(&interval, 1, None).is_err() {
            while store.compact(true).unwrap() {}
            store.write(&interval, 1, None).unwrap();
        }
        while store.compact(false).unwrap() {}
    }
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let images = recording.images(recording.end()).unwrap();
    assert!(images.len() < 4000, "{}", images.len());
    assert!(images.contains_key(&longest));
}

#[test]
fn steps_are_bounded_by_stacks() {
    const STACKS: u32 = 400;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(4 << 20));
    for at in 0..100 {
        let mut interval = second(at, 1);
        let block = Amount { bytes: Bytes(16), count: 1 };
        let usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, block).with_amount(Quantity::AllocBytes, block);
        interval.changes.extend((10..10 + STACKS).map(|path| change(id(at), path, StackEnd::Complete, usage)));
        store.write(&interval, 1, None).unwrap();
    }
    let reader = rusqlite::Connection::open(&path).unwrap();
    let count =
        || reader.query_one("SELECT count(*) FROM image WHERE pid <> 0", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut images = count();
    let first = images;
    store.merge_images().unwrap();
    while store.compact(false).unwrap() {
        let remain = count();
        // A step has about 2,048 rows.
        assert!(images - remain <= 5, "{images} {remain}");
        images = remain;
    }
    assert!(first - images > 30, "{first} {images}");
}

#[test]
fn merge_without_room_does_not_stop_other_merges() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes((1 << 20) + (1 << 15)));
    let other = rusqlite::Connection::open(&path).unwrap();
    // Each step needs more pages than the file can have.
    let full = "CREATE TRIGGER full AFTER INSERT ON merged_image BEGIN
        INSERT INTO recording VALUES ('full', zeroblob(1 << 22)); END";
    other.execute_batch(full).unwrap();
    let merged = || {
        let sql = "SELECT coalesce(max(images), 0), (SELECT min(merged) < max(merged) FROM interval) FROM merged_image";
        other.query_one(sql, [], |row| Ok((row.get::<_, i64>(0)? > 0, row.get::<_, bool>(1)?))).unwrap()
    };
    let mut waiting: Option<Interval> = None;
    let mut is_full = true;
    for at in 0..250 {
        if store_or_keep(&mut store, &mut waiting, second(at, 20)).is_none() {
            continue;
        }
        if is_full && merged().1 {
            assert!(!merged().0, "intervals are merged instead");
            other.execute_batch("DROP TRIGGER full").unwrap();
            is_full = false;
        }
    }
    assert!(waiting.is_none());
    assert_eq!(merged(), (true, true), "the merge is tried again");
    drop(other);
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let all: Vec<_> = (0..250).map(|at| second(at, 20)).collect();
    // `merged_stacks` is not compared, because stacks were merged too.
    let merged_stacks = 0;
    let sums = |sums| Sums { merged_stacks, ..sums };
    assert_eq!(sums(read(&recording, recording.end())), sums(fed(&all)));
}

#[test]
fn groups_are_bounded() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 20));
    let mut all = Vec::new();
    for at in 0..100 {
        let mut interval = second(at, 50);
        for image in &mut interval.images {
            // Each process has an executable and a control group of its own.
            if let Some(exe) = image.exe.as_mut().filter(|_| image.ended.is_some()) {
                let name = format!("{}-{}", image.id.pid, image.id.ordinal);
                image.cgroup = Some(Arc::new(Cgroup { path: format!("/{name}"), ..Cgroup::default() }));
                exe.push(name);
                image.member_of = None;
            }
        }
        if store.write(&interval, 1, None).is_err() {
            while store.compact(true).unwrap() {}
            store.write(&interval, 1, None).unwrap();
        }
        while store.compact(false).unwrap() {}
        all.push(interval);
    }
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(read(&recording, recording.end()), fed(&all));
    let images = recording.images(recording.end()).unwrap();
    let groups: Vec<_> = images.values().filter(|image| image.id.stands_for_group()).collect();
    assert!(groups.len() <= 64, "{}", groups.len());
    assert!(groups.iter().any(|group| group.exe.is_none() && group.comm == "other programs"));
    let cgroups: u64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_one("SELECT count(*) FROM cgroup", [], |row| row.get::<_, i64>(0))
        .unwrap()
        .cast_unsigned();
    let used: std::collections::BTreeSet<_> = images.values().filter_map(|image| image.cgroup.clone()).collect();
    assert_eq!(cgroups, used.len() as u64, "control groups of merged processes are removed");
}
