//! Files that somebody has made to harm the reader.

use harness::Scratch;
use rusqlite::Connection;

use super::sample_intervals::second;
use super::write;
use crate::*;

/// Returns the recording after the change of its tables by `sql`.
fn changed(sql: &str) -> Result<Recording, Error> {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &(0..3).map(second).collect::<Vec<_>>());
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    Recording::from_bytes(&std::fs::read(&path).unwrap())
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
fn computed_tables_are_refused() {
    for sql in [
        "ALTER TABLE object ADD COLUMN endless TEXT AS (hex(zeroblob(1000)))",
        "CREATE VIRTUAL TABLE endless USING fts5(a)",
    ] {
        let Err(Error::Damaged(message)) = changed(sql) else { panic!("{sql}") };
        assert_eq!(message, "a table has computed values", "{sql}");
    }
}

#[test]
fn companion_that_is_a_pipe_is_refused() {
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    write(&path, &[second(0)]);
    let _ = directory.pipe("run.memtrace-journal");
    assert!(matches!(Recording::open(&path), Err(Error::NotRegular)));
}
