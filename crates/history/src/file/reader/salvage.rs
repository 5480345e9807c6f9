//! Search for the readable part of a truncated file.

use rusqlite::Connection;

use super::query::Query;
use crate::file::error::Error;

/// Tables with the interval in the first column of the key. `change` and `process_interval` have checks of their own.
const BY_INTERVAL: [&str; 16] = [
    "detail",
    "image_change",
    "stall_change",
    "merged_image",
    "loss",
    "sample",
    "account_interval",
    "thread_interval",
    "fact",
    "span",
    "activity_event",
    "activity_left_out",
    "span_total",
    "lock_total",
    "call_total",
    "call_histogram",
];

/// Returns the ID of the last interval before any unreadable row; 0 if there is none.
pub(super) fn last_complete_interval(connection: &Connection) -> Result<i64, Error> {
    let paths = readable_paths(connection)?;
    let (images, _) = readable(connection, "SELECT id FROM image ORDER BY id", |_| true)?;
    let (totals, _) = readable(connection, "SELECT id, path, image FROM total ORDER BY id", |row| {
        row[1] <= paths && row[2] <= images
    })?;
    let (mut last, _) = readable(connection, "SELECT id FROM interval ORDER BY id", |_| true)?;
    let mut limit = |(read, is_all): (i64, bool)| {
        // The interval of the last readable row can be incomplete.
        last = if is_all { last } else { last.min(read - 1) };
    };
    limit(readable(connection, "SELECT interval, total FROM change ORDER BY interval, total", |row| row[1] <= totals)?);
    if connection.has_table("process_interval")? {
        let sql = "SELECT interval, image FROM process_interval ORDER BY interval, image";
        limit(readable(connection, sql, |row| row[1] <= images)?);
    }
    for table in BY_INTERVAL {
        if !connection.has_table(table)? {
            continue;
        }
        limit(readable(connection, &format!("SELECT interval FROM {table} ORDER BY interval"), |_| true)?);
    }
    Ok(last.max(0))
}

/// Returns the ID of the last call path before any unreadable path or object. The callers of a path have a lower ID.
fn readable_paths(connection: &Connection) -> Result<i64, Error> {
    let (objects, _) = readable(connection, "SELECT id FROM object ORDER BY id", |_| true)?;
    let (paths, _) = readable(connection, "SELECT id, object FROM path ORDER BY id", |row| row[1] <= objects)?;
    Ok(paths)
}

/// Reads rows of up to three numbers until a row cannot be read or `is_usable` returns false for it. Returns the
/// first number of the last usable row, 0 if there is none, and true if all rows are usable.
fn readable(connection: &Connection, sql: &str, is_usable: impl Fn([i64; 3]) -> bool) -> Result<(i64, bool), Error> {
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut last = 0;
    loop {
        match rows.next() {
            Ok(None) => return Ok((last, true)),
            Err(_) => return Ok((last, false)),
            Ok(Some(row)) => {
                let mut numbers = [0; 3];
                for (index, number) in numbers.iter_mut().enumerate().take(columns) {
                    match row.get(index) {
                        Ok(value) => *number = value,
                        Err(_) => return Ok((last, false)),
                    }
                }
                if !is_usable(numbers) {
                    return Ok((last, false));
                }
                last = numbers[0];
            }
        }
    }
}
