//! Recordings with a size limit.

use std::time::{Duration, Instant};

use harness::Scratch;
use memtrace_model::{Amount, Bytes, EventClass, ImageId, MemoryCounter, Quantities, Quantity, StackEnd};
use proptest::prelude::*;

use super::sample_intervals::{allocated, header, image, intervals, second};
use super::{empty_store, store_or_keep, sum, totals_of_samples};
use crate::file::reader::test_samples::samples;
use crate::*;

const LIMIT: Bytes = Bytes(1 << 20);

/// An interval with changes of `stacks` stacks.
fn busy_second(at: u64, stacks: u32) -> Interval {
    let span = Duration::from_secs(at)..Duration::from_secs(at + 1);
    let mut interval =
        Interval { span, changes: (1..=stacks).map(|path| allocated(1, path, at + 1)).collect(), ..second(0) };
    interval.images.clear();
    interval.marks.clear();
    if at % 100 == 37 {
        let mark = Mark { at: interval.span.end, text: at.to_string(), epoch: at as u32 };
        interval.marks.push(mark);
    }
    interval
}

#[test]
fn file_stays_below_its_limit() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let writer =
        Writer::create(&path, &header(), Settings { size_limit: LIMIT, queue: 4, ..Settings::default() }).unwrap();
    let all: Vec<_> = (0..600).map(|at| busy_second(at, 300)).collect();
    for (index, interval) in (1..).zip(&all) {
        writer.push(interval.clone());
        while writer.status().intervals < index {
            assert_eq!(writer.status().open_gap, None);
            std::thread::yield_now();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    }
    let status = writer.finish();
    assert_eq!((status.gaps, status.merged, status.compaction_error), (0, 0, None));
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    let recording = Recording::open(&path).unwrap();
    assert!(recording.intervals().len() < 300, "{}", recording.intervals().len());
    assert_eq!(recording.intervals().iter().map(|interval| interval.merged).sum::<u64>(), 600);
    for interval in recording.intervals() {
        let end = interval.end();
        let seconds = end.at().as_secs() as usize;
        assert_eq!(recording.totals(Boundary::START, end).unwrap(), sum(&all[..seconds]));
    }
    assert_eq!(recording.marks().len(), 6);
    for mark in recording.marks() {
        assert_eq!(mark.boundary.at(), mark.mark.at, "the boundary at a mark remains");
    }
}

#[test]
fn old_intervals_are_not_merged_after_the_writer_has_settled() {
    let directory = Scratch::in_memory();
    let remaining = |settles: bool| {
        let path = directory.path("run.memtrace");
        let writer = Writer::create(&path, &header(), Settings { size_limit: LIMIT, ..Settings::default() }).unwrap();
        if settles {
            writer.settle();
        }
        let mut at = 0;
        // Old intervals are merged from seven eighths of the limit on, and young ones near the limit.
        while writer.status().size.0 < LIMIT.0 / 32 * 29 && at < 200 {
            writer.push(busy_second(at, 300));
            at += 1;
            while writer.status().intervals < at {
                std::thread::yield_now();
            }
        }
        assert_eq!(writer.finish().gaps, 0);
        (at, Recording::open(&path).unwrap().intervals().len() as u64)
    };
    let (stored, remain) = remaining(true);
    assert_eq!(stored, remain);
    let (stored, remain) = remaining(false);
    assert!(remain < stored, "{remain} of {stored}");
}

#[test]
fn more_stacks_than_fit_are_a_gap() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let writer =
        Writer::create(&path, &header(), Settings { size_limit: LIMIT, queue: 1 << 10, ..Settings::default() })
            .unwrap();
    writer.push(busy_second(0, 100));
    for at in 1..4 {
        writer.push(busy_second(at, 100_000));
    }
    let status = writer.finish();
    let gap = status.open_gap.unwrap();
    assert_eq!((gap.reason, gap.intervals, gap.span.end), (GapReason::SizeLimit, 3, Duration::from_secs(4)));
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.totals(Boundary::START, recording.end()).unwrap(), sum(&[busy_second(0, 100)]));
}

#[test]
fn stacks_are_merged_if_intervals_make_too_little_room() {
    const STACKS: u32 = 300;
    const LARGE: u32 = 1;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let writer =
        Writer::create(&path, &header(), Settings { size_limit: LIMIT, queue: 4, ..Settings::default() }).unwrap();
    for at in 0..400 {
        // Each stack allocates two blocks in one second, and frees one of them in the next.
        let mut interval = busy_second(at, 0);
        let stack = |at: u64, number| LARGE + 1 + at as u32 * STACKS + number;
        interval.changes = (0..STACKS).map(|number| allocated(1, stack(at, number), 2)).collect();
        interval.changes.push(allocated(1, LARGE, 1000));
        if at > 0 {
            interval.changes.extend((0..STACKS).map(|number| freed(1, stack(at - 1, number))));
        }
        writer.push(interval);
        while writer.status().intervals <= at {
            assert_eq!(writer.status().open_gap, None);
            std::thread::yield_now();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);
    }
    let status = writer.finish();
    assert_eq!((status.gaps, status.merged, status.compaction_error), (0, 0, None));
    let recording = Recording::open(&path).unwrap();
    for (at, live, alloc) in recording.amounts_over_time(EventClass::Heap).unwrap() {
        let seconds = at.at().as_secs();
        let stacks = u64::from(STACKS);
        assert_eq!(live.count, 1000 * seconds + stacks * (seconds + 1), "at {seconds} s");
        assert_eq!(alloc.count, (1000 + 2 * stacks) * seconds, "at {seconds} s");
    }
    assert_eq!(recording.marks().len(), 4);
    let totals = recording.totals(Boundary::START, recording.end()).unwrap();
    let (merged, others): (Vec<_>, Vec<_>) = totals.stacks.iter().partition(|stack| stack.key.end == StackEnd::Merged);
    assert_eq!(merged.len(), 1);
    assert_eq!(merged[0].usage[Quantity::MergedStacks] + others.len() as u64, u64::from(400 * STACKS + LARGE));
    assert!(totals.stacks.iter().all(|stack| stack.usage.live().count.cast_signed() > 0));
    let large = others.iter().find(|stack| stack.key.path == PathNumber(LARGE)).unwrap();
    assert_eq!(large.usage.live().count, 400_000, "the smallest are merged first");
}

/// A change: a stack of a process frees a block of 16 bytes.
fn freed(pid: u32, path: u32) -> Change {
    let block = Amount { bytes: Bytes(16), count: 1 };
    let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, Amount::default() - block).with_free(block);
    Change { usage, ..allocated(pid, path, 0) }
}

#[test]
fn merge_of_stacks_that_is_given_up_leaves_whole_stacks() {
    const STACKS: u32 = 110;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    // The limit is raised by more than the schema of the views needs: the intervals have as much room as without views.
    let mut store = empty_store(&path, Bytes(LIMIT.0 + 4096));
    let other = rusqlite::Connection::open(&path).unwrap();
    // A step that deletes a row with an ID above 1000 needs more pages than the file can have.
    let full = "CREATE TRIGGER full AFTER DELETE ON total WHEN old.id > 1000 BEGIN
        INSERT INTO recording VALUES ('full', zeroblob(1 << 21)); END";
    other.execute_batch(full).unwrap();
    let mut stored: Vec<Interval> = Vec::new();
    let mut waiting: Option<Interval> = None;
    let mut counts = Vec::new();
    for at in 0..300 {
        // Each stack allocates two blocks in one second, and frees one of them in the next.
        let mut interval = busy_second(at, 0);
        let stack = |at: u64, number| 1 + at as u32 * STACKS + number;
        interval.changes = (0..STACKS).map(|number| allocated(1, stack(at, number), 2)).collect();
        if at > 0 {
            interval.changes.extend((0..STACKS).map(|number| freed(1, stack(at - 1, number))));
        }
        let Some(interval) = store_or_keep(&mut store, &mut waiting, interval) else { continue };
        stored.push(interval);
        if at % 5 > 0 {
            continue;
        }
        let recording = Recording::open(&path).unwrap();
        let totals = recording.totals(Boundary::START, recording.end()).unwrap();
        assert!(totals.stacks.iter().all(|stack| stack.usage.live().count.cast_signed() > 0), "second {at}");
        let (merged, others): (Vec<_>, Vec<_>) =
            totals.stacks.iter().partition(|stack| stack.key.end == StackEnd::Merged);
        let merged = merged.iter().map(|stack| stack.usage[Quantity::MergedStacks]).sum::<u64>();
        assert_eq!(merged + others.len() as u64, sum(&stored).stacks.len() as u64, "second {at}");
        if merged > 0 {
            counts.push(merged);
            other.execute_batch("DROP TRIGGER IF EXISTS full").unwrap();
        }
    }
    assert!(waiting.is_none());
    // The first merge moved only rows with an ID of at most 1000.
    let most = counts.iter().max().copied().unwrap_or_default();
    assert!(counts.first().is_some_and(|first| *first <= 1000) && most > 1000, "{counts:?}");
}

#[test]
fn steps_of_a_merge_are_short() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(8 << 20));
    let mut longest = Duration::ZERO;
    let mut steps = 0;
    for at in 0..60 {
        store.write(&busy_second(at, 10_000), 1, None).unwrap();
        loop {
            let start = Instant::now();
            if !store.compact(false).unwrap() {
                break;
            }
            (longest, steps) = (longest.max(start.elapsed()), steps + 1);
        }
    }
    println!("{steps} steps, the longest took {longest:?}");
    assert!(steps > 20, "{steps}");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

/// Multiplies the changes by a power of two.
fn multiply(interval: &mut Interval, shift: u32) {
    for change in &mut interval.changes {
        let mut usage = Quantities::ZERO;
        change.usage.iter().for_each(|(quantity, value)| usage[quantity] = value << shift);
        change.usage = usage;
    }
    interval.details.iter_mut().for_each(|detail| detail.value <<= shift);
    interval.image_changes.iter_mut().for_each(|change| change.value <<= shift);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn merged_boundaries_have_exact_totals(
        intervals in intervals(25..60),
        marked in prop::collection::vec(0_usize..60, 0..4),
        shift in prop::sample::select(vec![0_u32, 23]),
    ) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        let mut store = empty_store(&path, Bytes(1 << 30));
        let mut all = intervals;
        for (index, interval) in all.iter_mut().enumerate() {
            let sampled = second(index as u64 % 7);
            (interval.images, interval.samples, interval.facts) = (sampled.images, sampled.samples, sampled.facts);
            multiply(interval, shift);
            if marked.contains(&index) {
                let mark = Mark { at: interval.span.end, text: index.to_string(), epoch: index as u32 + 1 };
                interval.marks = vec![mark];
            }
            store.write(interval, 1, None).unwrap();
            if index % 5 == 0 {
                store.compact_always();
            }
        }
        store.compact_always();
        store.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert!(recording.intervals().len() < all.len());
        let mut ends = Vec::new();
        for interval in recording.intervals() {
            let end = interval.end();
            let seconds = end.at().as_secs() as usize;
            prop_assert_eq!(recording.totals(Boundary::START, end).unwrap(), sum(&all[..seconds]));
            prop_assert_eq!(samples(&recording, end).unwrap(), totals_of_samples(&all[..seconds]));
            ends.push(seconds);
        }
        for index in marked.into_iter().filter(|index| *index < all.len()) {
            prop_assert!(ends.contains(&(index + 1)));
        }
    }
}

#[test]
fn sums_of_forged_numbers_wrap_in_all_merges() {
    const SECONDS: u64 = 41;
    const STACKS: u32 = 41;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(1 << 30));
    for at in 0..SECONDS {
        let mut interval = busy_second(at, 0);
        // In each second, each stack allocates 2^62 bytes in 2^58 blocks.
        interval.changes = (1..=STACKS).map(|path| allocated(1, path, 1 << 58)).collect();
        for change in &mut interval.changes {
            change.usage[Quantity::AllocBytesVarianceHigh] = (1 << 63) - 1;
        }
        let value = |kind| ImageChange { image: image(1), class: EventClass::Heap, kind, index: 0, value: 3 << 61 };
        interval.image_changes = vec![value(ImageValue::DroppedBytes)];
        store.write(&interval, 1, None).unwrap();
        if at == 20 {
            store.compact_always();
        }
    }
    store.compact_forcibly();
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert!(recording.intervals().len() < SECONDS as usize);
    let totals = recording.totals(Boundary::START, recording.end()).unwrap();
    assert!(totals.stacks.iter().any(|stack| stack.key.end == StackEnd::Merged));
    let all: Quantities = totals.stacks.iter().map(|stack| stack.usage.additive()).sum();
    // The sums are 1,681 times 2^62 and 1,681 times 2^58, modulo 2^64: 1681 = 26 · 64 + 17.
    let live = Amount { bytes: Bytes(1 << 62), count: 17 << 58 };
    assert_eq!((all.live(), all.alloc()), (live, live));
    // 1,681 times 2^63 is 2^63.
    assert_eq!(all[Quantity::AllocBytesVarianceHigh], (1 << 63) - 1681);
    // The sum is 41 times 3 · 2^61, modulo 2^64: 123 = 15 · 8 + 3.
    assert_eq!(totals.images[&(image(1), EventClass::Heap)][&(ImageValue::DroppedBytes, 0)], 3 << 61);
    let whole = Duration::ZERO..Duration::from_secs(SECONDS);
    let timeline = recording.memory_over_time(recording.end()).unwrap().finish(EventClass::Heap, 1, &whole);
    assert_eq!(timeline.total[&MemoryCounter::Live].last(), Some(1 << 62));
}

#[test]
fn ended_images_get_their_late_changes() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    // The second image ended in the second interval.
    let mut late = second(2);
    late.changes.push(allocated(2, 4, 7));
    late.finished.push(image(2));
    let all = [second(0), second(1), late, second(3)];
    super::write(&path, &all);
    let recording = Recording::open(&path).unwrap();
    let totals = recording.totals(Boundary::START, recording.end()).unwrap();
    assert_eq!(totals, sum(&all));
    let images: std::collections::BTreeSet<ImageId> = totals.stacks.iter().map(|stack| stack.key.image).collect();
    assert_eq!(images.len(), 4);
    // The changes in all intervals up to the one with `finished` share a row of `total`. The later change has another
    // row.
    let rows = "SELECT count(*) FROM total JOIN image ON image.id = image WHERE pid = ?";
    let connection = rusqlite::Connection::open(&path).unwrap();
    let rows: u32 = connection.query_one(rows, [image(2).pid.0], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}
