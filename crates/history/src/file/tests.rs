//! Recordings that are written and read.

mod accounts;
mod activity;
mod activity_model;
mod books;
mod damage;
mod full_disk;
mod hostile;
mod image_merges;
mod kill;
mod sample_intervals;
mod size_limit;
mod thread_model;
mod thread_recorder;
mod thread_sizes;
mod threads;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{Bytes, LiveChanges, Losses, PartChange, Quantities, StallStats};
use proptest::prelude::*;

use self::sample_intervals::{header, image, intervals, process, second};
use super::store::Store;
use crate::file::reader::test_samples::{sample_series, samples};
use crate::*;

const SETTINGS: Settings =
    Settings { size_limit: Bytes(1 << 30), queue: 1 << 20, queued_rows: usize::MAX, known_totals: 1 << 20 };

fn write(path: &Path, intervals: &[Interval]) {
    let writer = Writer::create(path, &header(), SETTINGS).unwrap();
    intervals.iter().for_each(|interval| writer.push(interval.clone()));
    let status = writer.finish();
    assert_eq!((status.intervals, status.gaps, status.open_gap), (intervals.len() as u64, 0, None));
}

/// Creates a directory that no other user can change or replace.
fn own_directory(scratch: &Scratch) -> PathBuf {
    let directory = scratch.subdirectory("own");
    std::fs::set_permissions(scratch.path(""), Permissions::from_mode(0o1777)).unwrap();
    std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Creates a file and its tables, with a size limit of `limit`.
fn empty_store(path: &Path, limit: Bytes) -> Store {
    drop(std::fs::File::create(path).unwrap());
    Store::create(path, &header(), limit, 1 << 20).unwrap()
}

/// Stores an interval as the writer does. An interval in `waiting` is merged with it, and rows are merged to make
/// room. Returns the stored interval; `None` if it waits because there is still no room.
fn store_or_keep(store: &mut Store, waiting: &mut Option<Interval>, mut interval: Interval) -> Option<Interval> {
    if let Some(mut earlier) = waiting.take() {
        earlier.merge(interval);
        interval = earlier;
    }
    if store.write(&interval, 1, None).is_err() {
        while store.compact(true).unwrap() {}
        if store.write(&interval, 1, None).is_err() {
            *waiting = Some(interval);
            return None;
        }
    }
    while store.compact(false).unwrap() {}
    Some(interval)
}

/// The sum of intervals, computed without the database.
fn sum(intervals: &[Interval]) -> Totals {
    let mut stacks: BTreeMap<TotalKey, StackTotal> = BTreeMap::new();
    let mut totals = Totals::default();
    let mut losses = Losses::default();
    let empty = |key| StackTotal {
        key,
        usage: Quantities::default(),
        details: BTreeMap::new(),
        live_changes: LiveChanges::default(),
    };
    for interval in intervals {
        for change in &interval.changes {
            let stack = stacks.entry(change.key).or_insert_with(|| empty(change.key));
            stack.usage += change.usage;
        }
        for detail in &interval.details {
            let stack = stacks.entry(detail.key).or_insert_with(|| empty(detail.key));
            let value = stack.details.entry((detail.kind, detail.index)).or_default();
            *value = value.wrapping_add(detail.value);
        }
        for change in &interval.image_changes {
            let values = totals.images.entry((change.image, change.class)).or_default();
            let value = values.entry((change.kind, change.index)).or_default();
            *value = value.wrapping_add(change.value);
        }
        for stall in &interval.stalls {
            let stats: &mut StallStats = totals.stalls.entry((stall.image, stall.key)).or_default();
            stats.merge(&stall.stats);
        }
        losses.merge(&interval.losses);
    }
    for stack in stacks.values_mut() {
        stack.details.retain(|_, value| *value != 0);
    }
    let is_zero = |stack: &StackTotal| stack.usage.is_zero() && stack.details.is_empty();
    totals.stacks = stacks.into_values().filter(|stack| !is_zero(stack)).collect();
    totals.losses = losses;
    totals
}

/// The last sample of each counter.
fn totals_of_samples(intervals: &[Interval]) -> BTreeMap<(Subject, String), u64> {
    let samples = intervals.iter().flat_map(|interval| &interval.samples);
    samples.map(|sample| ((sample.subject, sample.counter.to_string()), sample.value)).collect()
}

#[test]
fn everything_is_read_as_it_was_stored() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let intervals: Vec<_> = (0..7).map(second).collect();
    write(&path, &intervals);
    assert_eq!(std::fs::read_dir(directory.path("")).unwrap().count(), 1, "a single file remains");
    let recording = Recording::open(&path).unwrap();
    let at = |second: u64| recording.boundary_at(Duration::from_secs(second));
    assert_eq!(at(4).at(), Duration::from_secs(4));
    assert_eq!(recording.boundary_at(Duration::from_millis(4999)), at(4));
    assert_eq!((recording.boundary_at(Duration::from_millis(999)), at(100)), (Boundary::START, recording.end()));

    let locations = recording.locations().unwrap();
    for interval in &intervals {
        for object in &interval.objects {
            assert_eq!(locations.objects[&object.number], object.location);
        }
        for path in &interval.paths {
            assert_eq!(locations.paths.all()[locations.paths.position(path.number).unwrap()], *path);
        }
        for symbols in &interval.symbols {
            assert_eq!(locations.symbols[&(symbols.object, symbols.offset)], *symbols.frames);
        }
    }
    let calls: Vec<_> = locations.paths.calls(PathNumber(7)).map(|call| call.number.0).collect();
    assert_eq!(calls, [7, 6, 4, 2]);

    let images = recording.images(at(4)).unwrap();
    let ended = |number| images[&image(number)].ended.is_some();
    assert_eq!((images.len(), ended(3), ended(4)), (4, false, true));
    assert_eq!(images[&image(3)], process(3, None));
    let last = &intervals[3].images[0];
    assert_eq!(images[&image(4)], *last);
    let kills: Vec<_> = intervals[..4].iter().flat_map(|interval| interval.oom_kills.clone()).collect();
    assert_eq!(recording.oom_kills(at(4)).unwrap(), kills);

    let known = samples(&recording, at(4)).unwrap();
    let rss = |number| known.get(&(Subject::Process(image(number)), String::from("rss_anon_bytes"))).copied();
    assert_eq!((rss(1), rss(2), rss(4), rss(5)), (Some(3 * 4096), Some(4096), Some(3 * 4096), None));
    let series = sample_series(&recording, Subject::Process(image(1)), "rss_anon_bytes").unwrap();
    let series: Vec<_> = series.into_iter().map(|(at, value)| (at.at().as_secs(), value / 4096)).collect();
    assert_eq!(series, [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6)]);

    let facts = recording.facts(at(4)).unwrap();
    assert_eq!(facts.len(), 5);
    assert_eq!(facts[4].value, FactValue::Text(String::from("text 3")));
    let marks: Vec<_> = recording.marks().iter().map(|mark| (mark.mark.text.as_str(), mark.boundary.at())).collect();
    assert_eq!(marks, [("mark 2", Duration::from_secs(3)), ("mark 5", Duration::from_secs(6))]);
    assert!(recording.marks().iter().all(|mark| mark.is_exact));

    let amounts = recording.amounts_over_time(memtrace_model::EventClass::Heap).unwrap();
    let live: Vec<_> = amounts.iter().map(|(_, live, _)| live.count).collect();
    assert_eq!(live, [1, 5, 14, 30, 55, 91, 140], "sums of squares");
}

#[test]
fn writer_stores_all_intervals_before_they_are_read() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let intervals: Vec<_> = (0..7).map(second).collect();
    let writer = Writer::create(&path, &header(), SETTINGS).unwrap();
    for count in [3, 6] {
        intervals[count - 3..count].iter().for_each(|interval| writer.push(interval.clone()));
        assert_eq!(writer.settle().intervals, count as u64);
        let recording = Recording::open_while_written(&path).unwrap();
        assert_eq!(recording.totals(Boundary::START, recording.end()).unwrap(), sum(&intervals[..count]));
        assert!(!recording.is_complete());
    }
    writer.push(intervals[6].clone());
    assert_eq!(writer.finish().intervals, 7);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.totals(Boundary::START, recording.end()).unwrap(), sum(&intervals));
    assert!(recording.is_complete());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn totals_are_the_sum_of_the_intervals(intervals in intervals(1..8)) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        write(&path, &intervals);
        let recording = Recording::open(&path).unwrap();
        prop_assert!(recording.is_complete() && !recording.is_salvaged());
        prop_assert_eq!(recording.header(), &header());
        let boundaries: Vec<_> = recording.intervals().iter().map(IntervalRow::end).collect();
        prop_assert_eq!(boundaries.len(), intervals.len());
        for (index, &to) in boundaries.iter().enumerate() {
            prop_assert_eq!(to.at(), intervals[index].span.end);
            prop_assert_eq!(recording.boundary_at(to.at()), to);
            prop_assert_eq!(recording.totals(Boundary::START, to).unwrap(), sum(&intervals[..=index]));
            let from = boundaries[index / 2];
            prop_assert_eq!(recording.totals(from, to).unwrap(), sum(&intervals[index / 2 + 1..=index]));
        }
    }

    #[test]
    fn changes_in_parts_are_those_of_their_intervals(intervals in intervals(3..9), width in 1_usize..4) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        write(&path, &intervals);
        let recording = Recording::open(&path).unwrap();
        let ends: Vec<_> = recording.intervals().iter().map(IntervalRow::end).collect();
        // The last part can be shorter.
        let mut bounds: Vec<_> = [Boundary::START].into_iter().chain(ends.iter().copied().step_by(width)).collect();
        bounds.extend(bounds.last().filter(|last| **last != recording.end()).map(|_| recording.end()));
        let parts = bounds.len() - 1;
        let images = recording.images(recording.end()).unwrap();
        let mut expected: BTreeMap<TotalKey, LiveChanges> = BTreeMap::new();
        for (interval, end) in intervals.iter().zip(&ends) {
            let part = bounds[1..].iter().position(|bound| bound.at() >= end.at()).unwrap();
            for Change { key, usage, .. } in &interval.changes {
                let (live, alloc) = (usage.live().bytes.0.cast_signed(), usage.alloc().bytes.0);
                let is_running = images.get(&key.image).is_none_or(|image| image.ended.is_none());
                if is_running && (live, alloc) != (0, 0) {
                    expected.entry(*key).or_default().add(part, parts, PartChange { live, alloc });
                }
            }
        }
        prop_assert_eq!(recording.live_changes(&bounds).unwrap().into_iter().collect::<BTreeMap<_, _>>(), expected.clone());
        let mut totals = recording.totals_in_parts(&bounds).unwrap();
        for stack in &mut totals.stacks {
            let changes = std::mem::take(&mut stack.live_changes);
            let known = if parts > 1 { expected.get(&stack.key).cloned() } else { None };
            prop_assert_eq!(changes, known.unwrap_or_default());
        }
        prop_assert_eq!(totals, sum(&intervals));
    }

    #[test]
    fn merged_intervals_have_the_same_totals(intervals in intervals(2..6)) {
        let mut merged = intervals[0].clone();
        intervals[1..].iter().for_each(|next| merged.merge(next.clone()));
        prop_assert_eq!(sum(std::slice::from_ref(&merged)), sum(&intervals));
        prop_assert_eq!(merged.span, Duration::ZERO..intervals[intervals.len() - 1].span.end);
    }
}
