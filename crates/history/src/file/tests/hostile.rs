//! Files that somebody has made to harm the reader.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::Scratch;
use rusqlite::Connection;

use super::activity_model::active_second;
use super::sample_intervals::{header, second};
use super::{SETTINGS, own_directory, sum, write};
use crate::*;

/// Returns the recording after the change of its tables by `sql`.
fn changed(sql: &str) -> Result<Recording, Error> {
    changed_recording(&(0..3).map(second).collect::<Vec<_>>(), sql)
}

/// Returns a recording of `intervals` after the change of its tables by `sql`.
fn changed_recording(intervals: &[Interval], sql: &str) -> Result<Recording, Error> {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, intervals);
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    Recording::from_bytes(&fs::read(&path).unwrap())
}

#[test]
fn view_in_the_place_of_a_table_is_refused() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n";
    let large = "SELECT * FROM change_, change_, change_, change_, change_, change_, change_, change_";
    for query in [endless, large] {
        let sql =
            format!("DROP VIEW stack_change; ALTER TABLE change RENAME TO change_; CREATE VIEW change AS {query};");
        let read = changed(&sql).and_then(|recording| recording.totals(Boundary::START, recording.end()));
        assert!(matches!(read, Err(Error::Damaged(_))), "{read:?}");
    }
}

#[test]
fn value_that_fills_the_memory_is_refused() {
    let sql = "UPDATE object SET path = replace(hex(zeroblob(40000000)), '00', 'aa')";
    let read = changed(sql).and_then(|recording| recording.locations().map(drop));
    let Err(Error::Damaged(message)) = read else { panic!("{read:?}") };
    assert_eq!(message, "a value is longer than in any recording");
}

#[test]
fn names_and_stacks_with_huge_ids_are_left_out() {
    let sql = "UPDATE activity_name SET id = 4294967295 WHERE id = 1; UPDATE span SET name = 4294967295 WHERE name = 1;
        UPDATE activity_stack SET id = 4294967295 WHERE id = 2; UPDATE span SET stack = 4294967295 WHERE stack = 2";
    let recording = changed_recording(&[active_second(0, &[1, 2, 3, 4], &[])], sql).unwrap();
    let activity = recording.activity(Boundary::START, recording.end()).unwrap().unwrap();
    let spans = activity.changes.spans.iter();
    let spans: Vec<_> = spans.map(|span| (span.thread, span.name, span.stack)).collect();
    assert_eq!(spans, [(2, 2, None), (3, 3, None), (0, 0, Some(0))]);
    assert!(activity.changes.names.iter().all(|(number, _)| *number < 8));
    assert!(activity.stacks.iter().all(|(number, ..)| *number < 4));
}

#[test]
fn computed_tables_are_refused() {
    for sql in [
        "ALTER TABLE object ADD COLUMN endless TEXT AS (hex(zeroblob(1000)))",
        "CREATE VIRTUAL TABLE endless USING fts5(a)",
    ] {
        let Err(Error::Damaged(message)) = changed(sql) else { panic!("{sql}") };
        assert_eq!(message, "a table has computed values", "{sql}");
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn companion_that_is_a_link_is_refused() {
    let scratch = Scratch::in_memory();
    let secret = scratch.write("secret", b"content");
    for (index, directory) in [scratch.path(""), own_directory(&scratch)].iter().enumerate() {
        for suffix in ["-journal", "-wal", "-shm"] {
            let path = directory.join(format!("run{index}.memtrace"));
            write(&path, &[second(0)]);
            let link = directory.join(format!("run{index}.memtrace{suffix}"));
            symlink(&secret, &link).unwrap();
            assert!(matches!(Recording::open(&path), Err(Error::NotRegular)), "{link:?}");
            fs::remove_file(link).unwrap();
            assert_eq!(Recording::open(&path).unwrap().intervals().len(), 1);
        }
    }
    assert_eq!(fs::read(&secret).unwrap(), b"content");
}

#[test]
fn files_beside_a_recording_in_a_shared_directory_are_not_changed() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let intervals: Vec<_> = (0..3).map(second).collect();
    write(&path, &intervals);
    let secret = directory.write("secret", &[7; 5000]);
    let before = names_in(&directory);
    for suffixes in [&["-shm"][..], &["-journal", "-shm"], &["-journal", "-shm", "-wal"]] {
        let links: Vec<_> = suffixes.iter().map(|suffix| directory.path(&format!("run.memtrace{suffix}"))).collect();
        links.iter().for_each(|link| fs::hard_link(&secret, link).unwrap());
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.totals(Boundary::START, recording.end()).unwrap(), sum(&intervals), "{suffixes:?}");
        assert!(recording.is_complete());
        drop(recording);
        links.into_iter().for_each(|link| fs::remove_file(link).unwrap());
        assert_eq!(names_in(&directory), before, "{suffixes:?}");
        assert_eq!(fs::read(&secret).unwrap(), [7; 5000], "{suffixes:?}");
    }
}

#[test]
fn log_in_a_shared_directory_is_read_and_not_changed() {
    let scratch = Scratch::in_memory();
    let own = own_directory(&scratch);
    let intervals: Vec<_> = (0..3).map(second).collect();
    let writer = Writer::create(&own.join("run.memtrace"), &header(), SETTINGS).unwrap();
    intervals.iter().for_each(|interval| writer.push(interval.clone()));
    assert_eq!(writer.settle().intervals, 3);
    let shared = scratch.subdirectory("shared");
    fs::set_permissions(&shared, fs::metadata(scratch.path("")).unwrap().permissions()).unwrap();
    let names = ["run.memtrace", "run.memtrace-wal"];
    names.iter().for_each(|name| _ = fs::copy(own.join(name), shared.join(name)).unwrap());
    let log = fs::read(shared.join(names[1])).unwrap();
    assert!(log.len() > 4096);
    let recording = Recording::open(&shared.join(names[0])).unwrap();
    assert_eq!(recording.totals(Boundary::START, recording.end()).unwrap(), sum(&intervals));
    assert!(!recording.is_complete() && !recording.is_salvaged());
    assert_eq!(names_in(&shared), names);
    assert!(fs::read(shared.join(names[1])).unwrap() == log, "the log has changed");
    assert_eq!(writer.finish().intervals, 3);
}

#[test]
fn companion_that_is_a_pipe_is_refused() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &[second(0)]);
    let _ = directory.pipe("run.memtrace-journal");
    assert!(matches!(Recording::open(&path), Err(Error::NotRegular)));
}
