//! Activity of threads.

use std::collections::BTreeMap;

use memtrace_model::{
    AbsAddr, ActiveThread, ActivityEvent, Bytes, CallSums, Comm, EventValue, LeftOut, LockIdentity, LockSums, Log2,
    Nanoseconds, Pid, Span, SpanKind, SpanLabel, SpanSums, StackEnd, Tid,
};
use rusqlite::{Row, params};
use rustc_hash::FxHashSet;

use super::Recording;
use super::query::Query;
use super::total_rows::named;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::interval::activity::names_of;
use crate::interval::{PathNumber, RecordedActivity};

/// Limit of the ids of names and stacks: far above the ids that the recorder assigns. Lists in memory have an entry for each
/// id up to the largest one.
const MAX_IDS: u32 = 1 << 20;

/// Returns the activity of threads between two boundaries; `None` if the recording has no activity. A span counts in
/// the interval of its end.
pub(super) fn activity(recording: &Recording, from: Boundary, to: Boundary) -> Result<Option<RecordedActivity>, Error> {
    // Each span, event and total has a name: without names, there is no activity.
    if !recording.connection.has_table("activity_name")? {
        return Ok(None);
    }
    let has_names = recording.connection.has_rows("SELECT 1 FROM activity_name LIMIT 1");
    if !(if recording.is_salvaged { has_names.unwrap_or(false) } else { has_names? }) {
        return Ok(None);
    }
    let part = [from.id, to.id];
    let mut activity = RecordedActivity { left_out: left_out(recording, part)?, ..RecordedActivity::default() };
    let kinds = named(&recording.connection, "span_kind", &SpanKind::ALL, SpanKind::name)?;
    let kind_of = |row: &Row<'_>, column: usize| Ok::<_, Error>(kinds.get(&row.get(column)?).copied());
    let changes = &mut activity.changes;
    recording.connection.each_row(SPANS, part, |row| {
        changes.spans.extend(kind_of(row, 1)?.map(|kind| span(row, kind)).transpose()?);
        Ok(())
    })?;
    recording.connection.each_row(EVENTS, part, |row| {
        changes.events.push(event(row)?);
        Ok(())
    })?;
    recording.connection.each_row(SPAN_TOTALS, part, |row| {
        let Some(kind) = kind_of(row, 1)? else { return Ok(()) };
        changes.totals.insert((kind, row.get(0)?), span_sums(row)?);
        Ok(())
    })?;
    recording.connection.each_row(LOCK_TOTALS, part, |row| {
        changes.lock_totals.insert(row.get(0)?, lock_sums(row)?);
        Ok(())
    })?;
    activity.calls = calls(recording, part)?;
    add_identities(recording, &mut activity)?;
    Ok(Some(activity))
}

fn left_out(recording: &Recording, part: [i64; 2]) -> Result<LeftOut, Error> {
    let mut left_out = LeftOut::default();
    let sql = "SELECT item, sum(value), max(value) FROM activity_left_out
        WHERE interval > ? AND interval <= ? GROUP BY item";
    recording.connection.each_row(sql, part, |row| {
        match row.get_ref(0)?.as_str().unwrap_or_default() {
            "spans" => left_out.spans = number(row, 1)?,
            "shorter_than_ns" => left_out.shorter_than = nanoseconds(row, 2)?,
            "events" => left_out.events = number(row, 1)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(left_out)
}

fn calls(recording: &Recording, part: [i64; 2]) -> Result<BTreeMap<u32, CallSums>, Error> {
    let mut calls: BTreeMap<u32, CallSums> = BTreeMap::new();
    let sql = "SELECT name, sum(count), sum(time_ns) FROM call_total
        WHERE interval > ? AND interval <= ? GROUP BY name";
    recording.connection.each_row(sql, part, |row| {
        let sums = CallSums { count: number(row, 1)?, time: nanoseconds(row, 2)?, histogram: Vec::new() };
        calls.insert(row.get(0)?, sums);
        Ok(())
    })?;
    let sql = "SELECT name, idx, sum(count) FROM call_histogram
        WHERE interval > ? AND interval <= ? GROUP BY name, idx ORDER BY name, idx";
    recording.connection.each_row(sql, part, |row| {
        let (sums, log) = (calls.get_mut(&row.get(0)?), Log2::from_number(row.get(1)?));
        if let (Some(sums), Some(log)) = (sums, log) {
            sums.histogram.push((log, number(row, 2)?));
        }
        Ok(())
    })?;
    Ok(calls)
}

/// Adds the names, threads, locks and stacks of the activity, and removes references to missing rows.
fn add_identities(recording: &Recording, activity: &mut RecordedActivity) -> Result<(), Error> {
    let RecordedActivity { changes, stacks, calls, .. } = activity;
    let of_events = changes.events.iter().map(|event| event.thread);
    let used: FxHashSet<u32> = changes.spans.iter().map(|span| span.thread).chain(of_events).collect();
    each_identity(recording, "SELECT id, pid, tid, process, name, start_ns, end_ns FROM active_thread", |row| {
        let number = row.get(0)?;
        if used.contains(&number) {
            changes.threads.insert(number, thread(row)?);
        }
        Ok(())
    })?;
    changes.spans.retain(|span| changes.threads.contains_key(&span.thread));
    changes.events.retain(|event| changes.threads.contains_key(&event.thread));

    let used: FxHashSet<u32> = changes.spans.iter().filter_map(|span| span.stack).collect();
    let ends = named(&recording.connection, "stack_end", StackEnd::ALL, StackEnd::name)?;
    each_identity(recording, "SELECT id, path, stack_end FROM activity_stack ORDER BY id", |row| {
        let number = row.get(0)?;
        let end = ends.get(&row.get(2)?).filter(|_| used.contains(&number));
        stacks.extend(end.map(|end| Ok::<_, Error>((number, PathNumber(row.get(1)?), *end))).transpose()?);
        Ok(())
    })?;

    let mut used: FxHashSet<u32> = changes.spans.iter().filter_map(|span| span.lock).collect();
    used.extend(changes.lock_totals.keys());
    each_identity(recording, "SELECT id, pid, address, name, place FROM activity_lock ORDER BY id", |row| {
        let number = row.get(0)?;
        if used.contains(&number) {
            changes.locks.push((number, lock(row)?));
        }
        Ok(())
    })?;

    let used = names_of(changes, calls);
    each_identity(recording, "SELECT id, name FROM activity_name ORDER BY id", |row| {
        let number = row.get(0)?;
        if used.contains(&number) {
            changes.names.push((number, row.get(1)?));
        }
        Ok(())
    })?;
    remove_unknown(activity);
    Ok(())
}

/// Calls `each` for the rows of a table without intervals. In a salvaged file, the function stops at the first row
/// that cannot be read, and reports no error.
fn each_identity(
    recording: &Recording,
    sql: &str,
    each: impl FnMut(&Row<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let read = recording.connection.each_row(sql, params![], each);
    if recording.is_salvaged { Ok(()) } else { read }
}

const SPANS: &str = "SELECT thread, kind, name, label_number, label_name, begin_ns, end_ns, open, cpu_ns,
    allocated_bytes, lock, holder_tid, stack, waker_tid, end_lost FROM span WHERE interval > ? AND interval <= ?
    ORDER BY interval, idx";

const EVENTS: &str = "SELECT thread, at_ns, name, value_number, value_name FROM activity_event
    WHERE interval > ? AND interval <= ? ORDER BY interval, idx";

const SPAN_TOTALS: &str =
    "SELECT name, kind, sum(count), sum(time_ns), max(longest_ns), sum(cpu_ns), sum(allocated_bytes), sum(lost_ends),
    sum(missing)
    FROM span_total WHERE interval > ? AND interval <= ? GROUP BY name, kind";

const LOCK_TOTALS: &str = "SELECT lock, sum(waits), sum(wait_ns), max(longest_wait_ns), sum(holds), sum(hold_ns),
    max(longest_hold_ns), max(most_waiters) FROM lock_total WHERE interval > ? AND interval <= ? GROUP BY lock";

/// Removes names and stacks beyond [`MAX_IDS`], and dangling references. Only a damaged recording has these.
fn remove_unknown(activity: &mut RecordedActivity) {
    let RecordedActivity { changes, stacks, calls, .. } = activity;
    changes.names.retain(|(number, _)| *number < MAX_IDS);
    stacks.retain(|(number, ..)| *number < MAX_IDS);
    let names: FxHashSet<u32> = changes.names.iter().map(|(number, _)| *number).collect();
    let locks: FxHashSet<u32> = changes.locks.iter().map(|(number, _)| *number).collect();
    let stacks: FxHashSet<u32> = stacks.iter().map(|(number, ..)| *number).collect();
    changes.spans.retain(|span| names.contains(&span.name));
    for span in &mut changes.spans {
        span.label = span.label.filter(|label| !matches!(label, SpanLabel::Text(text) if !names.contains(text)));
        span.lock = span.lock.filter(|lock| locks.contains(lock));
        span.stack = span.stack.filter(|stack| stacks.contains(stack));
    }
    changes.events.retain(|event| names.contains(&event.name));
    for event in &mut changes.events {
        if matches!(event.value, EventValue::Text(text) if !names.contains(&text)) {
            event.value = EventValue::None;
        }
    }
    changes.totals.retain(|(_, name), _| names.contains(name));
    changes.lock_totals.retain(|lock, _| locks.contains(lock));
    for (_, lock) in &mut changes.locks {
        lock.name = lock.name.filter(|name| names.contains(name));
        lock.place = lock.place.filter(|place| names.contains(place));
    }
    calls.retain(|name, _| names.contains(name));
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, Error> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

fn nanoseconds(row: &Row<'_>, column: usize) -> Result<Nanoseconds, Error> {
    number(row, column).map(Nanoseconds)
}

fn optional_number(row: &Row<'_>, column: usize) -> Result<Option<u64>, Error> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

fn span(row: &Row<'_>, kind: SpanKind) -> Result<Span, Error> {
    let label = optional_number(row, 3)?.map(SpanLabel::Number);
    Ok(Span {
        thread: row.get(0)?,
        kind,
        name: row.get(2)?,
        label: label.or(row.get::<_, Option<u32>>(4)?.map(SpanLabel::Text)),
        begin: nanoseconds(row, 5)?,
        end: nanoseconds(row, 6)?,
        is_open: row.get(7)?,
        cpu: optional_number(row, 8)?.map(Nanoseconds),
        allocated: optional_number(row, 9)?.map(Bytes),
        lock: row.get(10)?,
        holder: row.get::<_, Option<u32>>(11)?.map(Tid),
        stack: row.get(12)?,
        waker: row.get::<_, Option<u32>>(13)?.map(Tid),
        is_end_lost: row.get(14)?,
    })
}

fn event(row: &Row<'_>) -> Result<ActivityEvent, Error> {
    let value = match (row.get::<_, Option<i64>>(3)?, row.get::<_, Option<u32>>(4)?) {
        (Some(number), _) => EventValue::Number(number),
        (None, Some(text)) => EventValue::Text(text),
        (None, None) => EventValue::None,
    };
    Ok(ActivityEvent { thread: row.get(0)?, at: nanoseconds(row, 1)?, name: row.get(2)?, value })
}

fn span_sums(row: &Row<'_>) -> Result<SpanSums, Error> {
    Ok(SpanSums {
        count: number(row, 2)?,
        time: nanoseconds(row, 3)?,
        longest: nanoseconds(row, 4)?,
        cpu: nanoseconds(row, 5)?,
        allocated: number(row, 6)?,
        lost_ends: number(row, 7)?,
        missing: number(row, 8)?,
    })
}

fn lock_sums(row: &Row<'_>) -> Result<LockSums, Error> {
    Ok(LockSums {
        waits: number(row, 1)?,
        wait_time: nanoseconds(row, 2)?,
        longest_wait: nanoseconds(row, 3)?,
        holds: number(row, 4)?,
        hold_time: nanoseconds(row, 5)?,
        longest_hold: nanoseconds(row, 6)?,
        most_waiters: number(row, 7)?,
    })
}

fn thread(row: &Row<'_>) -> Result<ActiveThread, Error> {
    Ok(ActiveThread {
        pid: Pid(row.get(1)?),
        tid: Tid(row.get(2)?),
        process: Comm::from(row.get::<_, String>(3)?),
        name: Comm::from(row.get::<_, String>(4)?),
        start: optional_number(row, 5)?.map(Nanoseconds),
        end: optional_number(row, 6)?.map(Nanoseconds),
    })
}

fn lock(row: &Row<'_>) -> Result<LockIdentity, Error> {
    let (pid, address) = (Pid(row.get(1)?), AbsAddr(number(row, 2)?));
    Ok(LockIdentity { pid, address, name: row.get(3)?, place: row.get(4)? })
}
