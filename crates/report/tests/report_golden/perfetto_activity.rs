//! Tests of the activity of threads in traces for Perfetto, read with the messages that Perfetto
//! publishes.

use harness::Scratch;
use memtrace_model::{ActiveThread, Activity, LeftOut, Nanoseconds, Span, SpanKind, SpanLabel, Tid};
use memtrace_report::Format;
use serde_json::{Map, Value, json};

use super::activity_sample::{HOSTILE, activity, with_activity};
use crate::long::viewers::{file, read_perfetto};

const MS: u64 = 1_000_000;

fn read(name: &str, activity: Activity) -> Value {
    read_perfetto(&file(&Scratch::new(), name, Format::Perfetto, &with_activity(activity)))
}

/// Returns a name without control characters and direction marks.
fn plain(name: &str) -> String {
    let is_hostile = |character: char| character.is_control() || character == '\u{202e}';
    name.replace('\n', " ").replace(is_hostile, "\u{fffd}")
}

fn title(thread: &ActiveThread) -> String {
    format!("{} ({})", plain(thread.name.raw()), thread.tid.0)
}

/// Returns the arguments of a span of a thread.
fn arguments(span: &Span, activity: &Activity) -> Value {
    let mut all = Map::new();
    let mut add = |name: &str, value: Value| all.insert(String::from(name), value);
    if let Some(cpu) = span.cpu {
        add("cpu_ns", cpu.0.into());
    }
    if let Some(bytes) = span.allocated {
        add("allocated_bytes", bytes.0.into());
    }
    match span.label {
        Some(SpanLabel::Number(size)) if span.kind == SpanKind::AllocatorCall => add("size_bytes", size.into()),
        Some(SpanLabel::Number(number)) => add("label", number.into()),
        Some(SpanLabel::Text(text)) => add("label", plain(&activity.names[text as usize]).into()),
        None => None,
    };
    if let Some(lock) = span.lock {
        add("lock", format!("{:#x}", activity.locks[lock as usize].address.0).into());
    }
    if let Some(tid) = span.holder {
        let thread = activity.threads.iter().find(|thread| thread.tid == tid);
        add("holder", thread.map_or_else(|| tid.0.to_string(), title).into());
    }
    if let Some(tid) = span.waker {
        let thread = activity.threads.iter().find(|thread| thread.tid == tid);
        add("waker", thread.map_or_else(|| tid.0.to_string(), title).into());
    }
    if let Some(stack) = span.stack {
        let frames: Vec<_> = activity.stacks[stack as usize].iter().map(|frame| plain(frame)).collect();
        add("stack", frames.join("\n").into());
    }
    if span.is_open {
        add("not ended", true.into());
    }
    if span.is_end_lost {
        add("end lost", true.into());
    }
    all.into()
}

#[test]
fn perfetto_has_every_span_of_a_thread() {
    let activity = activity();
    let read = read("spans", activity.clone());
    let on_threads: Vec<_> = activity.spans.iter().filter(|span| span.kind != SpanKind::LockHold).collect();
    let expected = on_threads.iter().enumerate().map(|(index, span)| {
        let thread = &activity.threads[span.thread as usize];
        let is_around = |other: &&&Span| {
            other.thread == span.thread && other.begin <= span.begin && other.end >= span.end && other.end > span.begin
        };
        json!({
            "track": format!("thread {}", plain(thread.name.raw())),
            "process": thread.process.raw(),
            "name": plain(&activity.names[span.name as usize]),
            "category": span.kind.name(),
            "begin": span.begin.0,
            "end": span.end.0,
            "depth": on_threads[..index].iter().filter(is_around).count(),
            "arguments": arguments(span, &activity),
        })
    });
    let is_of_thread = |span: &&Value| span["category"] != "lock_hold";
    let spans: Vec<_> = read["spans"].as_array().expect("spans").iter().filter(is_of_thread).collect();
    let expected: Vec<_> = expected.collect();
    assert_eq!(spans, expected.iter().collect::<Vec<_>>());
    assert_eq!(expected.iter().map(|span| span["depth"].as_u64()).max(), Some(Some(2)));
}

#[test]
fn perfetto_has_holds_on_the_tracks_of_locks() {
    let read = read("holds", activity());
    let is_hold = |span: &&Value| span["category"] == "lock_hold";
    let holds = read["spans"].as_array().expect("spans").iter().filter(is_hold).map(|span| {
        assert_eq!((&span["process"], &span["depth"]), (&json!("redis-server"), &json!(0)));
        let arguments = &span["arguments"];
        json!([span["track"], span["name"], span["begin"], span["end"], arguments["holder"], arguments["not ended"]])
    });
    let [cache, pool] = ["cache lock (0x7f00deadb000)", "pool <lock>;\u{fffd} (0x7f00deadb080)"];
    let hostile = "w</script>\u{fffd}";
    let expected = [
        json!([cache, "redis-server", 2500 * MS, 6000 * MS, "redis-server (4711)", null]),
        json!([cache, "worker-1", 6000 * MS, 6500 * MS, "worker-1 (4720)", null]),
        json!([cache, hostile, 6500 * MS, 7500 * MS, format!("{hostile} (4721)"), null]),
        json!([pool, "worker-3", 28_000 * MS, 30_250 * MS, "worker-3 (4722)", true]),
    ];
    assert_eq!(holds.collect::<Vec<_>>(), expected);
}

#[test]
fn perfetto_draws_holds_that_overlap_on_tracks_of_one_name() {
    let mut activity = activity();
    // The hold of the second thread begins before the hold of the first one ends, as if both were
    // readers.
    let second = activity.spans.iter_mut().find(|span| span.kind == SpanKind::LockHold && span.thread == 1);
    second.expect("it is in the sample").begin = Nanoseconds(5_999 * MS);
    let read = read("readers", activity);
    let cache = |span: &&Value| span["category"] == "lock_hold" && span["begin"].as_u64() < Some(10_000 * MS);
    let holds: Vec<_> = read["spans"].as_array().expect("spans").iter().filter(cache).collect();
    assert_eq!(holds.len(), 3);
    assert!(holds.iter().all(|hold| hold["depth"] == 0 && hold["track"] == holds[0]["track"]), "{holds:?}");
}

#[test]
fn perfetto_counts_the_threads_that_wait_for_a_lock() {
    let read = read("waiters", activity());
    let counters = read["counters"].as_object().expect("counters");
    let waiters = |lock: &str| counters.get(lock).map(|counters| counters["waiters"].clone());
    let cache = json!([[3000 * MS, 1], [3900 * MS, 2], [6000 * MS, 1], [6500 * MS, 0]]);
    assert_eq!(waiters("cache lock (0x7f00deadb000)"), Some(cache));
    let futex = json!([[6600 * MS, 1], [6700 * MS, 2], [6800 * MS, 1], [7000 * MS, 0], [26_000 * MS, 1]]);
    assert_eq!(waiters("futex (0x55d000001040)"), Some(futex));
    assert_eq!(waiters("pool <lock>;\u{fffd} (0x7f00deadb080)"), Some(json!([[29_000 * MS, 1]])));
    assert_eq!(counters.keys().filter(|name| name.starts_with("futex")).count(), 1, "one wait is no track");
    // A futex with a single wait has a track if the holder is known.
    let mut activity = activity();
    activity.spans.iter_mut().filter(|span| span.thread == 4).for_each(|span| span.holder = Some(Tid(4801)));
    let read = self::read("holder", activity);
    assert_eq!(read["counters"]["futex (0x7ffc00000010)"]["waiters"], json!([[4000 * MS, 1], [5000 * MS, 0]]));
}

#[test]
fn perfetto_has_events_and_lives_of_threads_as_instants() {
    let read = read("events", activity());
    let hostile = "thread w</script>\u{fffd}";
    let expected = [
        json!([1000 * MS, "thread worker-1", "start"]),
        json!([2000 * MS, hostile, "start"]),
        json!([20_000 * MS, hostile, "exit"]),
        json!([3000 * MS, "thread worker-3", "start"]),
        json!([3000 * MS, "thread batch", "start"]),
        json!([9000 * MS, "thread batch", "exit"]),
        json!([1000 * MS, "thread redis-server", "queue length", {"value": 7}]),
        json!([3500 * MS, "thread worker-1", "queue length", {"value": -2}]),
        json!([4000 * MS, "thread worker-1", "configuration", {"value": "loaded \"<b>\u{fffd}[2J\""}]),
        json!([5000 * MS, hostile, plain(HOSTILE)]),
        json!([6000 * MS, "thread batch", "flush"]),
    ];
    let of_threads = |instant: &&Value| instant[1].as_str().is_some_and(|track| track.starts_with("thread "));
    let instants = read["instants"].as_array().expect("instants");
    assert_eq!(instants.iter().filter(of_threads).collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
}

#[test]
fn perfetto_has_the_histograms_of_allocator_calls() {
    let read = read("calls", activity());
    let of_calls = |instant: &&Value| instant[1] == "allocator calls";
    let instants: Vec<_> = read["instants"].as_array().expect("instants").iter().filter(of_calls).collect();
    let end = &read["profiles"].as_array().expect("heap profiles").last().expect("one at the end")[0];
    let malloc = json!({
        "calls": 14, "time_ns": 3012, "below 2 ns": 1, "below 256 ns": 11, "below 512 ns": 1, "below 4.10 µs": 1,
    });
    let free = json!({ "calls": 1, "time_ns": 1000, "below 1.02 µs": 1 });
    let expected = [json!([end, "allocator calls", "malloc", malloc]), json!([end, "allocator calls", "free", free])];
    assert_eq!(instants, expected.iter().collect::<Vec<_>>());
}

#[test]
fn perfetto_says_what_is_left_out() {
    let losses = |left_out| {
        let read = read("left-out", Activity { left_out, ..activity() });
        let instants = read["instants"].as_array().expect("instants").iter();
        let of_losses: Vec<_> = instants.filter(|instant| instant[1] == "losses").map(|one| one[2].clone()).collect();
        assert!(of_losses[0].as_str().is_some_and(|text| text.starts_with("lost: ")), "{of_losses:?}");
        of_losses[1..].to_vec()
    };
    let text = "12 spans shorter than 1.00 µs and the last 3 events are left out to save memory";
    assert_eq!(losses(activity().left_out), [text]);
    assert!(losses(LeftOut::default()).is_empty());
}
