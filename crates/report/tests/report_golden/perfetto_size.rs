//! Size of a trace for Perfetto. Reading its messages takes half a minute in Python.

use std::sync::Arc;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{
    ActiveThread, Activity, Comm, ImageId, MemoryCounter, MemoryTimeline, Nanoseconds, Pid, ProcessTimeline, Profile,
    RunFacts, Span, SpanKind, SpanLabel, Steps, Tid,
};
use memtrace_report::Format;
use serde_json::Value;

use super::viewers::{file, read_perfetto};
use crate::activity_sample::activity;

/// Value of a counter in a second.
type ValueAt = fn(u64) -> u64;

#[test]
fn perfetto_traces_of_many_spans_are_small() {
    const THREADS: u32 = 100;
    const SPANS: u64 = 200_000;
    /// Maximum number of processes with series in a memory timeline.
    const PROCESSES: u32 = 64;
    const LENGTH: Duration = Duration::from_secs(600);
    let sample = activity();
    let thread = |tid| ActiveThread {
        pid: Pid(4711),
        tid: Tid(tid),
        process: Comm::from("redis-server"),
        name: Comm::from("worker-with-nam"),
        start: None,
        end: None,
    };
    let span = |number: u64| {
        let begin = number * 600_000_000_000 / SPANS;
        Span {
            thread: (number * u64::from(THREADS) / SPANS) as u32,
            kind: SpanKind::FutexWait,
            begin: Nanoseconds(begin),
            end: Nanoseconds(begin + 123_456),
            cpu: Some(Nanoseconds(123_456_789)),
            holder: Some(Tid(5_000)),
            lock: Some(0),
            label: Some(SpanLabel::Text(2)),
            stack: Some(1),
            ..sample.spans[0]
        }
    };
    let activity = Activity {
        threads: (5_000..5_000 + THREADS).map(thread).collect(),
        spans: (0..SPANS).map(span).collect(),
        events: Vec::new(),
        ..sample.clone()
    };
    let steps = |processes: u32, value: fn(u64) -> u64| {
        let mut steps = Steps::default();
        for second in 1..=LENGTH.as_secs() {
            steps.set(second as usize - 1, u64::from(processes) * value(second));
        }
        steps
    };
    // Sums of 16 and 32 bytes in the first second, twice as many in the next one, and so on.
    let counters: [(MemoryCounter, ValueAt); 3] = [
        (MemoryCounter::Live, |second| second * (second + 1) * 8),
        (MemoryCounter::Allocated, |second| second * (second + 1) * 16),
        (MemoryCounter::RssAnonymous, |second| second << 20),
    ];
    let process = |pid| ProcessTimeline {
        id: ImageId { pid: Pid(pid), ordinal: 0 },
        comm: Comm::from(&*format!("process-{pid}")),
        counters: counters.map(|(counter, value)| (counter, steps(1, value))).into(),
    };
    let timeline = MemoryTimeline {
        moments: (1..=LENGTH.as_secs()).map(Duration::from_secs).collect(),
        total: counters[..2].iter().map(|&(counter, value)| (counter, steps(PROCESSES, value))).collect(),
        processes: (1..=PROCESSES).map(process).collect(),
        ..MemoryTimeline::default()
    };
    let profile = Profile {
        run: RunFacts { activity: Some(Arc::new(activity)), timeline: Some(timeline), ..RunFacts::default() },
        ..Profile::default()
    };
    let scratch = Scratch::new();
    let path = file(&scratch, "many", Format::Perfetto, &profile);
    let bytes = std::fs::metadata(&path).expect("it was written").len();
    assert!(bytes <= 50 << 20, "{bytes}");
    let read = read_perfetto(&path);
    let number = |value: &Value| value.as_array().map_or(0, Vec::len);
    assert_eq!(number(&read["spans"]), SPANS as usize);
    let counters = read["counters"].as_object().expect("counters by track");
    let processes: Vec<_> = counters.iter().filter(|(track, _)| track.starts_with("process-")).collect();
    assert_eq!(processes.len(), PROCESSES as usize);
    for (track, counters) in processes {
        assert_eq!(number(&counters["RSS, anonymous"]), 600, "{track}: {counters}");
    }
}
