//! Activity of the sample: spans that nest, locks with waits and holders, events, and names that try to break formats.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrace_model::{
    AbsAddr, ActiveThread, Activity, ActivityEvent, Bytes, CallSums, Comm, EventValue, LeftOut, LockRow, LockSums,
    Log2, Nanoseconds, Pid, Profile, RunFacts, Span, SpanKind, SpanLabel, SpanRow, SpanSums, Tid, WaitClass,
};

use super::sample::sample;

/// Name that closes elements of HTML, and has control characters and a direction mark.
pub(crate) const HOSTILE: &str = "</script><script>alert(1)</script>\u{1b}[31m\n\u{202e}]]>";

/// Indices in the names of [`activity`].
const REQUEST: u32 = 0;
const PARSE: u32 = 1;
const HOSTILE_TASK: u32 = 2;
const CACHE_LOCK: u32 = 3;
const RECLAIM: u32 = 4;
const MALLOC: u32 = 5;
const FREE: u32 = 6;
const COMPUTE: u32 = 7;
const FUTEX: u32 = 8;
const POOL_LOCK: u32 = 9;
const QUEUE: u32 = 10;
const CONFIG: u32 = 11;
const CONFIG_TEXT: u32 = 12;
const TENANT: u32 = 13;
const FLUSH: u32 = 14;
const LOST: u32 = 15;

/// Indices in the locks of [`activity`].
const CACHE: u32 = 0;
const LONE_FUTEX: u32 = 1;
const SHARED_FUTEX: u32 = 2;
const POOL: u32 = 3;

/// End of the trace in microseconds.
const END: u64 = 30_250_000;

/// Returns the activity of four threads of process 4711 of [`sample`], and of a process that is not in that profile.
pub(crate) fn activity() -> Activity {
    let names = [
        "GET /index",
        "parse",
        HOSTILE,
        "cache lock",
        "direct reclaim",
        "malloc",
        "free",
        "compute",
        "futex",
        "pool <lock>;\u{7f}",
        "queue length",
        "configuration",
        "loaded \"<b>\u{1b}[2J\"",
        "tenant \"7\"",
        "flush",
        "[lost record]",
    ];
    let spans = spans();
    Activity {
        names: names.map(String::from).to_vec(),
        threads: threads(),
        events: events(),
        locks: locks(),
        totals: totals(&spans),
        spans,
        calls: vec![
            (MALLOC, calls(14, 3_012, &[(7, 11), (8, 1), (0, 1), (11, 1)])),
            (FREE, calls(1, 1_000, &[(9, 1)])),
        ],
        stacks: vec![
            vec![String::from("pthread_mutex_lock"), String::from("cache_get"), String::from("main")],
            vec![String::from("syscall"), String::from("park<T>"), String::from(HOSTILE)],
        ],
        left_out: LeftOut { spans: 12, shorter_than: Nanoseconds(1_000), events: 3 },
        counts_bytes: true,
    }
}

/// Returns the sample with this activity.
pub(crate) fn with_activity(activity: Activity) -> Profile {
    Profile { run: RunFacts { activity: Some(Arc::new(activity)), ..sample().run }, ..sample() }
}

fn threads() -> Vec<ActiveThread> {
    let thread = |tid, name: &str, start, end| ActiveThread {
        pid: Pid(4711),
        tid: Tid(tid),
        process: Comm::from("redis-server"),
        name: Comm::from(name),
        start,
        end,
    };
    let second = |seconds: u64| Some(Nanoseconds(seconds * 1_000_000_000));
    vec![
        thread(4711, "redis-server", None, None),
        thread(4720, "worker-1", second(1), None),
        thread(4721, "w</script>\u{1b}", second(2), second(20)),
        thread(4722, "worker-3", second(3), None),
        ActiveThread { pid: Pid(4800), process: Comm::from("batch"), ..thread(4800, "batch", second(3), second(9)) },
    ]
}

/// Returns a span of a thread with its begin and end in microseconds.
fn span(thread: u32, kind: SpanKind, name: u32, [begin, end]: [u64; 2]) -> Span {
    let [begin, end] = [begin, end].map(|at| Nanoseconds(at * 1_000));
    Span { thread, kind, name, begin, end, is_open: end == Nanoseconds(END * 1_000), ..Span::default() }
}

fn spans() -> Vec<Span> {
    use SpanKind::{AllocatorCall, Function, FutexWait, LockHold, LockWait, Stall, Task};
    let used = |cpu, allocated, span| Span { cpu: Some(Nanoseconds(cpu)), allocated: Some(Bytes(allocated)), ..span };
    let labelled = |label, span| Span { label: Some(label), ..span };
    let of = |lock, span| Span { lock: Some(lock), ..span };
    let held_by = |tid, span| Span { holder: Some(Tid(tid)), ..span };
    let woken_by = |tid, span| Span { waker: Some(Tid(tid)), ..span };
    let at = |stack, span| Span { stack: Some(stack), ..span };
    let lost = |span| Span { is_end_lost: true, ..span };
    let cache_wait = |thread, times| held_by(4711, of(CACHE, span(thread, LockWait, CACHE_LOCK, times)));
    let cache_hold = |thread, times| of(CACHE, span(thread, LockHold, CACHE_LOCK, times));
    let futex_wait = |thread, times| of(SHARED_FUTEX, span(thread, FutexWait, FUTEX, times));
    vec![
        used(1_500_000_000, 3 << 20, span(0, Task, REQUEST, [1_000_000, 5_000_000])),
        labelled(SpanLabel::Number(42), used(900_000_000, 4096, span(0, Function, COMPUTE, [1_000_000, 3_000_000]))),
        labelled(SpanLabel::Number(4096), span(0, AllocatorCall, MALLOC, [1_200_000, 1_200_003])),
        labelled(SpanLabel::Number(16), span(0, AllocatorCall, MALLOC, [1_500_000, 1_500_000])),
        span(0, Stall, RECLAIM, [2_000_000, 2_250_000]),
        cache_hold(0, [2_500_000, 6_000_000]),
        lost(labelled(SpanLabel::Text(TENANT), span(0, Function, PARSE, [3_000_000, 5_000_000]))),
        // The lock becomes free at 6 s, and the waiting thread gets it at once.
        used(200_000_000, 0, span(1, Task, REQUEST, [2_800_000, 7_000_000])),
        at(0, cache_wait(1, [3_000_000, 6_000_000])),
        cache_hold(1, [6_000_000, 6_500_000]),
        woken_by(4722, at(1, futex_wait(1, [6_600_000, 6_800_000]))),
        of(POOL, span(1, LockWait, POOL_LOCK, [29_000_000, END])),
        used(100_000_000, 17, span(2, Task, HOSTILE_TASK, [3_500_000, 7_600_000])),
        cache_wait(2, [3_900_000, 6_500_000]),
        cache_hold(2, [6_500_000, 7_500_000]),
        futex_wait(3, [6_700_000, 7_000_000]),
        span(3, Task, REQUEST, [25_000_000, END]),
        // The holder is a thread without activity.
        held_by(4799, futex_wait(3, [26_000_000, END])),
        of(POOL, span(3, LockHold, POOL_LOCK, [28_000_000, END])),
        of(LONE_FUTEX, span(4, FutexWait, FUTEX, [4_000_000, 5_000_000])),
        span(4, AllocatorCall, FREE, [5_000_000, 5_000_001]),
    ]
}

fn events() -> Vec<ActivityEvent> {
    let event = |thread, at: u64, name, value| ActivityEvent { thread, at: Nanoseconds(at * 1_000_000), name, value };
    vec![
        event(0, 1_000, QUEUE, EventValue::Number(7)),
        event(1, 3_500, QUEUE, EventValue::Number(-2)),
        event(1, 4_000, CONFIG, EventValue::Text(CONFIG_TEXT)),
        event(2, 5_000, HOSTILE_TASK, EventValue::None),
        event(4, 6_000, FLUSH, EventValue::None),
    ]
}

fn locks() -> Vec<LockRow> {
    let milliseconds = |number: u64| Nanoseconds(number * 1_000_000);
    let row = |pid, address, name, waits: [u64; 4], holds: [u64; 3]| LockRow {
        pid: Pid(pid),
        address: AbsAddr(address),
        name,
        place: None,
        class: WaitClass::Lock,
        joined: None,
        sums: LockSums {
            waits: waits[0],
            wait_time: milliseconds(waits[1]),
            longest_wait: milliseconds(waits[2]),
            most_waiters: waits[3],
            holds: holds[0],
            hold_time: milliseconds(holds[1]),
            longest_hold: milliseconds(holds[2]),
        },
    };
    vec![
        row(4711, 0x7f00_dead_b000, Some(CACHE_LOCK), [2, 5_600, 3_000, 2], [3, 5_000, 3_500]),
        row(4800, 0x7ffc_0000_0010, None, [1, 1_000, 1_000, 1], [0, 0, 0]),
        row(4711, 0x55d0_0000_1040, None, [2, 500, 300, 2], [0, 0, 0]),
        row(4711, 0x7f00_dead_b080, Some(POOL_LOCK), [0, 0, 0, 1], [0, 0, 0]),
    ]
}

/// Adds up the spans that have ended, and twelve short calls of `malloc` that are left out.
fn totals(spans: &[Span]) -> Vec<SpanRow> {
    let mut sums: BTreeMap<(SpanKind, u32), SpanSums> = BTreeMap::new();
    for span in spans {
        let of_name = sums.entry((span.kind, span.name)).or_default();
        if !span.is_open {
            *of_name += SpanSums {
                count: 1,
                time: span.duration(),
                longest: span.duration(),
                cpu: span.cpu.unwrap_or_default(),
                allocated: span.allocated.unwrap_or_default().0,
                lost_ends: span.is_end_lost.into(),
                missing: 0,
            };
        }
    }
    let left_out = SpanSums { count: 12, time: Nanoseconds(12), longest: Nanoseconds(1), ..SpanSums::default() };
    *sums.entry((SpanKind::AllocatorCall, MALLOC)).or_default() += left_out;
    let missing = |missing| SpanSums { missing, ..SpanSums::default() };
    *sums.entry((SpanKind::Function, COMPUTE)).or_default() += missing(1_200);
    *sums.entry((SpanKind::Task, LOST)).or_default() += missing(7);
    let mut rows: Vec<_> = sums.into_iter().map(|((kind, name), sums)| SpanRow { kind, name, sums }).collect();
    rows.sort_by_key(|row| (row.kind, std::cmp::Reverse(row.sums.time)));
    rows
}

/// Returns sums of calls. `histogram`: number of calls by the binary logarithm of their duration in
/// nanoseconds.
fn calls(count: u64, time: u64, histogram: &[(u32, u64)]) -> CallSums {
    let counts: BTreeMap<u32, u64> = histogram.iter().copied().collect();
    let log2 = |number| Log2::from_number(number).expect("it is below 64");
    CallSums {
        count,
        time: Nanoseconds(time),
        histogram: counts.into_iter().map(|(number, count)| (log2(number), count)).collect(),
    }
}

#[test]
fn the_activity_follows_the_rules_of_the_model() {
    let activity = activity();
    assert!(activity.threads.is_sorted_by_key(|thread| (thread.pid, thread.start, thread.tid)));
    assert!(activity.events.is_sorted_by_key(|event| event.at));
    assert!(activity.spans.is_sorted_by_key(|span| (span.thread, span.begin, std::cmp::Reverse(span.end))));
    assert!(activity.locks.is_sorted_by_key(|lock| std::cmp::Reverse(lock.sums.wait_time)));
    assert!(activity.totals.is_sorted_by_key(|row| (row.kind, std::cmp::Reverse(row.sums.time))));
    assert!(activity.calls.is_sorted_by_key(|(_, calls)| std::cmp::Reverse(calls.time)));
    let nests = |one: &Span, other: &Span| other.begin >= one.end || other.end <= one.end;
    let on_thread: Vec<_> = activity.spans.iter().filter(|span| span.kind != SpanKind::LockHold).collect();
    for (index, one) in on_thread.iter().enumerate() {
        let later = on_thread[index + 1..].iter().filter(|other| other.thread == one.thread);
        assert!(later.into_iter().all(|other| nests(one, other)), "{one:?}");
    }
    for (index, lock) in (0..).zip(&activity.locks) {
        let of_kind = |is_wait: bool| {
            let of_lock = activity.spans.iter().filter(move |span| span.lock == Some(index) && !span.is_open);
            of_lock.filter(move |span| (span.kind != SpanKind::LockHold) == is_wait)
        };
        let sum = |is_wait| (of_kind(is_wait).count() as u64, of_kind(is_wait).map(|span| span.duration().0).sum());
        assert_eq!((lock.sums.waits, lock.sums.wait_time.0), sum(true), "{lock:?}");
        assert_eq!((lock.sums.holds, lock.sums.hold_time.0), sum(false), "{lock:?}");
    }
    for (_, calls) in &activity.calls {
        assert_eq!(calls.count, calls.histogram.iter().map(|(_, count)| count).sum::<u64>());
    }
}
