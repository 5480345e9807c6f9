//! The activity of threads in a JSON report, and the spans that a victim has recorded.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

pub type ActiveThread = memtrace_json::ActiveThread<'static>;
pub type Calls = memtrace_json::Calls<'static>;
pub type Lock = memtrace_json::Lock<'static>;
pub type SpanTotals = memtrace_json::SpanTotals<'static>;

/// The activity of threads in a report, with indices resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity {
    pub threads: Vec<ActiveThread>,
    pub spans: Vec<Span>,
    pub events: Vec<Event>,
    pub locks: Vec<Lock>,
    /// Deadlocks: indices in [`Self::spans`].
    pub deadlocks: Vec<Vec<u32>>,
    /// Totals of spans, by kind and name.
    pub totals: BTreeMap<(String, String), SpanTotals>,
    /// Calls of allocators by function.
    pub calls: BTreeMap<String, Calls>,
    /// Number of spans and events that are left out of the report.
    pub left_out: u64,
    /// Count of each loss by its name.
    pub losses: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub tid: u32,
    pub kind: String,
    pub name: String,
    pub label: Value,
    pub begin_ns: u64,
    pub duration_ns: u64,
    pub open: bool,
    pub end_lost: bool,
    pub cpu_ns: Option<u64>,
    pub allocated_bytes: Option<u64>,
    /// Index in [`Activity::locks`].
    pub lock: Option<usize>,
    pub holder_tid: Option<u32>,
    pub waker_tid: Option<u32>,
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

impl Activity {
    /// Reads the activity of a report.
    ///
    /// # Errors
    ///
    /// If `text` is not JSON, or has no activity.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let report: memtrace_json::Report<'static> = serde_json::from_str(text)?;
        let activity = report.activity.ok_or_else(|| serde_json::Error::custom("the report has no activity"))?;
        let memtrace_json::Activity { names, threads, stacks, .. } = activity;
        let name = |index: u32| names[index as usize].to_string();
        let spans = activity.spans.into_iter().map(|row| Span {
            tid: threads[row.thread as usize].tid,
            kind: row.kind.into_owned(),
            name: name(row.name),
            label: value(row.label),
            begin_ns: row.begin_ns,
            duration_ns: row.duration_ns,
            open: row.open,
            end_lost: row.end_lost,
            cpu_ns: row.cpu_ns,
            allocated_bytes: row.allocated_bytes,
            lock: row.lock.map(|lock| lock as usize),
            holder_tid: row.holder_tid,
            waker_tid: row.waker_tid,
            stack: row.stack.map(|stack| stacks[stack as usize].iter().map(ToString::to_string).collect()),
        });
        let events = activity.events.into_iter().map(|row| Event {
            tid: threads[row.thread as usize].tid,
            at_ns: row.at_ns,
            name: name(row.name),
            value: value(row.value),
        });
        let totals = activity.totals.into_iter().map(|row| {
            let name = row.name.clone().expect("spans have names");
            ((row.kind.to_string(), name.into_owned()), row)
        });
        let calls = activity.calls.into_iter().map(|row| {
            let function = row.function.clone().expect("functions have names");
            (function.into_owned(), row)
        });
        Ok(Self {
            spans: spans.collect(),
            events: events.collect(),
            locks: activity.locks,
            deadlocks: activity.deadlocks,
            totals: totals.collect(),
            calls: calls.collect(),
            left_out: activity.left_out.spans + activity.left_out.events,
            losses: report.losses.into_iter().map(|(name, count)| (name.into_owned(), count)).collect(),
            threads,
        })
    }

    /// Returns the spans of a thread that have one of these kinds, ordered by begin.
    #[must_use]
    pub fn spans_of(&self, tid: u32, kinds: &[&str]) -> Vec<&Span> {
        let is_of = |span: &&Span| span.tid == tid && kinds.contains(&span.kind.as_str());
        self.spans.iter().filter(is_of).collect()
    }
}

fn value(value: Option<memtrace_json::Value<'_>>) -> Value {
    match value {
        None => Value::Null,
        Some(memtrace_json::Value::Unsigned(number)) => number.into(),
        Some(memtrace_json::Value::Signed(number)) => number.into(),
        Some(memtrace_json::Value::Text(text)) => text.into_owned().into(),
    }
}

/// Returns the index of the innermost span around each span. `spans`: nested spans of one thread, ordered by begin.
#[must_use]
pub fn parents(spans: &[&Span]) -> Vec<Option<usize>> {
    let end = |span: &Span| span.begin_ns + span.duration_ns;
    let mut open: Vec<usize> = Vec::new();
    let parent_of = |(index, span): (usize, &&Span)| {
        while open.last().is_some_and(|last| end(spans[*last]) <= span.begin_ns) {
            open.pop();
        }
        let parent = open.last().copied();
        assert!(parent.is_none_or(|parent| end(span) <= end(spans[parent])), "{span:?} is not nested");
        open.push(index);
        parent
    };
    spans.iter().enumerate().map(parent_of).collect()
}

/// Spans that a thread of a victim has recorded (victims/spans.h).
#[derive(Clone, Debug, Deserialize)]
pub struct SpanRecord {
    pub tid: u32,
    pub spans: Vec<RecordedSpan>,
}

/// A span with four readings of each clock of the victim: before and after the step that begins the
/// span, and before and after the step that ends it.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedSpan {
    pub kind: String,
    pub name: String,
    pub label: Value,
    /// Index of the surrounding span in the spans of the thread.
    pub parent: Option<usize>,
    pub at: [u64; 4],
    pub cpu: [u64; 4],
    pub bytes: u64,
}

/// Returns the bounds of the length of a span, from four readings of a clock: before and after its begin, and before
/// and after its end.
#[must_use]
pub fn bounds([before_begin, begun, ending, after_end]: [u64; 4]) -> [u64; 2] {
    [ending.saturating_sub(begun), after_end - before_begin]
}

/// Asserts that `value` is within `bounds`, in nanoseconds. Returns true if the bounds are at most `tolerance` or a
/// hundredth apart. The bounds are further apart if the scheduler has interrupted the victim between a reading of its
/// clock and a step.
#[must_use]
pub fn is_exact(value: u64, bounds: [u64; 2], tolerance: u64, what: &str) -> bool {
    let [least, most] = bounds;
    assert!((least..=most).contains(&value), "{what}: {value} ns is not within {least}..={most}");
    most - least <= tolerance.max(least / 100)
}
