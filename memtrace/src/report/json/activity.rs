//! Fields of the activity of threads.

use serde::{Serialize, Serializer};

use crate::model::{
    ActiveThread, Activity, ActivityEvent, CallSums, EventValue, LeftOut, LockRow, Log2, Slice, SliceLabel, SliceRow,
};

/// Columns of a slice, in order.
const SLICE_FIELDS: [&str; 12] = [
    "thread",
    "kind",
    "name",
    "label",
    "begin_ns",
    "duration_ns",
    "open",
    "cpu_ns",
    "allocated_bytes",
    "lock",
    "holder_tid",
    "stack",
];

/// Columns of an event, in order.
const EVENT_FIELDS: [&str; 4] = ["thread", "at_ns", "name", "value"];

/// Activity of threads. Slices and events are lists of values, because there can be many.
#[derive(Serialize)]
pub(super) struct ActivityFields<'a> {
    names: &'a [String],
    threads: Vec<ThreadFields<'a>>,
    slice_fields: [&'static str; SLICE_FIELDS.len()],
    slices: Slices<'a>,
    event_fields: [&'static str; EVENT_FIELDS.len()],
    events: Events<'a>,
    locks: Vec<LockFields<'a>>,
    totals: Vec<TotalFields<'a>>,
    calls: Vec<CallFields<'a>>,
    stacks: &'a [Vec<String>],
    left_out: LeftOutFields,
}

impl<'a> From<&'a Activity> for ActivityFields<'a> {
    fn from(activity: &'a Activity) -> Self {
        Self {
            names: &activity.names,
            threads: activity.threads.iter().map(ThreadFields::from).collect(),
            slice_fields: SLICE_FIELDS,
            slices: Slices(activity),
            event_fields: EVENT_FIELDS,
            events: Events(activity),
            locks: activity.locks.iter().map(|lock| LockFields::new(activity, lock)).collect(),
            totals: activity.totals.iter().map(|row| TotalFields::new(activity, row)).collect(),
            calls: activity.calls.iter().map(|(name, sums)| CallFields::new(activity, *name, sums)).collect(),
            stacks: &activity.stacks,
            left_out: LeftOutFields::from(activity.left_out),
        }
    }
}

/// Returns the text with this number; `None` if there is none.
fn text(activity: &Activity, number: u32) -> Option<&str> {
    activity.names.get(number as usize).map(String::as_str)
}

#[derive(Serialize)]
struct ThreadFields<'a> {
    pid: u32,
    tid: u32,
    process: &'a str,
    name: &'a str,
    start_ns: Option<u64>,
    exit_ns: Option<u64>,
}

impl<'a> From<&'a ActiveThread> for ThreadFields<'a> {
    fn from(thread: &'a ActiveThread) -> Self {
        Self {
            pid: thread.pid.0,
            tid: thread.tid.0,
            process: thread.process.raw(),
            name: thread.name.raw(),
            start_ns: thread.start.map(|time| time.0),
            exit_ns: thread.end.map(|time| time.0),
        }
    }
}

/// The slices, serialized one at a time.
struct Slices<'a>(&'a Activity);

impl Serialize for Slices<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.slices.iter().map(|slice| values_of(self.0, slice)))
    }
}

/// Returns the values of a slice in the order of [`SLICE_FIELDS`].
fn values_of(activity: &Activity, slice: &Slice) -> impl Serialize {
    let label = slice.label.and_then(|label| match label {
        SliceLabel::Number(number) => Some(Value::Unsigned(number)),
        SliceLabel::Text(number) => text(activity, number).map(Value::Text),
    });
    (
        slice.thread,
        slice.kind.name(),
        slice.name,
        label,
        slice.begin.0,
        slice.duration().0,
        slice.is_open,
        slice.cpu.map(|time| time.0),
        slice.allocated.map(|bytes| bytes.0),
        slice.lock,
        slice.holder.map(|tid| tid.0),
        slice.stack,
    )
}

/// The events, serialized one at a time.
struct Events<'a>(&'a Activity);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = |event: &ActivityEvent| {
            let value = match event.value {
                EventValue::None => None,
                EventValue::Number(number) => Some(Value::Signed(number)),
                EventValue::Text(number) => text(self.0, number).map(Value::Text),
            };
            (event.thread, event.at.0, event.name, value)
        };
        serializer.collect_seq(self.0.events.iter().map(values))
    }
}

/// Label of a slice, or value of an event.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Text(&'a str),
}

#[derive(Serialize)]
struct LockFields<'a> {
    pid: u32,
    address: String,
    name: Option<&'a str>,
    waits: u64,
    wait_ns: u64,
    longest_wait_ns: u64,
    most_waiters: u64,
    holds: u64,
    hold_ns: u64,
    longest_hold_ns: u64,
}

impl<'a> LockFields<'a> {
    fn new(activity: &'a Activity, lock: &LockRow) -> Self {
        Self {
            pid: lock.pid.0,
            address: format!("{:#x}", lock.address.0),
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
}

#[derive(Serialize)]
struct TotalFields<'a> {
    kind: &'static str,
    name: Option<&'a str>,
    count: u64,
    time_ns: u64,
    longest_ns: u64,
    cpu_ns: u64,
    allocated_bytes: Option<u64>,
}

impl<'a> TotalFields<'a> {
    fn new(activity: &'a Activity, row: &SliceRow) -> Self {
        Self {
            kind: row.kind.name(),
            name: text(activity, row.name),
            count: row.sums.count,
            time_ns: row.sums.time.0,
            longest_ns: row.sums.longest.0,
            cpu_ns: row.sums.cpu.0,
            allocated_bytes: activity.counts_bytes.then_some(row.sums.allocated),
        }
    }
}

#[derive(Serialize)]
struct CallFields<'a> {
    function: Option<&'a str>,
    count: u64,
    time_ns: u64,
    histogram: Vec<BucketFields>,
}

/// Number of calls with a duration of at least `from_ns`, and below twice that.
#[derive(Serialize)]
struct BucketFields {
    from_ns: u64,
    count: u64,
}

impl<'a> CallFields<'a> {
    fn new(activity: &'a Activity, name: u32, sums: &CallSums) -> Self {
        let bucket = |&(log2, count): &(Log2, u64)| BucketFields { from_ns: log2.start(), count };
        Self {
            function: text(activity, name),
            count: sums.count,
            time_ns: sums.time.0,
            histogram: sums.histogram.iter().map(bucket).collect(),
        }
    }
}

#[derive(Serialize)]
struct LeftOutFields {
    slices: u64,
    shorter_than_ns: Option<u64>,
    events: u64,
}

impl From<LeftOut> for LeftOutFields {
    fn from(left_out: LeftOut) -> Self {
        Self {
            slices: left_out.slices,
            shorter_than_ns: (left_out.slices > 0).then_some(left_out.shorter_than.0),
            events: left_out.events,
        }
    }
}
