//! Intervals with activity, and the activity that their recording must have.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, ActiveThread, ActivityChanges, ActivityEvent, Bytes, CallSums, Comm, EventValue, LeftOut, LockIdentity,
    LockSums, Log2, Nanoseconds, Pid, Span, SpanKind, SpanLabel, SpanSums, StackEnd, Tid,
};
use proptest::prelude::*;

use crate::*;

/// Number of threads. There are as many locks and stacks, and twice as many names.
const IDENTITIES: u32 = 4;

/// Returns a span of `duration` nanoseconds that ends in `second`. `seed` determines all other values.
pub(super) fn span(second: u64, seed: u64, duration: u64) -> Span {
    let (number, end) = ((seed % u64::from(IDENTITIES)) as u32, second * 1_000_000_000 + seed % 1_000_000_000);
    Span {
        thread: number,
        kind: SpanKind::ALL[seed as usize % SpanKind::ALL.len()],
        name: number,
        label: match seed % 3 {
            0 => None,
            1 => Some(SpanLabel::Number(seed)),
            _ => Some(SpanLabel::Text(IDENTITIES + number)),
        },
        begin: Nanoseconds(end.saturating_sub(duration)),
        end: Nanoseconds(end),
        is_open: seed % 7 == 1,
        is_end_lost: seed % 7 == 3,
        cpu: seed.is_multiple_of(2).then_some(Nanoseconds(duration / 2)),
        allocated: (!seed.is_multiple_of(5)).then_some(Bytes(seed)),
        lock: (seed % 5 == 2).then_some(number),
        holder: (seed % 10 == 2).then_some(Tid(7)),
        stack: (!seed.is_multiple_of(3)).then_some(number),
        waker: (seed % 10 == 7).then_some(Tid(8)),
    }
}

fn event(second: u64, seed: u64) -> ActivityEvent {
    let number = (seed % u64::from(IDENTITIES)) as u32;
    ActivityEvent {
        thread: number,
        at: Nanoseconds(second * 1_000_000_000 + seed),
        name: number,
        value: match seed % 3 {
            0 => EventValue::None,
            1 => EventValue::Number(-seed.cast_signed()),
            _ => EventValue::Text(IDENTITIES + number),
        },
    }
}

/// Adds all names, threads, locks and stacks.
fn add_identities(interval: &mut Interval) {
    let changes = &mut interval.activity;
    changes.names = (0..2 * IDENTITIES).map(|number| (number, format!("name {number}"))).collect();
    let thread = |number: u32| ActiveThread {
        pid: Pid(1 + number % 2),
        tid: Tid(number),
        process: Comm::from("server"),
        name: Comm::from(format!("worker{number}")),
        start: (number > 0).then_some(Nanoseconds(number.into())),
        end: None,
    };
    changes.threads = (0..IDENTITIES).map(|number| (number, thread(number))).collect();
    let lock = |number: u32| LockIdentity {
        pid: Pid(1),
        address: AbsAddr(u64::MAX - u64::from(number)),
        name: (number > 0).then_some(number),
        place: (number == 0).then_some(IDENTITIES),
    };
    changes.locks = (0..IDENTITIES).map(|number| (number, lock(number))).collect();
    let ends = [StackEnd::Complete, StackEnd::Merged];
    interval.activity_stacks =
        (0..IDENTITIES).map(|number| (number, PathNumber(number), ends[number as usize % 2])).collect();
}

/// Returns the activity of a second with spans and events of these seeds. The first second has all names, threads,
/// locks and stacks.
pub(super) fn active_second(second: u64, spans: &[u64], events: &[u64]) -> Interval {
    let mut interval =
        Interval { span: Duration::from_secs(second)..Duration::from_secs(second + 1), ..Interval::default() };
    if second == 0 {
        add_identities(&mut interval);
    }
    interval.activity.spans = spans.iter().map(|&seed| span(second, seed, seed * 1000)).collect();
    interval.activity.events = events.iter().map(|&seed| event(second, seed)).collect();
    for span in &interval.activity.spans {
        let (time, cpu) = (span.duration(), span.cpu.unwrap_or_default());
        let allocated = span.allocated.map_or(0, |bytes| bytes.0);
        *interval.activity.totals.entry((span.kind, span.name)).or_default() +=
            SpanSums { count: 1, time, longest: time, cpu, allocated, lost_ends: span.is_end_lost.into(), missing: 2 };
        *interval.activity.lock_totals.entry(span.name).or_default() += LockSums {
            waits: 1,
            wait_time: time,
            longest_wait: time,
            holds: 2,
            hold_time: cpu,
            longest_hold: cpu,
            most_waiters: second,
        };
        let calls = interval.calls.entry(span.name).or_default();
        (calls.count, calls.time) = (calls.count + 1, Nanoseconds(calls.time.0 + time.0));
        let mut histogram: BTreeMap<Log2, u64> = calls.histogram.iter().copied().collect();
        *histogram.entry(Log2::of_size(Bytes(time.0))).or_default() += 1;
        calls.histogram = histogram.into_iter().collect();
    }
    interval
}

/// Intervals of one second each. The first one refers to all names, threads, locks and stacks.
pub(super) fn active_intervals(number: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Interval>> {
    let seeds = || prop::collection::vec(1..10_000u64, 0..12);
    prop::collection::vec((seeds(), seeds()), number).prop_map(|seconds| {
        let all: Vec<u64> = (0..64).collect();
        let interval = |(second, (spans, events)): (u64, (Vec<u64>, Vec<u64>))| {
            active_second(second, if second == 0 { &all } else { &spans }, &events)
        };
        (0..).zip(seconds).map(interval).collect()
    })
}

/// Returns the activity of intervals, computed without the database.
pub(super) fn sum(intervals: &[Interval]) -> RecordedActivity {
    let mut all = RecordedActivity::default();
    for interval in intervals {
        let ActivityChanges { names, threads, locks, spans, events, totals, lock_totals, .. } =
            interval.activity.clone();
        all.changes.names.extend(names);
        all.changes.threads.extend(threads);
        all.changes.locks.extend(locks);
        all.changes.spans.extend(spans);
        all.changes.events.extend(events);
        all.stacks.extend(&interval.activity_stacks);
        add(
            &mut all,
            &RecordedActivity {
                changes: ActivityChanges { totals, lock_totals, ..ActivityChanges::default() },
                calls: interval.calls.clone(),
                left_out: interval.activity_left_out,
                ..RecordedActivity::default()
            },
        );
    }
    all
}

/// Adds the totals, calls and counts of left-out spans of `part` to `all`.
pub(super) fn add(all: &mut RecordedActivity, part: &RecordedActivity) {
    for (key, sums) in &part.changes.totals {
        *all.changes.totals.entry(*key).or_default() += *sums;
    }
    for (lock, sums) in &part.changes.lock_totals {
        *all.changes.lock_totals.entry(*lock).or_default() += *sums;
    }
    for (name, sums) in &part.calls {
        let CallSums { count, time, histogram } = all.calls.entry(*name).or_default();
        (*count, *time) = (*count + sums.count, Nanoseconds(time.0 + sums.time.0));
        let mut buckets: BTreeMap<Log2, u64> = histogram.iter().copied().collect();
        sums.histogram.iter().for_each(|(log, calls)| *buckets.entry(*log).or_default() += calls);
        *histogram = buckets.into_iter().collect();
    }
    let LeftOut { spans, shorter_than, events } = &mut all.left_out;
    *spans += part.left_out.spans;
    *events += part.left_out.events;
    *shorter_than = (*shorter_than).max(part.left_out.shorter_than);
}
