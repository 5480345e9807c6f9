//! Usage of monitored threads and processes.

use std::collections::BTreeMap;

use rusqlite::{Row, params};

use super::Recording;
use super::query::Query;
use crate::history::boundaries::Boundary;
use crate::history::file::error::Error;
use crate::history::file::text::{duration, source_of, state_of};
use crate::history::file::usage_columns::{PROCESS_COLUMNS, USAGE};
use crate::history::interval::{RecordedProcessUsage, RecordedThread, RecordedThreadUsage, ThreadNumber};
use crate::model::{Comm, ImageId, SourceState, ThreadUsage, Tid, UsageCounter};

/// Usage of a thread in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// End of the interval.
    pub at: Boundary,
    /// The usage, and the state at the end. The state holds until the next row of the thread.
    pub usage: RecordedThreadUsage,
}

/// Usage of a process in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// End of the interval.
    pub at: Boundary,
    /// The usage. The source of the counters and the number of other threads hold until the next row of the process.
    pub usage: RecordedProcessUsage,
}

impl Recording {
    /// Returns true if the recording has usage of monitored processes.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn has_thread_usage(&self) -> Result<bool, Error> {
        if !self.connection.has_table("process_interval")? {
            return Ok(false);
        }
        self.connection.has_rows("SELECT 1 FROM process_interval LIMIT 1")
    }

    /// Returns the monitored threads by number. Those that started and ended in one interval are not known, and those after
    /// the damage of a file.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn monitored_threads(&self) -> Result<Vec<RecordedThread>, Error> {
        let mut threads = Vec::new();
        if !self.connection.has_table("monitored_thread")? {
            return Ok(threads);
        }
        let images = self.image_ids()?;
        let sql = "SELECT id, image, tid, name, start_ns, end_ns FROM monitored_thread ORDER BY id";
        let read = self.connection.each_row(sql, [], |row| {
            let Some(&image) = images.get(&row.get::<_, i64>(1)?) else { return Ok(()) };
            threads.push(RecordedThread {
                number: ThreadNumber(row.get::<_, i64>(0)?.cast_unsigned()),
                image,
                tid: Tid(row.get(2)?),
                name: Comm::from(row.get::<_, String>(3)?),
                start_ns: row.get(4)?,
                end: row.get::<_, Option<i64>>(5)?.map(duration),
            });
            Ok(())
        });
        if !self.is_salvaged {
            read?;
        }
        Ok(threads)
    }

    /// Calls `each` for the usage of threads between two boundaries, by time and number.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn each_thread_row(&self, from: Boundary, to: Boundary, mut each: impl FnMut(ThreadRow)) -> Result<(), Error> {
        if !self.connection.has_table("thread_interval")? {
            return Ok(());
        }
        let sql = format!("SELECT interval, thread, {USAGE}, state FROM thread_interval {IN_TIME}, thread");
        let mut rows = RowsOfBoundary::default();
        self.connection.each_row(&sql, params![from.id, to.id], |row| {
            let usage = thread_usage(row)?;
            let each = |at, usage| each(ThreadRow { at, usage });
            rows.add(self.boundary_of(row.get(0)?), usage.thread, usage, RecordedThreadUsage::merge, each);
            Ok(())
        })?;
        rows.finish(|at, usage| each(ThreadRow { at, usage }));
        Ok(())
    }

    /// Returns the usage of threads between two boundaries, by time and number.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn thread_rows(&self, from: Boundary, to: Boundary) -> Result<Vec<ThreadRow>, Error> {
        let mut rows = Vec::new();
        self.each_thread_row(from, to, |row| rows.push(row))?;
        Ok(rows)
    }

    /// Returns the usage of processes between two boundaries, by time and image.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn process_rows(&self, from: Boundary, to: Boundary) -> Result<Vec<ProcessRow>, Error> {
        let mut all = Vec::new();
        if !self.connection.has_table("process_interval")? {
            return Ok(all);
        }
        let images = self.image_ids()?;
        let sql = format!("SELECT interval, image, {USAGE}, {PROCESS_COLUMNS} FROM process_interval {IN_TIME}, image");
        let mut rows = RowsOfBoundary::default();
        self.connection.each_row(&sql, params![from.id, to.id], |row| {
            let Some(&image) = images.get(&row.get::<_, i64>(1)?) else { return Ok(()) };
            let usage = process_usage(row, image)?;
            let each = |at, usage| all.push(ProcessRow { at, usage });
            rows.add(self.boundary_of(row.get(0)?), image, usage, RecordedProcessUsage::merge, each);
            Ok(())
        })?;
        rows.finish(|at, usage| all.push(ProcessRow { at, usage }));
        Ok(all)
    }
}

/// Condition and first column of the order.
const IN_TIME: &str = "WHERE interval > ? AND interval <= ? ORDER BY interval";

/// Rows that count at the same boundary. If the writer was killed during a merge, a key can have several.
struct RowsOfBoundary<K, V> {
    at: Boundary,
    rows: BTreeMap<K, V>,
}

impl<K, V> Default for RowsOfBoundary<K, V> {
    fn default() -> Self {
        Self { at: Boundary::START, rows: BTreeMap::new() }
    }
}

impl<K: Ord, V: Copy> RowsOfBoundary<K, V> {
    /// Adds a row. If it is the first one of a later boundary, `each` gets those of the boundary before.
    fn add(&mut self, at: Boundary, key: K, row: V, merge: fn(&mut V, V), each: impl FnMut(Boundary, V)) {
        if at != self.at {
            self.finish(each);
            self.at = at;
        }
        self.rows.entry(key).and_modify(|earlier| merge(earlier, row)).or_insert(row);
    }

    fn finish(&mut self, mut each: impl FnMut(Boundary, V)) {
        std::mem::take(&mut self.rows).into_values().for_each(|row| each(self.at, row));
    }
}

fn usage(row: &Row<'_>) -> Result<ThreadUsage, Error> {
    let mut usage = ThreadUsage::default();
    for (column, counter) in (2..).zip(UsageCounter::ALL) {
        usage.set(counter, row.get::<_, i64>(column)?.cast_unsigned());
    }
    Ok(usage)
}

/// First column after the usage.
const REST: usize = 2 + UsageCounter::COUNT;

fn thread_usage(row: &Row<'_>) -> Result<RecordedThreadUsage, Error> {
    Ok(RecordedThreadUsage {
        thread: ThreadNumber(row.get::<_, i64>(1)?.cast_unsigned()),
        state: row.get_ref(REST)?.as_str().ok().and_then(state_of).unwrap_or_default(),
        usage: usage(row)?,
    })
}

fn process_usage(row: &Row<'_>, image: ImageId) -> Result<RecordedProcessUsage, Error> {
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let source = row.get_ref(REST + 3)?.as_str().ok().and_then(source_of).unwrap_or_default();
    Ok(RecordedProcessUsage {
        image,
        usage: usage(row)?,
        ended_threads: number(REST)?,
        started_threads: number(REST + 1)?,
        other_threads: number(REST + 2)?,
        source: SourceState { source, is_stale: row.get(REST + 4)? },
    })
}
