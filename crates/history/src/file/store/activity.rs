//! Rows of the activity of threads.

use memtrace_model::{AbsAddr, ActivityEvent, EventValue, LeftOut, Nanoseconds, Span, SpanLabel, SpanSums};
use rusqlite::{Result, Transaction, params};

use crate::file::quantities::end_number;
use crate::file::schema::{ADD_LEFT_OUT, PAGE_SIZE};
use crate::interval::Interval;
use crate::interval::activity::kind_number;
use crate::interval::span_limit::SpanLimit;

/// Approximate size of a span in the file, in bytes, including the space that removed spans leave in used pages.
const SPAN_BYTES: u64 = 64;

/// Approximate size of an event in the file, in bytes.
const EVENT_BYTES: u64 = 32;

/// Number of spans and number of events in the file, with their limits.
#[derive(Clone, Debug)]
pub(super) struct StoredActivity {
    spans: SpanLimit,
    events: u64,
    most_events: u64,
    /// Duration below which spans were removed from the file.
    removed_below: Nanoseconds,
}

impl StoredActivity {
    /// Returns the limits for a file of `max_pages`: spans take at most a quarter, and events a sixteenth.
    pub(super) fn new(max_pages: u64) -> Self {
        let bytes = max_pages * u64::from(PAGE_SIZE);
        Self {
            spans: SpanLimit::new(bytes / 4 / SPAN_BYTES),
            events: 0,
            most_events: bytes / 16 / EVENT_BYTES,
            removed_below: Nanoseconds::default(),
        }
    }

    /// Returns the duration below which spans must be removed, if the file can have shorter ones.
    pub(super) fn remove_below(&self) -> Option<Nanoseconds> {
        Some(self.spans.shorter_than()).filter(|duration| *duration > self.removed_below)
    }

    /// Records that the file has no spans shorter than `duration`.
    pub(super) const fn set_removed_below(&mut self, duration: Nanoseconds) {
        self.removed_below = duration;
    }
}

/// Stores the activity in an interval. Spans and events beyond the limits are left out and counted.
pub(super) fn write(
    transaction: &Transaction<'_>,
    interval: i64,
    content: &Interval,
    stored: &mut StoredActivity,
) -> Result<()> {
    write_identities(transaction, content)?;
    let mut left_out = content.activity_left_out;
    left_out += write_spans(transaction, interval, &content.activity.spans, &mut stored.spans)?;
    let room = usize::try_from(stored.most_events.saturating_sub(stored.events)).unwrap_or(usize::MAX);
    let (kept, others) = content.activity.events.split_at(content.activity.events.len().min(room));
    write_events(transaction, interval, kept)?;
    stored.events += kept.len() as u64;
    left_out.events += others.len() as u64;
    write_left_out(transaction, interval, left_out)?;
    write_totals(transaction, interval, content)
}

fn write_identities(transaction: &Transaction<'_>, content: &Interval) -> Result<()> {
    let changes = &content.activity;
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO activity_name VALUES (?, ?)")?;
    for (number, name) in &changes.names {
        row.execute(params![number, name])?;
    }
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO active_thread VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    for (number, thread) in &changes.threads {
        let time = |time: Option<Nanoseconds>| time.map(|time| time.0.cast_signed());
        row.execute(params![
            number,
            thread.pid.0,
            thread.tid.0,
            thread.process.raw(),
            thread.name.raw(),
            time(thread.start),
            time(thread.end)
        ])?;
    }
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO activity_lock VALUES (?, ?, ?, ?, ?)")?;
    for (number, lock) in &changes.locks {
        let AbsAddr(address) = lock.address;
        row.execute(params![number, lock.pid.0, address.cast_signed(), lock.name, lock.place])?;
    }
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO activity_stack VALUES (?, ?, ?)")?;
    for (number, path, end) in &content.activity_stacks {
        row.execute(params![number, path.0, end_number(*end)])?;
    }
    Ok(())
}

/// Stores spans. Returns the number of spans that are left out, and the duration below which they are left out.
fn write_spans(transaction: &Transaction<'_>, interval: i64, spans: &[Span], limit: &mut SpanLimit) -> Result<LeftOut> {
    limit.add(spans.iter().map(Span::duration));
    let marks = "?, ".repeat(16);
    let mut row = transaction.prepare_cached(&format!("INSERT INTO span VALUES ({marks}?)"))?;
    let mut kept = 0_u64;
    for span in spans.iter().filter(|span| limit.keeps(span.duration())) {
        let (number, text) = match span.label {
            None => (None, None),
            Some(SpanLabel::Number(number)) => (Some(number.cast_signed()), None),
            Some(SpanLabel::Text(text)) => (None, Some(text)),
        };
        row.execute(params![
            interval,
            kept.cast_signed(),
            span.thread,
            kind_number(span.kind),
            span.name,
            number,
            text,
            span.begin.0.cast_signed(),
            span.end.0.cast_signed(),
            span.is_open,
            span.cpu.map(|time| time.0.cast_signed()),
            span.allocated.map(|bytes| bytes.0.cast_signed()),
            span.lock,
            span.holder.map(|tid| tid.0),
            span.stack,
            span.waker.map(|tid| tid.0),
            span.is_end_lost
        ])?;
        kept += 1;
    }
    let left_out = spans.len() as u64 - kept;
    let shorter_than = if left_out > 0 { limit.shorter_than() } else { Nanoseconds::default() };
    Ok(LeftOut { spans: left_out, shorter_than, events: 0 })
}

fn write_events(transaction: &Transaction<'_>, interval: i64, events: &[ActivityEvent]) -> Result<()> {
    let mut row = transaction.prepare_cached("INSERT INTO activity_event VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    for (index, event) in (0_i64..).zip(events) {
        let (number, text) = match event.value {
            EventValue::None => (None, None),
            EventValue::Number(number) => (Some(number), None),
            EventValue::Text(text) => (None, Some(text)),
        };
        row.execute(params![interval, index, event.thread, event.at.0.cast_signed(), event.name, number, text])?;
    }
    Ok(())
}

fn write_left_out(transaction: &Transaction<'_>, interval: i64, left_out: LeftOut) -> Result<()> {
    let sql = format!("INSERT INTO activity_left_out VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET {ADD_LEFT_OUT}");
    let mut row = transaction.prepare_cached(&sql)?;
    let LeftOut { spans, shorter_than, events } = left_out;
    let items = [("spans", spans), ("shorter_than_ns", shorter_than.0), ("events", events)];
    for (item, value) in items.into_iter().filter(|(_, value)| *value > 0) {
        row.execute(params![interval, item, value.cast_signed()])?;
    }
    Ok(())
}

fn write_totals(transaction: &Transaction<'_>, interval: i64, content: &Interval) -> Result<()> {
    let mut row = transaction.prepare_cached("INSERT INTO span_total VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for ((kind, name), sums) in &content.activity.totals {
        let SpanSums { count, time, longest, cpu, allocated, lost_ends, missing } = *sums;
        let [count, time, longest] = [count, time.0, longest.0].map(u64::cast_signed);
        let [cpu, allocated, lost_ends, missing] = [cpu.0, allocated, lost_ends, missing].map(u64::cast_signed);
        let kind = kind_number(*kind);
        row.execute(params![interval, name, kind, count, time, longest, cpu, allocated, lost_ends, missing])?;
    }
    let mut row = transaction.prepare_cached("INSERT INTO lock_total VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (lock, sums) in &content.activity.lock_totals {
        let waits = [sums.waits, sums.wait_time.0, sums.longest_wait.0].map(u64::cast_signed);
        let holds = [sums.holds, sums.hold_time.0, sums.longest_hold.0].map(u64::cast_signed);
        let most_waiters = sums.most_waiters.cast_signed();
        row.execute(params![interval, lock, waits[0], waits[1], waits[2], holds[0], holds[1], holds[2], most_waiters])?;
    }
    let mut row = transaction.prepare_cached("INSERT INTO call_total VALUES (?, ?, ?, ?)")?;
    let mut bucket = transaction.prepare_cached("INSERT INTO call_histogram VALUES (?, ?, ?, ?)")?;
    for (name, sums) in &content.calls {
        row.execute(params![interval, name, sums.count.cast_signed(), sums.time.0.cast_signed()])?;
        for (log, calls) in &sums.histogram {
            bucket.execute(params![interval, name, log.number(), calls.cast_signed()])?;
        }
    }
    Ok(())
}
