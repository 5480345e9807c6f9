//! Converts the activity of threads to JSON.

use memtrace_json::{self as schema, Stream, Text, Value};
use memtrace_model::{
    ActiveThread, Activity, ActivityEvent, CallSums, EventValue, LockRow, Slice, SliceLabel, SliceRow,
};
use serde::Serialize;

/// Returns the activity. Its slices and events are made and written one at a time.
pub(super) fn activity(activity: &Activity) -> schema::Activity<'_, impl Serialize, impl Serialize> {
    schema::Activity {
        names: activity.names.iter().map(Into::into).collect(),
        threads: activity.threads.iter().map(thread).collect(),
        slice_fields: schema::Slice::FIELDS.map(Into::into).into(),
        slices: Stream(|| activity.slices.iter().map(|one| slice(activity, one))),
        event_fields: schema::Event::FIELDS.map(Into::into).into(),
        events: Stream(|| activity.events.iter().map(|one| event(activity, one))),
        locks: activity.locks.iter().map(|one| lock(activity, one)).collect(),
        totals: activity.totals.iter().map(|row| totals(activity, row)).collect(),
        calls: activity.calls.iter().map(|(name, sums)| calls(activity, *name, sums)).collect(),
        stacks: activity.stacks.iter().map(|stack| stack.iter().map(Into::into).collect()).collect(),
        left_out: schema::LeftOut {
            slices: activity.left_out.slices,
            shorter_than_ns: (activity.left_out.slices > 0).then_some(activity.left_out.shorter_than.0),
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

fn slice<'a>(activity: &'a Activity, slice: &Slice) -> schema::Slice<'a> {
    schema::Slice {
        thread: slice.thread,
        kind: slice.kind.name().into(),
        name: slice.name,
        label: slice.label.and_then(|label| match label {
            SliceLabel::Number(number) => Some(Value::Unsigned(number)),
            SliceLabel::Text(number) => text(activity, number).map(Value::Text),
        }),
        begin_ns: slice.begin.0,
        duration_ns: slice.duration().0,
        open: slice.is_open,
        cpu_ns: slice.cpu.map(|time| time.0),
        allocated_bytes: slice.allocated.map(|bytes| bytes.0),
        lock: slice.lock,
        holder_tid: slice.holder.map(|tid| tid.0),
        stack: slice.stack,
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
        waits: lock.sums.waits,
        wait_ns: lock.sums.wait_time.0,
        longest_wait_ns: lock.sums.longest_wait.0,
        most_waiters: lock.sums.most_waiters,
        holds: lock.sums.holds,
        hold_ns: lock.sums.hold_time.0,
        longest_hold_ns: lock.sums.longest_hold.0,
    }
}

fn totals<'a>(activity: &'a Activity, row: &SliceRow) -> schema::SliceTotals<'a> {
    schema::SliceTotals {
        kind: row.kind.name().into(),
        name: text(activity, row.name),
        count: row.sums.count,
        time_ns: row.sums.time.0,
        longest_ns: row.sums.longest.0,
        cpu_ns: row.sums.cpu.0,
        allocated_bytes: activity.counts_bytes.then_some(row.sums.allocated),
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
