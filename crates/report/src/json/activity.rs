//! Converts the activity of threads to JSON.

use memtrace_json::{self as schema, Stream, Text, Value};
use memtrace_model::{
    ActiveThread, Activity, ActivityEvent, CallSums, EventValue, LockRow, Span, SpanLabel, SpanRow, WaitClass,
};
use serde::Serialize;

/// Returns the activity. Its spans and events are made and written one at a time.
pub(super) fn activity(activity: &Activity) -> schema::Activity<'_, impl Serialize, impl Serialize> {
    schema::Activity {
        names: activity.names.iter().map(Into::into).collect(),
        threads: activity.threads.iter().map(thread).collect(),
        span_fields: schema::Span::FIELDS.map(Into::into).into(),
        spans: Stream(|| activity.spans.iter().map(|one| span(activity, one))),
        event_fields: schema::Event::FIELDS.map(Into::into).into(),
        events: Stream(|| activity.events.iter().map(|one| event(activity, one))),
        locks: activity.locks.iter().map(|one| lock(activity, one)).collect(),
        totals: activity.totals.iter().map(|row| totals(activity, row)).collect(),
        calls: activity.calls.iter().map(|(name, sums)| calls(activity, *name, sums)).collect(),
        stacks: activity.stacks.iter().map(|stack| stack.iter().map(Into::into).collect()).collect(),
        deadlocks: activity.deadlocks().iter().map(|cycle| cycle.iter().map(|&span| span as u32).collect()).collect(),
        left_out: schema::LeftOut {
            spans: activity.left_out.spans,
            shorter_than_ns: (activity.left_out.spans > 0).then_some(activity.left_out.shorter_than.0),
            events: activity.left_out.events,
        },
    }
}

/// Returns the text with this index in [`Activity::names`]; `None` if it does not exist.
fn text(activity: &Activity, number: u32) -> Option<Text<'_>> {
    activity.names.get(number as usize).map(Into::into)
}

fn thread(thread: &ActiveThread) -> schema::ActiveThread<'_> {
    schema::ActiveThread {
        pid: thread.pid.0,
        tid: thread.tid.0,
        process: thread.process.raw().into(),
        name: thread.name.raw().into(),
        start_ns: thread.start.map(|time| time.0),
        exit_ns: thread.end.map(|time| time.0),
    }
}

fn span<'a>(activity: &'a Activity, span: &Span) -> schema::Span<'a> {
    schema::Span {
        thread: span.thread,
        kind: span.kind.name().into(),
        name: span.name,
        label: span.label.and_then(|label| match label {
            SpanLabel::Number(number) => Some(Value::Unsigned(number)),
            SpanLabel::Text(number) => text(activity, number).map(Value::Text),
        }),
        begin_ns: span.begin.0,
        duration_ns: span.duration().0,
        open: span.is_open,
        cpu_ns: span.cpu.map(|time| time.0),
        allocated_bytes: span.allocated.map(|bytes| bytes.0),
        lock: span.lock,
        holder_tid: span.holder.map(|tid| tid.0),
        stack: span.stack,
        waker_tid: span.waker.map(|tid| tid.0),
        end_lost: span.is_end_lost,
    }
}

fn event<'a>(activity: &'a Activity, event: &ActivityEvent) -> schema::Event<'a> {
    let value = match event.value {
        EventValue::None => None,
        EventValue::Number(number) => Some(Value::Signed(number)),
        EventValue::Text(number) => text(activity, number).map(Value::Text),
    };
    schema::Event { thread: event.thread, at_ns: event.at.0, name: event.name, value }
}

fn lock<'a>(activity: &'a Activity, lock: &LockRow) -> schema::Lock<'a> {
    schema::Lock {
        pid: lock.pid.0,
        address: format!("{:#x}", lock.address.0).into(),
        name: lock.name.and_then(|name| text(activity, name)),
        place: lock.place.and_then(|place| text(activity, place)),
        class: lock.class.name().into(),
        joined_tid: lock.joined.filter(|_| lock.class == WaitClass::Join).map(|tid| tid.0),
        waits: lock.sums.waits,
        wait_ns: lock.sums.wait_time.0,
        longest_wait_ns: lock.sums.longest_wait.0,
        most_waiters: lock.sums.most_waiters,
        holds: lock.sums.holds,
        hold_ns: lock.sums.hold_time.0,
        longest_hold_ns: lock.sums.longest_hold.0,
    }
}

fn totals<'a>(activity: &'a Activity, row: &SpanRow) -> schema::SpanTotals<'a> {
    schema::SpanTotals {
        kind: row.kind.name().into(),
        name: text(activity, row.name),
        count: row.sums.count,
        time_ns: row.sums.time.0,
        longest_ns: row.sums.longest.0,
        cpu_ns: row.sums.cpu.0,
        allocated_bytes: activity.counts_bytes.then_some(row.sums.allocated),
        lost_ends: row.sums.lost_ends,
        missing: row.sums.missing,
    }
}

fn calls<'a>(activity: &'a Activity, name: u32, sums: &CallSums) -> schema::Calls<'a> {
    let durations = sums.histogram.iter();
    schema::Calls {
        function: text(activity, name),
        count: sums.count,
        time_ns: sums.time.0,
        histogram: durations.map(|&(log2, count)| schema::CallDurations { from_ns: log2.start(), count }).collect(),
    }
}
