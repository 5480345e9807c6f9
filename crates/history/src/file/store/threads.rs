//! Rows of monitored threads and processes.

use memtrace_model::{ImageId, ThreadUsage, UsageCounter};
use rusqlite::{Result, Statement, Transaction, params};

use super::processes::image_number;
use crate::file::numbers::Numbers;
use crate::file::text::nanoseconds;
use crate::interval::{Interval, RecordedThread};

/// Stores the usage of threads and processes in an interval.
pub(super) fn write(
    transaction: &Transaction<'_>,
    interval: i64,
    content: &Interval,
    images: &mut Numbers<ImageId>,
) -> Result<()> {
    for thread in &content.monitored {
        write_thread(transaction, interval, thread, images)?;
    }
    let marks = "?, ".repeat(2 + UsageCounter::COUNT);
    let mut row = transaction.prepare_cached(&format!("INSERT OR REPLACE INTO thread_interval VALUES ({marks}?)"))?;
    for thread in &content.threads {
        row.raw_bind_parameter(1, interval)?;
        row.raw_bind_parameter(2, thread.thread.0.cast_signed())?;
        let next = bind_usage(&mut row, &thread.usage)?;
        row.raw_bind_parameter(next, &*thread.state.letter().encode_utf8(&mut [0; 4]))?;
        row.raw_execute()?;
    }
    let marks = "?, ".repeat(6 + UsageCounter::COUNT);
    let mut row = transaction.prepare_cached(&format!("INSERT OR REPLACE INTO process_interval VALUES ({marks}?)"))?;
    for process in &content.process_usage {
        row.raw_bind_parameter(1, interval)?;
        row.raw_bind_parameter(2, image_number(transaction, interval, process.image, images)?)?;
        let next = bind_usage(&mut row, &process.usage)?;
        let threads = [process.ended_threads, process.started_threads, process.other_threads];
        for (column, threads) in (next..).zip(threads) {
            row.raw_bind_parameter(column, threads.cast_signed())?;
        }
        row.raw_bind_parameter(next + 3, process.source.source.name())?;
        row.raw_bind_parameter(next + 4, process.source.is_stale)?;
        row.raw_execute()?;
    }
    Ok(())
}

/// Binds the counters to the columns after the key. Returns the index of the next column.
fn bind_usage(row: &mut Statement<'_>, usage: &ThreadUsage) -> Result<usize> {
    for (column, counter) in (3..).zip(UsageCounter::ALL) {
        row.raw_bind_parameter(column, i64::try_from(usage.get(counter)).unwrap_or(i64::MAX))?;
    }
    Ok(3 + UsageCounter::COUNT)
}

fn write_thread(
    transaction: &Transaction<'_>,
    interval: i64,
    thread: &RecordedThread,
    images: &mut Numbers<ImageId>,
) -> Result<()> {
    let image = image_number(transaction, interval, thread.image, images)?;
    transaction
        .prepare_cached(
            "INSERT INTO monitored_thread VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET name = excluded.name, end_ns = excluded.end_ns",
        )?
        .execute(params![
            thread.number.0.cast_signed(),
            image,
            thread.tid.0,
            thread.name.raw(),
            thread.start_ns,
            thread.end.map(nanoseconds)
        ])?;
    Ok(())
}
