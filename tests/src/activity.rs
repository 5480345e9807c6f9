//! The activity of threads in a JSON report, and the spans that a victim has recorded itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The activity of threads in a report, without its indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    pub threads: Vec<ActiveThread>,
    pub slices: Vec<Slice>,
    pub events: Vec<Event>,
    pub locks: Vec<Lock>,
    /// By kind and name.
    pub totals: BTreeMap<(String, String), SliceTotals>,
    /// Calls of allocators by function.
    pub calls: BTreeMap<String, Calls>,
    /// Number of slices and events that are missing.
    pub left_out: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ActiveThread {
    pub pid: u32,
    pub tid: u32,
    pub process: String,
    pub name: String,
    pub start_ns: Option<u64>,
    pub exit_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub tid: u32,
    pub kind: String,
    pub name: String,
    pub label: Value,
    pub begin_ns: u64,
    pub duration_ns: u64,
    pub open: bool,
    pub cpu_ns: Option<u64>,
    pub allocated_bytes: Option<u64>,
    /// Index in the locks.
    pub lock: Option<usize>,
    pub holder_tid: Option<u32>,
    /// Functions of the stack, the innermost first.
    pub stack: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub tid: u32,
    pub at_ns: u64,
    pub name: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Lock {
    pub pid: u32,
    pub address: String,
    pub name: Option<String>,
    pub waits: u64,
    pub wait_ns: u64,
    pub longest_wait_ns: u64,
    pub most_waiters: u64,
    pub holds: u64,
    pub hold_ns: u64,
    pub longest_hold_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SliceTotals {
    pub count: u64,
    pub time_ns: u64,
    pub longest_ns: u64,
    pub cpu_ns: u64,
    pub allocated_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Calls {
    pub count: u64,
    pub time_ns: u64,
    pub histogram: Vec<Bucket>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Bucket {
    pub from_ns: u64,
    pub count: u64,
}

/// The section of a report.
#[derive(Deserialize)]
struct Section {
    names: Vec<String>,
    threads: Vec<ActiveThread>,
    slice_fields: Vec<String>,
    slices: Vec<Vec<Value>>,
    event_fields: Vec<String>,
    events: Vec<Vec<Value>>,
    locks: Vec<Lock>,
    totals: Vec<TotalsRow>,
    calls: Vec<CallsRow>,
    stacks: Vec<Vec<String>>,
    left_out: LeftOut,
}

#[derive(Deserialize)]
struct TotalsRow {
    kind: String,
    name: String,
    #[serde(flatten)]
    totals: SliceTotals,
}

#[derive(Deserialize)]
struct CallsRow {
    function: String,
    #[serde(flatten)]
    calls: Calls,
}

#[derive(Deserialize)]
struct LeftOut {
    slices: u64,
    events: u64,
}

#[derive(Deserialize)]
struct SliceRow {
    thread: usize,
    kind: String,
    name: usize,
    label: Value,
    begin_ns: u64,
    duration_ns: u64,
    open: bool,
    cpu_ns: Option<u64>,
    allocated_bytes: Option<u64>,
    lock: Option<usize>,
    holder_tid: Option<u32>,
    stack: Option<usize>,
}

#[derive(Deserialize)]
struct EventRow {
    thread: usize,
    at_ns: u64,
    name: usize,
    value: Value,
}

#[derive(Deserialize)]
struct ReportWithActivity {
    activity: Section,
    losses: BTreeMap<String, u64>,
}

impl Activity {
    /// Reads the activity of a report, which must have no losses.
    ///
    /// # Errors
    ///
    /// If `text` is not JSON, or has no activity.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let ReportWithActivity { activity, losses } = serde_json::from_str(text)?;
        assert!(losses.values().all(|count| *count == 0), "{losses:?}");
        let Section { names, threads, slice_fields, event_fields, locks, stacks, .. } = activity;
        let rows = activity.slices.into_iter().map(|values| row(&slice_fields, values));
        let slices = rows.map(|row: serde_json::Result<SliceRow>| {
            let row = row?;
            Ok(Slice {
                tid: threads[row.thread].tid,
                kind: row.kind,
                name: names[row.name].clone(),
                label: row.label,
                begin_ns: row.begin_ns,
                duration_ns: row.duration_ns,
                open: row.open,
                cpu_ns: row.cpu_ns,
                allocated_bytes: row.allocated_bytes,
                lock: row.lock,
                holder_tid: row.holder_tid,
                stack: row.stack.map(|stack| stacks[stack].clone()),
            })
        });
        let slices = slices.collect::<serde_json::Result<_>>()?;
        let rows = activity.events.into_iter().map(|values| row(&event_fields, values));
        let events = rows.map(|row: serde_json::Result<EventRow>| {
            let EventRow { thread, at_ns, name, value } = row?;
            Ok(Event { tid: threads[thread].tid, at_ns, name: names[name].clone(), value })
        });
        let events = events.collect::<serde_json::Result<_>>()?;
        let totals = activity.totals.into_iter().map(|row| ((row.kind, row.name), row.totals)).collect();
        let calls = activity.calls.into_iter().map(|row| (row.function, row.calls)).collect();
        let left_out = activity.left_out.slices + activity.left_out.events;
        Ok(Self { threads, slices, events, locks, totals, calls, left_out })
    }

    /// Returns the slices of a thread with one of these kinds, by begin.
    #[must_use]
    pub fn slices_of(&self, tid: u32, kinds: &[&str]) -> Vec<&Slice> {
        let is_of = |slice: &&Slice| slice.tid == tid && kinds.contains(&slice.kind.as_str());
        self.slices.iter().filter(is_of).collect()
    }
}

fn row<T: for<'de> Deserialize<'de>>(fields: &[String], values: Vec<Value>) -> serde_json::Result<T> {
    serde_json::from_value(Value::Object(fields.iter().cloned().zip(values).collect()))
}

/// Returns the index of the innermost slice around each. The slices of a thread are nested, and in the order of their begins.
#[must_use]
pub fn parents(slices: &[&Slice]) -> Vec<Option<usize>> {
    let end = |slice: &Slice| slice.begin_ns + slice.duration_ns;
    let mut open: Vec<usize> = Vec::new();
    let parent_of = |(index, slice): (usize, &&Slice)| {
        while open.last().is_some_and(|last| end(slices[*last]) <= slice.begin_ns) {
            open.pop();
        }
        let parent = open.last().copied();
        assert!(parent.is_none_or(|parent| end(slice) <= end(slices[parent])), "{slice:?} is not nested");
        open.push(index);
        parent
    };
    slices.iter().enumerate().map(parent_of).collect()
}

/// A thread of a victim that records its spans (victims/spans.h).
#[derive(Clone, Debug, Deserialize)]
pub struct SpanRecord {
    pub tid: u32,
    pub spans: Vec<RecordedSpan>,
}

/// A span by the clocks of the victim: before and after the step that begins it, and that ends it.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedSpan {
    pub kind: String,
    pub name: String,
    pub label: Value,
    /// Index in the spans of the thread.
    pub parent: Option<usize>,
    pub at: [u64; 4],
    pub cpu: [u64; 4],
    pub bytes: u64,
}

/// Bounds of the length of what happened between two pairs of times. The second time of each pair is not before the first one.
#[must_use]
pub fn bounds([before_begin, begun, ending, after_end]: [u64; 4]) -> [u64; 2] {
    [ending.saturating_sub(begun), after_end - before_begin]
}

/// Asserts that a number of nanoseconds is within bounds, and that they are less than a hundredth or `tolerance` apart, except for
/// times at which the scheduler has interrupted the victim between its clock and its step. Returns false for those.
#[must_use]
pub fn is_exact(value: u64, bounds: [u64; 2], tolerance: u64, what: &str) -> bool {
    let [least, most] = bounds;
    assert!((least..=most).contains(&value), "{what}: {value} ns is not within {least}..={most}");
    most - least <= tolerance.max(least / 100)
}
