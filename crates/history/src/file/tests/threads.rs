//! Monitored threads in recordings.

use std::time::Duration;

use harness::Scratch;
use memtrace_model::{Bytes, ImageId, ProcessValue, ProcessValues, ThreadUsage, ThreadsInterval};

use super::sample_intervals::header;
use super::thread_model::{SERVER, check, monitored, recorder, thread_rows};
use super::{SETTINGS, empty_store, store_or_keep, write};
use crate::*;

/// Returns intervals of the simulated monitor, and the recorded intervals.
fn intervals(seconds: u64, threads: u64) -> (Vec<ThreadsInterval>, Vec<Interval>) {
    let all: Vec<_> = (0..seconds).map(|second| monitored(second, threads)).collect();
    let mut recorder = recorder();
    let recorded = all.iter().map(|interval| recorder.convert(interval)).collect();
    (all, recorded)
}

#[test]
fn usage_is_read_as_it_was_monitored() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let (all, recorded) = intervals(120, 10);
    write(&path, &recorded);
    let recording = Recording::open(&path).unwrap();
    assert!(recording.has_thread_usage().unwrap());
    check(&recording, &all);
    let texts: Vec<_> = recording.marks().iter().map(|mark| mark.mark.text.as_str()).collect();
    let triggers = ["", "#2", "#3", "#4", "#5", "#6"].map(|number| format!("trigger: rss > 1{number}"));
    assert_eq!(texts.iter().filter(|text| text.starts_with("trigger")).collect::<Vec<_>>(), triggers.each_ref());
    let exact = recording.marks().iter().filter(|mark| mark.is_exact);
    let exact: Vec<_> = exact.map(|mark| (mark.mark.text.as_str(), mark.boundary.at().as_secs())).collect();
    assert_eq!(exact, [("begin", 50), ("begin#2", 100)]);
    let values = recording.process_values(recording.end()).unwrap();
    let rss = &values[&ImageId { pid: SERVER, ordinal: 0 }];
    let anonymous = |(at, values): &(Boundary, ProcessValues)| (at.at().as_secs(), values.get(ProcessValue::RssAnon));
    let changes: Vec<_> = rss.iter().map(anonymous).filter(|(at, _)| at % 3 == 1).take(3).collect();
    assert_eq!(changes, [(1, Some(0)), (4, Some(4096)), (7, Some(8192))]);
}

#[test]
fn waiting_intervals_have_sums_of_usage() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let (all, recorded) = intervals(60, 5);
    let merged = recorded.chunks(20).map(|chunk| {
        let mut merged = chunk[0].clone();
        chunk[1..].iter().for_each(|next| merged.merge(next.clone()));
        merged
    });
    write(&path, &merged.collect::<Vec<_>>());
    let threads = check(&Recording::open(&path).unwrap(), &all);
    // Only threads that run at the end of a merged interval remain. About 10 run at any time, five of them
    // throughout.
    assert!((5..60).contains(&threads), "{threads}");
}

#[test]
fn old_intervals_have_sums_of_usage() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let limit = Bytes(1 << 20);
    let (all, recorded) = intervals(900, 60);
    let mut store = empty_store(&path, limit);
    let mut waiting = None;
    for (index, interval) in recorded.iter().enumerate() {
        store_or_keep(&mut store, &mut waiting, interval.clone());
        if index % 150 == 0 {
            check(&Recording::open_while_written(&path).unwrap(), &all);
        }
    }
    assert_eq!(waiting, None);
    store.finish().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= limit.0);
    let recording = Recording::open(&path).unwrap();
    let remaining = recording.intervals().len();
    let threads = check(&recording, &all);
    println!("{remaining} intervals, {threads} threads");
    assert!(remaining < 450, "{remaining} intervals");
    assert!(threads < 800, "{threads} threads of more than 1000");
    assert_eq!(recording.end().at(), Duration::from_secs(900));
}

#[test]
fn intervals_that_could_not_be_stored_are_a_gap_with_their_usage() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let (all, recorded) = intervals(30, 10);
    let writer = Writer::create(&path, &header(), SETTINGS).unwrap();
    let wait_for = |is_reached: &dyn Fn(&Status) -> bool| {
        while !is_reached(&writer.status()) {
            std::thread::yield_now();
        }
    };
    recorded[..5].iter().for_each(|interval| writer.push(interval.clone()));
    wait_for(&|status| status.intervals == 5);
    let other = rusqlite::Connection::open(&path).unwrap();
    let failing = "CREATE TRIGGER failing BEFORE INSERT ON interval BEGIN SELECT RAISE(ABORT, 'test'); END";
    other.execute_batch(failing).unwrap();
    recorded[5..25].iter().for_each(|interval| writer.push(interval.clone()));
    let end = Duration::from_secs(25);
    wait_for(&|status| status.open_gap.as_ref().is_some_and(|gap| gap.span.end == end));
    other.execute_batch("DROP TRIGGER failing").unwrap();
    recorded[25..].iter().for_each(|interval| writer.push(interval.clone()));
    assert_eq!(writer.finish().gaps, 1);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.gaps()[0].span, Duration::from_secs(5)..end);
    check(&recording, &all);
}

#[test]
fn merged_processes_leave_their_usage_to_groups() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let (all, recorded) = intervals(400, 3);
    let mut store = empty_store(&path, Bytes(1 << 30));
    recorded.iter().for_each(|interval| store.write(interval, 1, None).unwrap());
    assert!(store.merge_images().unwrap());
    while store.compact(false).unwrap() {}
    store.finish().unwrap();
    let recording = Recording::open(&path).unwrap();
    let end = recording.end();
    let images = recording.images(end).unwrap();
    let grouped = images.keys().filter(|image| image.pid.0 == 0).count();
    assert!(grouped > 0 && images.len() < 70, "{} images, {grouped} groups", images.len());
    let rows = recording.process_rows(Boundary::START, end).unwrap();
    for interval in &all {
        let expected: ThreadUsage = interval.processes.iter().map(|row| row.usage).sum();
        let of_interval = rows.iter().filter(|row| row.at.at() == interval.span.end);
        let sum: ThreadUsage = of_interval.map(|row| row.usage.usage).sum();
        assert_eq!(sum, expected, "{:?}", interval.span);
    }
    let threads = recording.recorded_threads().unwrap();
    assert!(threads.iter().all(|thread| images.contains_key(&thread.image)));
    let known = |row: &ThreadRow| threads.iter().any(|thread| thread.number == row.usage.thread);
    let thread_rows = thread_rows(&recording, Boundary::START, end);
    assert!(thread_rows.iter().all(known), "rows of threads without a process");
}

#[test]
fn truncated_file_has_the_usage_before_the_damage() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let (all, recorded) = intervals(400, 10);
    write(&path, &recorded);
    let bytes = std::fs::read(&path).unwrap();
    let mut salvaged = 0;
    for pages in (0..bytes.len() / 4096).rev() {
        if let Ok(recording) = Recording::from_bytes(&bytes[..pages * 4096]) {
            let (start, end) = (Boundary::START, recording.end());
            let usage = recording.process_rows(start, end).unwrap();
            let seconds = end.at().as_secs() as usize;
            let expected = all[..seconds].iter().flat_map(|interval| &interval.processes);
            let expected: ThreadUsage = expected.map(|row| row.usage).sum();
            assert_eq!(usage.iter().map(|row| row.usage.usage).sum::<ThreadUsage>(), expected);
            let rows = thread_rows(&recording, start, end);
            let expected: usize = recorded[..seconds].iter().map(|interval| interval.threads.len()).sum();
            assert_eq!(rows.len(), expected, "{pages} pages");
            recording.recorded_threads().unwrap();
            salvaged += 1;
        }
    }
    assert!(salvaged > 4, "{salvaged} files were salvaged");
}

#[test]
fn recordings_without_tables_of_threads_have_none() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &intervals(100, 10).1);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("DROP TABLE monitored_thread; DROP TABLE thread_interval; DROP TABLE process_interval")
        .unwrap();
    drop(connection);
    let recording = Recording::open(&path).unwrap();
    let (start, end) = (Boundary::START, recording.end());
    assert!(!recording.has_thread_usage().unwrap());
    assert_eq!(recording.recorded_threads().unwrap(), []);
    assert_eq!(thread_rows(&recording, start, end), []);
    assert_eq!(recording.process_rows(start, end).unwrap(), []);
    let bytes = std::fs::read(&path).unwrap();
    assert!(Recording::from_bytes(&bytes[..bytes.len() - 10]).is_ok_and(|recording| recording.is_salvaged()));
}
