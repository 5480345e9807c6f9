//! Activity of threads in a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::Text;

/// Spans and events of threads over time.
///
/// Spans are parts of the time of threads: tasks, calls of functions, and waits. Times are in nanoseconds since the
/// start of tracing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Activity")]
pub struct Activity<'a, S = Vec<Span<'a>>, E = Vec<Event<'a>>> {
    /// Names of tasks, functions, locks and events, each once.
    pub names: Vec<Text<'a>>,
    /// Threads with spans or events, by pid, start and tid.
    pub threads: Vec<ActiveThread<'a>>,
    /// Names of the values of a span, in their order. New ones can be added at the end.
    pub span_fields: Vec<Text<'a>>,
    /// Spans, by thread and begin. If two spans begin at the same time, the longer one is first.
    pub spans: S,
    /// Names of the values of an event, in their order. New ones can be added at the end.
    pub event_fields: Vec<Text<'a>>,
    /// Events, by time.
    pub events: E,
    /// Locks and futexes, by `wait_ns`, greatest first.
    pub locks: Vec<Lock<'a>>,
    /// Totals of spans with the same kind and name, by `kind`, then by `time_ns`, greatest first.
    pub totals: Vec<SpanTotals<'a>>,
    /// Calls of allocator functions by `time_ns`, greatest first. Empty if they were not timed.
    pub calls: Vec<Calls<'a>>,
    /// Stacks of waits: names of functions, the innermost first.
    pub stacks: Vec<Vec<Text<'a>>>,
    /// Deadlocks at the end of the trace: cycles of threads that wait for each other. Each is a list of indices in
    /// `spans`: the wait of each thread comes before the wait of its holder.
    pub deadlocks: Vec<Vec<u32>>,
    /// Numbers of spans and events that `spans` and `events` omit. `totals` include the omitted spans.
    pub left_out: LeftOut,
}

/// Thread with spans or events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActiveThread<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Short name of the process.
    pub process: Text<'a>,
    /// Short name of the thread.
    pub name: Text<'a>,
    /// Start of the thread; `null` if it did not start during the trace.
    pub start_ns: Option<u64>,
    /// Exit of the thread; `null` if it did not exit during the trace.
    pub exit_ns: Option<u64>,
}

/// Part of the time of a thread.
///
/// To keep large reports small, a span is a list of these values in the order of `span_fields`:
///
/// ```sh
/// jq -r '.activity as $a | $a.spans[] | [$a.span_fields, .] | transpose | map({(.[0]): .[1]}) | add
///     | select(.kind == "lock_wait") | "\(.duration_ns) \($a.names[.name]) \($a.threads[.thread].name)"' run.json
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = list_of_values)]
pub struct Span<'a> {
    /// Index in `threads`.
    pub thread: u32,
    /// `task` (named by the program), `function` (a call that the user has named), `lock_wait` and `lock_hold` (of a lock
    /// that the program has named), `futex_wait`, `stall` (reclaim or compaction of memory) or `allocator_call`. Spans
    /// of a thread are nested, except for `lock_hold`.
    pub kind: Text<'a>,
    /// Index in `names` of the name of the task, function, lock or kind of stall.
    pub name: u32,
    /// Argument of a function call, or size of an allocator call in bytes.
    pub label: Option<Value<'a>>,
    /// Begin of the span.
    pub begin_ns: u64,
    /// Duration of the span.
    pub duration_ns: u64,
    /// `true` if the span had not ended when tracing ended.
    pub open: bool,
    /// CPU time of the thread within the span; `null` if unknown.
    pub cpu_ns: Option<u64>,
    /// Bytes that the thread allocated within the span; `null` if unknown.
    pub allocated_bytes: Option<u64>,
    /// Index in `locks`; `null` if the span has no lock.
    pub lock: Option<u32>,
    /// Thread of the same process that held the lock when the wait began, or at the end of the trace if the wait has not
    /// ended. For a join, the joined thread.
    pub holder_tid: Option<u32>,
    /// Index in `stacks`; `null` if the span has no stack.
    pub stack: Option<u32>,
    /// Thread of the same process that ended the wait for a futex; `null` if unknown.
    pub waker_tid: Option<u32>,
    /// `true` if the record of the end may be lost. `duration_ns` is then a lower bound: the span ends at the last record of
    /// its thread before the loss. `cpu_ns` and `allocated_bytes` are unknown.
    pub end_lost: bool,
}

impl Span<'_> {
    /// Names of the values, in their order.
    pub const FIELDS: [&'static str; 14] = [
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
        "waker_tid",
        "end_lost",
    ];
}

impl Serialize for Span<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (
            self.thread,
            &self.kind,
            self.name,
            &self.label,
            self.begin_ns,
            self.duration_ns,
            self.open,
            self.cpu_ns,
            self.allocated_bytes,
            self.lock,
            self.holder_tid,
            self.stack,
            self.waker_tid,
            self.end_lost,
        )
            .serialize(serializer)
    }
}

/// Event of a thread. In JSON, an event is a list of these values in the order of `event_fields`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = list_of_values)]
pub struct Event<'a> {
    /// Index in `threads`.
    pub thread: u32,
    /// Time of the event.
    pub at_ns: u64,
    /// Index in `names` of the name of the event.
    pub name: u32,
    /// A number in a unit of the program's choice, or a text.
    pub value: Option<Value<'a>>,
}

impl Event<'_> {
    /// Names of the values, in their order.
    pub const FIELDS: [&'static str; 4] = ["thread", "at_ns", "name", "value"];
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.thread, self.at_ns, self.name, &self.value).serialize(serializer)
    }
}

/// Changes the schema of an object to the schema of a list of its values. The keys stay for the documentation;
/// validators ignore them.
fn list_of_values(schema: &mut schemars::Schema) {
    let keys = schema.get("properties").and_then(|keys| keys.as_object());
    let values = keys.map(|keys| keys.values().cloned().collect::<Vec<_>>());
    schema.insert(String::from("type"), "array".into());
    schema.insert(String::from("prefixItems"), values.into());
}

/// Label of a span, or value of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Value<'a> {
    /// Number of at least 0.
    Unsigned(u64),
    /// Number.
    Signed(i64),
    /// Text.
    Text(Text<'a>),
}

/// Lock or futex.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lock<'a> {
    /// Process id.
    pub pid: u32,
    /// Address of the lock or the futex, in hexadecimal digits: `0x7f00dead0010`.
    pub address: Text<'a>,
    /// Name of the lock; `null` for a futex.
    pub name: Option<Text<'a>>,
    /// Place of a futex: the variable that contains it, as in `server:table`, or `malloc arena`; `null` if unknown.
    pub place: Option<Text<'a>>,
    /// `lock`; `join` if threads wait for the exit of a thread; or `idle` if they wait for a condition variable, a
    /// semaphore or a barrier, or are parked. It is the class of most of the waiting time, by the stacks of the waits.
    pub class: Text<'a>,
    /// Joined thread, if `class` is `join` and all waits are for the same thread.
    pub joined_tid: Option<u32>,
    /// Number of waits.
    pub waits: u64,
    /// Sum of the durations of the waits.
    pub wait_ns: u64,
    /// Longest wait.
    pub longest_wait_ns: u64,
    /// Highest number of threads that waited at the same time.
    pub most_waiters: u64,
    /// Number of holds: times that a thread held the lock.
    pub holds: u64,
    /// Sum of the durations of the holds.
    pub hold_ns: u64,
    /// Longest hold.
    pub longest_hold_ns: u64,
}

/// Totals of the spans of a kind with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpanTotals<'a> {
    /// Kind of the spans.
    pub kind: Text<'a>,
    /// Name of the spans. It ends with `[until its tail call]` for calls of functions that ended with a jump to another
    /// library or by a pointer: the durations do not contain the time of the function there.
    pub name: Option<Text<'a>>,
    /// Number of spans that had ended.
    pub count: u64,
    /// Sum of the durations of these spans. The time of a span inside another one of the same name counts twice.
    pub time_ns: u64,
    /// Longest duration.
    pub longest_ns: u64,
    /// Sum of the CPU times.
    pub cpu_ns: u64,
    /// Sum of the allocated bytes; `null` if they were not counted.
    pub allocated_bytes: Option<u64>,
    /// Number of spans with `end_lost`. `time_ns` and `longest_ns` have the lower bounds of their durations.
    pub lost_ends: u64,
    /// Number of further spans. Their records are lost, and `count` and the other numbers do not include them. If the name was
    /// in a lost record too, it is `[lost record]`.
    pub missing: u64,
}

/// Calls of an allocator function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Calls<'a> {
    /// Name of the function.
    pub function: Option<Text<'a>>,
    /// Number of calls, without frees of a null pointer, and without calls that an allocator makes itself.
    pub count: u64,
    /// Sum of the durations of the calls.
    pub time_ns: u64,
    /// Histogram of the durations of the calls. Empty buckets are left out.
    pub histogram: Vec<CallDurations>,
}

/// Bucket of a histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallDurations {
    /// Lower bound of the durations. The upper bound, which is excluded, is twice the lower one, or 2 ns if the lower
    /// bound is 0.
    pub from_ns: u64,
    /// Number of calls.
    pub count: u64,
}

/// Missing spans and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// Number of spans that are missing.
    pub spans: u64,
    /// Upper bound of the durations of the missing spans; `null` if no span is missing.
    pub shorter_than_ns: Option<u64>,
    /// Number of events that are missing: the last ones.
    pub events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_order_of_their_fields() {
        let properties = |schema: schemars::Schema| -> Vec<String> {
            schema.get("properties").and_then(|keys| keys.as_object()).unwrap().keys().cloned().collect()
        };
        assert_eq!(properties(schemars::schema_for!(Span<'static>)), Span::FIELDS);
        assert_eq!(properties(schemars::schema_for!(Event<'static>)), Event::FIELDS);
    }
}
