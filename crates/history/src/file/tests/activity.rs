//! Activity of threads in recordings.

use std::time::Duration;

use harness::Scratch;
use memtrace_model::{Bytes, LeftOut, Nanoseconds, Span};
use proptest::prelude::*;

use super::activity_model::{active_intervals, active_second, add, span, sum};
use super::sample_intervals::{allocated, second};
use super::{empty_store, store_or_keep, write};
use crate::interval::activity::bound;
use crate::*;

fn whole(recording: &Recording) -> RecordedActivity {
    recording.activity(Boundary::START, recording.end()).unwrap().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn activity_is_read_as_it_was_stored(intervals in active_intervals(1..7), from in 0..6usize) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        write(&path, &intervals);
        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(whole(&recording), sum(&intervals));
        let from = from.min(intervals.len());
        let boundary = recording.boundary_at(Duration::from_secs(from as u64));
        let part = recording.activity(boundary, recording.end()).unwrap().unwrap();
        let expected = sum(&intervals[from..]);
        prop_assert_eq!(&part.changes.spans, &expected.changes.spans);
        prop_assert_eq!(&part.changes.events, &expected.changes.events);
        prop_assert_eq!(&part.changes.totals, &expected.changes.totals);
        prop_assert_eq!(&part.changes.lock_totals, &expected.changes.lock_totals);
        prop_assert_eq!(&part.calls, &expected.calls);
        let is_used = |number: &u32| part.changes.spans.iter().any(|span| span.thread == *number)
            || part.changes.events.iter().any(|event| event.thread == *number);
        prop_assert!(part.changes.threads.keys().all(is_used));
        let has = |number: u32| part.changes.names.iter().any(|(name, _)| *name == number);
        prop_assert!(part.changes.spans.iter().all(|span| has(span.name)));
        prop_assert!(part.changes.totals.keys().all(|(_, name)| has(*name)));
    }

    #[test]
    fn totals_of_parts_are_those_of_the_whole(
        intervals in active_intervals(25..60), marks in prop::collection::vec(0..60usize, 0..3),
    ) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        let mut store = empty_store(&path, Bytes(1 << 30));
        for (index, interval) in intervals.iter().enumerate() {
            let mut interval = interval.clone();
            interval.activity_left_out = LeftOut { spans: 1, shorter_than: Nanoseconds(index as u64), events: 2 };
            if marks.contains(&index) {
                let text = index.to_string();
                interval.marks.push(Mark { at: interval.span.end, text, epoch: index as u32 + 1 });
            }
            store.write(&interval, 1, None).unwrap();
            if index % 5 == 0 {
                store.compact_always();
            }
        }
        store.compact_always();
        store.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        prop_assert!(recording.intervals().len() < intervals.len());
        let all = whole(&recording);
        let seconds = intervals.len() as u64;
        let left_out = LeftOut { spans: seconds, shorter_than: Nanoseconds(seconds - 1), events: 2 * seconds };
        prop_assert_eq!(&all, &RecordedActivity { left_out, ..sum(&intervals) });
        let mut parts = RecordedActivity {
            changes: all.changes.clone(), stacks: all.stacks.clone(), ..RecordedActivity::default()
        };
        let changes = &mut parts.changes;
        changes.spans.clear();
        changes.events.clear();
        changes.totals.clear();
        changes.lock_totals.clear();
        let mut from = Boundary::START;
        for to in recording.intervals().iter().map(IntervalRow::end) {
            let part = recording.activity(from, to).unwrap().unwrap();
            let range = from.at().as_secs() as usize..to.at().as_secs() as usize;
            prop_assert_eq!(&part.changes.spans, &sum(&intervals[range]).changes.spans);
            parts.changes.spans.extend(&part.changes.spans);
            parts.changes.events.extend(&part.changes.events);
            add(&mut parts, &part);
            from = to;
        }
        prop_assert_eq!(parts, all);
    }

    #[test]
    fn waiting_intervals_keep_their_activity(intervals in active_intervals(2..6)) {
        let directory = Scratch::in_memory();
        let path = directory.path("run.memtrace");
        let mut merged = intervals[0].clone();
        intervals[1..].iter().for_each(|next| merged.merge(next.clone()));
        prop_assert_eq!(sum(std::slice::from_ref(&merged)), sum(&intervals));
        write(&path, &[merged]);
        prop_assert_eq!(whole(&Recording::open(&path).unwrap()), sum(&intervals));
    }

    #[test]
    fn shortest_waiting_spans_are_left_out(seeds in prop::collection::vec(1..10_000u64, 0..100), most in 1..100usize) {
        let Interval { mut activity, .. } = active_second(1, &seeds, &seeds);
        let all = activity.clone();
        let mut left_out = LeftOut::default();
        bound(&mut activity, &mut left_out, most, most);
        prop_assert!(activity.spans.len() <= most);
        prop_assert_eq!(activity.spans.len() as u64 + left_out.spans, all.spans.len() as u64);
        prop_assert!(all.spans.len() > most || left_out.spans == 0);
        prop_assert_eq!(activity.spans, kept(&all.spans, left_out.shorter_than));
        prop_assert_eq!(&activity.events[..], &all.events[..all.events.len().min(most)]);
        prop_assert_eq!(left_out.events, all.events.len().saturating_sub(most) as u64);
        prop_assert_eq!(activity.totals, all.totals);
    }
}

fn kept(spans: &[Span], shorter_than: Nanoseconds) -> Vec<Span> {
    spans.iter().copied().filter(|span| span.duration() >= shorter_than).collect()
}

#[test]
fn shortest_spans_are_removed_at_the_limit() {
    const LIMIT: Bytes = Bytes(1 << 20);
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, LIMIT);
    let mut waiting = None;
    let mut all: Vec<Interval> = Vec::new();
    let mut state = 1_u64;
    for at in 0..300 {
        let seeds: Vec<u64> = (0..200)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                1 + (state >> 33) % 1_000_000
            })
            .collect();
        let mut interval = active_second(at, &seeds, &seeds[..at as usize % 20]);
        interval.changes = (1..=20).map(|path| allocated(1, path, at + 1)).collect();
        if at == 0 {
            interval.images = second(0).images;
        }
        store_or_keep(&mut store, &mut waiting, interval.clone());
        assert_eq!(waiting, None, "second {at}");
        all.push(interval);
    }
    store.finish().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT.0);

    let recording = Recording::open(&path).unwrap();
    let (activity, expected) = (whole(&recording), sum(&all));
    let LeftOut { spans, shorter_than, events } = activity.left_out;
    let remaining = &activity.changes.spans;
    assert_eq!(*remaining, kept(&expected.changes.spans, shorter_than));
    assert_eq!(remaining.len() as u64 + spans, 60_000);
    assert!((1000..4096).contains(&remaining.len()), "{}", remaining.len());
    assert_eq!(activity.changes.events, expected.changes.events[..2048]);
    assert_eq!(events, expected.changes.events.len() as u64 - 2048);
    assert_eq!(activity.changes.totals, expected.changes.totals);
    assert_eq!(activity.calls, expected.calls);

    // Spans and events take only a part of the file, so many intervals remain.
    let intervals = recording.intervals();
    let totals = recording.totals(Boundary::START, recording.end()).unwrap();
    assert_eq!(totals, super::sum(&all));
    assert!(intervals.len() > 100, "{} intervals", intervals.len());
    // The numbers of spans and events that are left out are exact before and after `middle`.
    let middle = intervals[intervals.len() / 2].end();
    let seconds = middle.at().as_secs() as usize;
    for (from, to, range) in [(Boundary::START, middle, 0..seconds), (middle, recording.end(), seconds..300)] {
        let part = recording.activity(from, to).unwrap().unwrap();
        assert_eq!(part.changes.spans.len() as u64 + part.left_out.spans, 200 * range.len() as u64);
        let events: usize = all[range].iter().map(|interval| interval.activity.events.len()).sum();
        assert_eq!(part.changes.events.len() as u64 + part.left_out.events, events as u64);
    }
}

#[test]
fn more_spans_than_fit_are_left_out() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let limit = Bytes(1 << 20);
    let mut store = empty_store(&path, limit);
    let mut waiting = None;
    for at in 0..3 {
        let mut interval = active_second(at, &[1], &[]);
        interval.activity.spans = (0..50_000).map(|seed| span(at, seed, 1000 + seed)).collect();
        store_or_keep(&mut store, &mut waiting, interval);
        assert_eq!(waiting, None);
    }
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.intervals().len(), 3);
    let activity = whole(&recording);
    assert_eq!(activity.changes.spans.len() as u64 + activity.left_out.spans, 150_000);
    assert!(activity.changes.spans.len() > 500, "{}", activity.changes.spans.len());
}

#[test]
fn removed_spans_leave_the_assumed_space() {
    const SPANS: u64 = 200_000;
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, Bytes(16 << 20));
    let empty = store.size().unwrap().0;
    for at in 0..SPANS / 1000 {
        let seeds: Vec<u64> = (0..1000).map(|index| 1 + (index * 7919 + at * 104_729) % 1_000_003).collect();
        let mut interval = active_second(at, &[], &[]);
        interval.activity.spans = seeds.iter().map(|&seed| span(3600 + at, seed, seed * 1000)).collect();
        store.write(&interval, 1, None).unwrap();
        while store.compact(false).unwrap() {}
    }
    let size = store.size().unwrap().0 - empty;
    store.finish().unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let number = |sql: &str| connection.query_one(sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned();
    let free = number("SELECT freelist_count FROM pragma_freelist_count");
    let rows = number("SELECT count(*) FROM span");
    println!("{rows} spans of {} bytes, {} free pages", (size - free * 4096) / rows, free);
    assert!((size - free * 4096) / rows < 70);
    assert!(size < 6 << 20, "{size} bytes of 16 MiB");
}

#[test]
fn recordings_without_activity_have_none() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &(0..40).map(second).collect::<Vec<_>>());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.activity(Boundary::START, recording.end()).unwrap(), None);
    drop(recording);
    // Older recordings lack the tables of activity.
    for table in [
        "span_kind",
        "activity_name",
        "active_thread",
        "activity_lock",
        "activity_stack",
        "span",
        "activity_event",
        "activity_left_out",
        "span_total",
        "lock_total",
        "call_total",
        "call_histogram",
    ] {
        connection.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    drop(connection);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.activity(Boundary::START, recording.end()).unwrap(), None);
    let bytes = std::fs::read(&path).unwrap();
    assert!(Recording::from_bytes(&bytes[..bytes.len() - 10]).is_ok_and(|recording| recording.is_salvaged()));
}

#[test]
fn truncated_file_has_the_activity_before_the_damage() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let seeds: Vec<u64> = (0..64).collect();
    let intervals: Vec<_> = (0..100).map(|at| active_second(at, &seeds, &seeds)).collect();
    write(&path, &intervals);
    let bytes = std::fs::read(&path).unwrap();
    let mut salvaged = 0;
    for pages in (0..bytes.len() / 4096).rev() {
        if let Ok(recording) = Recording::from_bytes(&bytes[..pages * 4096]) {
            let number = recording.intervals().len();
            assert_eq!(whole(&recording), sum(&intervals[..number]), "{pages} pages");
            salvaged += 1;
        }
    }
    assert!(salvaged > 4, "{salvaged} files were salvaged");
}

#[test]
fn view_has_the_names_of_spans() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &[active_second(0, &[5, 6], &[])]);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT thread || ' ' || kind || ' ' || name || ' ' || coalesce(label, '-') || ' ' || duration_ns || ' '
        || coalesce(lock, '-') || ' ' || coalesce(stack_end, '-') FROM span_named ORDER BY begin_ns";
    let mut rows = connection.prepare(sql).unwrap();
    let rows: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows, ["worker1 stall name 1 name 5 5 - merged", "worker2 allocator_call name 2 - 6 - -"]);
}
