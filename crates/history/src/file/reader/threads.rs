//! Usage of monitored threads and processes, and values of the machine over time.

use std::collections::BTreeMap;

use memtrace_model::{
    Comm, ImageId, MachineUsage, MachineValue, ProcessValue, ProcessValues, SourceState, ThreadUsage, Tid, UsageCounter,
};
use rusqlite::{Row, params};
use rustc_hash::FxHashMap;

use super::Recording;
use super::query::Query;
use super::samples::counters;
use super::totals::image_ids;
use crate::boundaries::{Boundary, IntervalRow};
use crate::file::error::Error;
use crate::file::text::{duration, source_of, state_of};
use crate::file::usage_columns::{PROCESS_COLUMNS, USAGE};
use crate::interval::{
    MACHINE_START, RecordedProcessUsage, RecordedThread, RecordedThreadUsage, Subject, ThreadNumber,
};

/// Usage of a thread in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// End of the interval.
    pub at: Boundary,
    /// Usage within the interval, and state at its end. The state holds until the next row of the thread.
    pub usage: RecordedThreadUsage,
}

/// Usage of a process in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// End of the interval.
    pub at: Boundary,
    /// Usage within the interval. The source of the heap counters and the number of other threads hold until the
    /// next row of the process.
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

    /// Returns the monitored threads ordered by number. Threads that started and ended within one
    /// interval can be missing. In a salvaged file, the threads after the damage are missing too.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn recorded_threads(&self) -> Result<Vec<RecordedThread>, Error> {
        let mut threads = Vec::new();
        if !self.connection.has_table("monitored_thread")? {
            return Ok(threads);
        }
        let images = image_ids(self)?;
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

    /// Calls `each` for the usage of each thread in each interval between two boundaries, ordered by time and
    /// thread number.
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

    /// Returns the usage of each process in each interval between two boundaries, ordered by time and image.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn process_rows(&self, from: Boundary, to: Boundary) -> Result<Vec<ProcessRow>, Error> {
        let mut all = Vec::new();
        if !self.connection.has_table("process_interval")? {
            return Ok(all);
        }
        let images = image_ids(self)?;
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

    /// Returns the values of each process up to a boundary, in order of time. There is an entry for the end of each
    /// interval with a change.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn process_values(&self, to: Boundary) -> Result<BTreeMap<ImageId, Vec<(Boundary, ProcessValues)>>, Error> {
        let mut series: BTreeMap<ImageId, Vec<(Boundary, ProcessValues)>> = BTreeMap::new();
        let counters = self.counters_of(|subject, name| {
            let Subject::Process(image) = subject else { return None };
            Some((image, ProcessValue::ALL.into_iter().find(|value| value.name() == name)?))
        })?;
        self.each_sample(to, |at, counter, number| {
            let Some(&(image, value)) = counters.get(&counter) else { return };
            let rows = series.entry(image).or_default();
            match rows.last_mut() {
                Some((last, values)) if *last == at => values.set(value, Some(number)),
                last => {
                    let mut values = last.map_or_else(ProcessValues::default, |(_, values)| *values);
                    values.set(value, Some(number));
                    rows.push((at, values));
                }
            }
        })?;
        Ok(series)
    }

    /// Returns the usage of the machine in each interval up to a boundary: the increases of counters, and the other
    /// values at the end of the interval.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn machine_usage(&self, to: Boundary) -> Result<Vec<(Boundary, MachineUsage)>, Error> {
        let counters =
            self.counters_of(|subject, name| machine_value(name).filter(|_| matches!(subject, Subject::Machine)))?;
        let mut samples: BTreeMap<Boundary, Vec<(MachineValue, u64)>> = BTreeMap::new();
        self.each_sample(to, |at, counter, number| {
            if let Some(&value) = counters.get(&counter) {
                samples.entry(at).or_default().push((value, number));
            }
        })?;
        let mut totals = self.machine_at_start()?;
        let mut usage = Vec::new();
        for at in self.intervals.iter().map(IntervalRow::end).take_while(|at| *at <= to) {
            let earlier = totals;
            for &(value, number) in samples.get(&at).into_iter().flatten() {
                totals.set(value, Some(number));
            }
            usage.push((at, totals.since(&earlier)));
        }
        Ok(usage)
    }

    /// Returns the counters of the machine at the start of the recording.
    fn machine_at_start(&self) -> Result<MachineUsage, Error> {
        let mut start = MachineUsage::default();
        let sql = "SELECT item, value FROM fact WHERE topic = ?";
        self.connection.each_row(sql, [MACHINE_START], |row| {
            if let Some(value) = machine_value(row.get_ref(0)?.as_str().unwrap_or_default()) {
                start.set(value, Some(row.get::<_, i64>(1)?.cast_unsigned()));
            }
            Ok(())
        })?;
        Ok(start)
    }

    /// Returns the result of `choose` for each counter, by row ID. Counters without a result are left out.
    fn counters_of<T>(&self, choose: impl Fn(Subject, &str) -> Option<T>) -> Result<FxHashMap<i64, T>, Error> {
        let counters = counters(self)?;
        Ok(counters.into_iter().filter_map(|(id, (subject, name))| Some((id, choose(subject, &name)?))).collect())
    }

    /// Calls `each` for the samples up to a boundary, in order of time. The arguments are the boundary of the sample,
    /// the row ID of the counter, and the value.
    fn each_sample(&self, to: Boundary, mut each: impl FnMut(Boundary, i64, u64)) -> Result<(), Error> {
        let sql = "SELECT interval, counter, value FROM sample WHERE interval <= ? ORDER BY interval, counter";
        self.connection.each_row(sql, [to.id], |row| {
            each(self.boundary_of(row.get(0)?), row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned());
            Ok(())
        })
    }
}

fn machine_value(name: &str) -> Option<MachineValue> {
    MachineValue::ALL.into_iter().find(|value| value.name() == name)
}

/// SQL clauses for the rows between two boundaries, ordered by interval. The caller appends further columns of the
/// order.
const IN_TIME: &str = "WHERE interval > ? AND interval <= ? ORDER BY interval";

/// Rows that count at the same boundary. If the writer was killed during a merge, a thread or process can have several
/// rows at a boundary. These rows are added up here.
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
    /// Adds a row. If it is the first row of a later boundary, `each` is called for the rows of the previous
    /// boundary.
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

/// Index of the first column after the usage.
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
