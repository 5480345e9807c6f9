//! Files that are damaged, foreign or newer.

use std::path::Path;

use harness::Scratch;
use rusqlite::Connection;

use super::activity_model::active_second;
use super::sample_intervals::{image, second};
use super::{own_directory, sum, write};
use crate::file::reader::test_samples::samples;
use crate::*;

fn recorded(path: &Path, seconds: u64) -> Vec<Interval> {
    let intervals: Vec<_> = (0..seconds).map(second_with_activity).collect();
    write(path, &intervals);
    intervals
}

fn second_with_activity(at: u64) -> Interval {
    let Interval { activity, activity_stacks, calls, .. } = active_second(at, &[3 * at, 3 * at + 1], &[at]);
    Interval { activity, activity_stacks, calls, ..second(at) }
}

/// Reads everything, and compares the totals at the last boundary with `intervals`. Returns the number of
/// intervals.
fn check(recording: &Recording, intervals: &[Interval]) -> usize {
    let number = recording.intervals().len();
    let end = recording.end();
    assert_eq!(recording.totals(Boundary::START, end).unwrap(), sum(&intervals[..number]));
    assert_eq!(recording.images(end).unwrap().len(), number);
    samples(recording, end).unwrap();
    recording.facts(end).unwrap();
    recording.activity(Boundary::START, end).unwrap();
    let locations = recording.locations().unwrap();
    for interval in &intervals[..number] {
        assert!(interval.paths.iter().all(|path| locations.paths.position(path.number).is_some()));
    }
    assert!(recording.images(end).unwrap().contains_key(&image(1)));
    number
}

#[test]
fn huge_damaged_file_is_not_read_into_memory() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    recorded(&path, 4);
    // The file is sparse.
    std::fs::File::options().write(true).open(&path).unwrap().set_len((4 << 30) + 1).unwrap();
    let error = Recording::open(&path).unwrap_err();
    assert!(matches!(&error, Error::Damaged(reason) if reason.ends_with("more than 4 GiB")), "{error}");
}

#[test]
fn each_prefix_is_recovered_or_refused() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let intervals = recorded(&path, 40);
    let bytes = std::fs::read(&path).unwrap();
    let (mut recovered, mut last) = (0, 0);
    let near_page = |length: usize| length % 4096 < 2 || length % 4096 > 4094;
    for length in (0..=bytes.len()).filter(|length| length % 97 == 0 || near_page(*length) || *length < 128) {
        match Recording::from_bytes(&bytes[..length]) {
            Ok(recording) => {
                assert_eq!(recording.is_salvaged(), length < bytes.len(), "{length}");
                let number = check_tables(&recording, &intervals);
                assert!(number >= last, "{length}: more bytes, but {number} intervals instead of {last}");
                (recovered, last) = (recovered + 1, number);
            }
            Err(Error::Damaged(_) | Error::NotDatabase) => assert_eq!(last, 0, "{length}"),
            Err(error) => panic!("{length}: {error}"),
        }
    }
    assert_eq!(last, intervals.len());
    assert!(recovered > 10, "{recovered} prefixes were recovered");
}

/// Does the same as [`check`]. In a salvaged file, compares only the totals, because other tables can be damaged.
fn check_tables(recording: &Recording, intervals: &[Interval]) -> usize {
    if recording.is_salvaged() {
        let number = recording.intervals().len();
        let totals = recording.totals(Boundary::START, recording.end()).unwrap();
        assert_eq!(totals, sum(&intervals[..number]));
        return number;
    }
    check(recording, intervals)
}

#[test]
fn truncated_file_is_opened() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let intervals = recorded(&path, 40);
    let length = std::fs::metadata(&path).unwrap().len();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(length - 4096 - 17).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert!(recording.is_salvaged() && !recording.is_complete());
    check_tables(&recording, &intervals);
}

#[test]
fn damaged_bytes_cause_no_panic() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    recorded(&path, 6);
    let bytes = std::fs::read(&path).unwrap();
    let mut state = 1_u64;
    for _ in 0..1000 {
        let mut damaged = bytes.clone();
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % damaged.len();
            damaged[at] ^= 1 << (state % 8);
        }
        if let Ok(recording) = Recording::from_bytes(&damaged) {
            read_all(&recording);
        }
    }
}

/// Reads everything. Each read may fail.
fn read_all(recording: &Recording) {
    let end = recording.end();
    let _ = recording.totals(Boundary::START, end);
    let bounds: Vec<_> = recording.intervals().iter().map(IntervalRow::end).collect();
    let _ = recording.totals_in_parts(&bounds);
    let _ = recording.live_changes(&bounds);
    let _ = recording.losses(Boundary::START, end);
    let _ = recording.memory_over_time(end);
    let _ = recording.accounts(Boundary::START, end);
    let _ = recording.account_names();
    let _ = recording.images(end);
    let _ = recording.merged_images(Boundary::START, end);
    let _ = recording.oom_kills(end);
    let _ = samples(recording, end);
    let _ = recording.facts(end);
    let _ = recording.activity(Boundary::START, end);
    let _ = recording.locations();
    let _ = recording.amounts_over_time(memtrace_model::EventClass::Heap);
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let directory = Scratch::in_memory();
    let open = |name: &str| Recording::open(&directory.path(name)).unwrap_err();
    assert!(matches!(open("missing"), Error::File(_)));
    assert!(matches!(Recording::open(&directory.path("")).unwrap_err(), Error::NotRegular));
    directory.write("empty", b"");
    assert!(matches!(open("empty"), Error::NotDatabase));
    directory.write("text", "no database\n".repeat(1000).as_bytes());
    assert!(matches!(open("text"), Error::NotDatabase));
    let other = Connection::open(directory.path("other")).unwrap();
    other.execute_batch("PRAGMA application_id = 7; CREATE TABLE interval (id INTEGER PRIMARY KEY)").unwrap();
    assert!(matches!(open("other"), Error::Foreign(7)));
    let with_version = |name: &str, version: i32| {
        recorded(&directory.path(name), 2);
        Connection::open(directory.path(name)).unwrap().pragma_update(None, "user_version", version).unwrap();
    };
    with_version("newer", 99);
    assert!(matches!(open("newer"), Error::Newer { found: 99, known: 1 }));
    with_version("none", 0);
    assert!(matches!(open("none"), Error::Damaged(_)));
}

#[test]
fn only_recordings_are_replaced() {
    let directory = Scratch::in_memory();
    let create = |name: &str| Writer::create(&directory.path(name), &super::header(), Settings::default());
    directory.write("text", b"important");
    assert!(matches!(create("text").unwrap_err(), Error::NotDatabase));
    assert_eq!(std::fs::read(directory.path("text")).unwrap(), b"important");
    let other = Connection::open(directory.path("other")).unwrap();
    other.execute_batch("CREATE TABLE interval (id INTEGER PRIMARY KEY)").unwrap();
    assert!(matches!(create("other").unwrap_err(), Error::Foreign(0)));
    recorded(&directory.path("run"), 5);
    let _ = create("run").unwrap().finish();
    assert!(Recording::open(&directory.path("run")).unwrap().intervals().is_empty());
    let first = create("run").unwrap();
    assert!(matches!(create("run").unwrap_err(), Error::InUse));
    let _ = first.finish();
}

#[test]
fn recording_is_read_while_it_is_written() {
    let directory = Scratch::in_memory();
    // Other users can create files in the first directory. memtrace therefore does not let SQLite open the write-ahead log
    // there, but reads the log itself.
    for directory in [directory.path(""), own_directory(&directory)] {
        assert_is_read_while_it_is_written(&directory.join("run.memtrace"));
    }
}

fn assert_is_read_while_it_is_written(path: &Path) {
    let writer = Writer::create(path, &super::header(), Settings::default()).unwrap();
    let intervals: Vec<_> = (0..10).map(second).collect();
    for (index, interval) in intervals.iter().enumerate() {
        writer.push(interval.clone());
        while writer.status().intervals <= index as u64 {
            std::thread::yield_now();
        }
        let recording = Recording::open(path).unwrap();
        assert!(!recording.is_complete() && !recording.is_salvaged());
        assert_eq!(check(&recording, &intervals), index + 1);
    }
    assert_eq!(writer.finish().gaps, 0);
}
