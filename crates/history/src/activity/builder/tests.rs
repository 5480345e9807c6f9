use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{ActiveThread, Activity, ReclaimKind};

use super::*;
use crate::activity::ActivityCollector;

const PID: Pid = Pid(7);

fn sites() -> Vec<SpanSite> {
    let site = |name: Option<&str>, label| SpanSite { name: name.map(String::from), label };
    vec![site(None, SiteLabel::None), site(Some("parse"), SiteLabel::Number), site(Some("load"), SiteLabel::Text)]
}

fn builder() -> ActivityBuilder {
    let mut builder = ActivityBuilder::new(sites());
    builder.set_start(Nanoseconds(1000));
    builder
}

/// Step of a thread `at` nanoseconds after the start. Until then, the thread has used `at / 2` nanoseconds of CPU
/// time and allocated `at * 2` bytes.
fn step(tid: u32, at: u64, kind: StepKind) -> ThreadStep {
    let (cpu, allocated) = (Some(Nanoseconds(at / 2)), Some(Bytes(at * 2)));
    ThreadStep { pid: PID, tid: Tid(tid), at: Nanoseconds(1000 + at), cpu, allocated, sequence: None, kind }
}

fn begin(site: u32, value: u64, text: &str) -> StepKind {
    StepKind::Begin { site, value, text: text.into(), frame: AbsAddr(8) }
}

fn end(site: u32) -> StepKind {
    StepKind::End { site, frame: AbsAddr(8) }
}

fn finish(mut builder: ActivityBuilder, end: u64) -> Activity {
    builder.finish(Nanoseconds(1000 + end));
    let mut collector = ActivityCollector::default();
    collector.add(builder.take_changes());
    collector.finish(BTreeMap::new(), [(0, vec!["wait".into()])].into(), true)
}

/// Thread, kind, name, begin and end of each span, and true if the span is open.
fn shown(activity: &Activity) -> Vec<(u32, SpanKind, &str, u64, u64, bool)> {
    let row = |span: &Span| {
        let tid = activity.threads[span.thread as usize].tid.0;
        let name = activity.names[span.name as usize].as_str();
        (tid, span.kind, name, span.begin.0, span.end.0, span.is_open)
    };
    activity.spans.iter().map(row).collect()
}

#[test]
fn spans_nest_by_thread() {
    let mut builder = builder();
    for (tid, at, kind) in [
        (1, 10, begin(0, 0, "request")),
        (2, 15, begin(0, 0, "other")),
        (1, 20, begin(1, 42, "")),
        (1, 30, end(1)),
        (1, 31, begin(2, 0, "file")),
        (1, 35, end(2)),
        (1, 40, end(0)),
    ] {
        builder.add(step(tid, at, kind));
    }
    let activity = finish(builder, 100);
    let expected = [
        (1, SpanKind::Task, "request", 10, 40, false),
        (1, SpanKind::Function, "parse", 20, 30, false),
        (1, SpanKind::Function, "load", 31, 35, false),
        (2, SpanKind::Task, "other", 15, 100, true),
    ];
    assert_eq!(shown(&activity), expected);
    let request = activity.spans[0];
    assert_eq!((request.cpu, request.allocated), (Some(Nanoseconds(15)), Some(Bytes(60))));
    assert_eq!(activity.spans[1].label, Some(SpanLabel::Number(42)));
    let Some(SpanLabel::Text(text)) = activity.spans[2].label else { panic!("no label") };
    assert_eq!(activity.names[text as usize], "file");
    let totals: Vec<_> = activity.totals.iter().map(|row| (row.kind, row.sums.count, row.sums.time.0)).collect();
    assert_eq!(totals, [(SpanKind::Task, 1, 30), (SpanKind::Function, 1, 10), (SpanKind::Function, 1, 4)]);
}

#[test]
fn missed_end_is_that_of_the_outer_span() {
    let mut builder = builder();
    builder.add(step(1, 1, end(0)));
    builder.add(step(1, 10, begin(0, 0, "outer")));
    builder.add(step(1, 20, begin(1, 0, "")));
    builder.add(step(1, 30, end(0)));
    let activity = finish(builder, 100);
    let expected = [(1, SpanKind::Task, "outer", 10, 30, false), (1, SpanKind::Function, "parse", 20, 30, false)];
    assert_eq!(shown(&activity), expected);
}

#[test]
fn recursive_calls_end_with_their_frame() {
    let mut builder = builder();
    // An exception leaves the call with frame 80. The return with frame 60 belongs to no known call.
    let steps = [call(1, 100), call(1, 90), call(1, 80), ret(1, 60), ret(1, 90), ret(1, 100)];
    (1..).zip(steps).for_each(|(at, kind)| builder.add(step(1, at, kind)));
    let times: Vec<_> = finish(builder, 9).spans.iter().map(|span| (span.begin.0, span.end.0)).collect();
    assert_eq!(times, [(1, 6), (2, 5), (3, 5)]);
}

#[test]
fn calls_that_end_with_a_jump_have_a_name_of_their_own() {
    let mut builder = builder();
    // The outer call ends with its return. The inner calls end with a jump, and so does an unknown call.
    let jump = |frame| StepKind::TailCall { site: 1, frame: AbsAddr(frame) };
    let steps = [call(1, 100), call(1, 90), call(2, 80), jump(90), jump(70), call(1, 90), jump(90), ret(1, 100)];
    (1..).zip(steps).for_each(|(at, kind)| builder.add(step(1, at, kind)));
    let activity = finish(builder, 99);
    let until_jump = "parse [until its tail call]";
    let expected = [("parse", 1, 8), (until_jump, 2, 4), ("load", 3, 4), (until_jump, 6, 7)];
    let spans = shown(&activity).into_iter().map(|(_, _, name, begin, end, _)| (name, begin, end));
    assert_eq!(spans.collect::<Vec<_>>(), expected);
    let totals = activity.totals.iter().map(|row| (activity.names[row.name as usize].as_str(), row.sums.count));
    assert_eq!(totals.collect::<BTreeMap<_, _>>(), [("parse", 1), (until_jump, 2), ("load", 1)].into());
}

#[test]
fn calls_with_a_shared_exit_end_alike_in_any_order() {
    let jump = |site| StepKind::TailCall { site, frame: AbsAddr(100) };
    for ends in [[jump(1), jump(2)], [jump(2), jump(1)]] {
        let mut builder = builder();
        // The first function jumps to the second one, which calls the first one, and then jumps to unknown code.
        let steps = [call(1, 100), call(2, 100), call(1, 90)].into_iter().chain(ends);
        (1..).zip(steps).for_each(|(at, kind)| builder.add(step(1, at, kind)));
        let activity = finish(builder, 99);
        let names: BTreeSet<_> = activity.spans.iter().map(|span| &activity.names[span.name as usize][..]).collect();
        let expected = ["load [until its tail call]", "parse", "parse [until its tail call]"];
        assert_eq!(names, expected.into());
    }
}

/// Begin of a call. `frame`: stack pointer at the entry of the function.
fn call(site: u32, frame: u64) -> StepKind {
    StepKind::Begin { site, value: 0, text: "x".into(), frame: AbsAddr(frame) }
}

fn ret(site: u32, frame: u64) -> StepKind {
    StepKind::End { site, frame: AbsAddr(frame) }
}

#[test]
fn calls_that_were_left_end_at_the_next_call() {
    let mut builder = builder();
    // The second call with frame 90 shows that the first calls with frames 90 and 80 were left.
    let steps = [call(1, 100), call(1, 90), call(1, 80), call(1, 90), ret(1, 90), call(2, 95), ret(2, 95), ret(1, 100)];
    (1..).zip(steps).for_each(|(at, kind)| builder.add(step(1, at, kind)));
    let activity = finish(builder, 99);
    let times: Vec<_> = activity.spans.iter().map(|span| (span.begin.0, span.end.0, span.is_open)).collect();
    assert_eq!(times, [(1, 8, false), (2, 4, false), (3, 4, false), (4, 5, false), (6, 7, false)]);
}

#[test]
fn tasks_and_functions_called_by_a_jump_are_not_left() {
    let mut builder = builder();
    let task = begin(0, 0, "task");
    // The two calls with frame 80 end at the same instruction. The step of the outer call comes first.
    let steps = [call(1, 90), task, call(1, 80), call(2, 80), ret(1, 80), ret(2, 80), end(0), ret(1, 90)];
    (1..).zip(steps).for_each(|(at, kind)| builder.add(step(1, at, kind)));
    let times: Vec<_> = finish(builder, 99).spans.iter().map(|span| (span.begin.0, span.end.0)).collect();
    assert_eq!(times, [(1, 8), (2, 7), (3, 5), (4, 5)]);
}

#[test]
fn calls_that_are_too_deep_can_be_left() {
    let mut builder = builder();
    (1..=300).for_each(|at| builder.add(step(1, at, call(1, 10_000 - at))));
    // The return shows that the program has left all calls but the first two.
    builder.add(step(1, 400, ret(1, 9_998)));
    builder.add(step(1, 401, call(2, 9_990)));
    builder.add(step(1, 402, ret(2, 9_990)));
    builder.add(step(1, 403, ret(1, 9_999)));
    assert_eq!(builder.losses().get(LossReason::SpanTooDeep), 300 - 128);
    let activity = finish(builder, 999);
    let times = |index: usize| (activity.spans[index].begin.0, activity.spans[index].end.0);
    assert_eq!(
        (activity.spans.len(), times(0), times(1), times(127), times(128)),
        (129, (1, 403), (2, 400), (128, 400), (401, 402))
    );
}

#[test]
fn stacks_without_frames_are_unknown() {
    let mut builder = builder();
    for (at, stack) in [(10, 1234), (20, 5678), (30, 9876)] {
        let (address, duration) = (AbsAddr(0x200), Nanoseconds(5));
        let (holder, waker, usage, stack) = (None, None, FutexUse::Unknown, StackId(stack));
        let wait = StepKind::FutexWait { address, duration, holder, waker, usage, is_open: false, stack };
        builder.add(step(1, at, wait));
    }
    let mut collector = ActivityCollector::default();
    collector.add(builder.take_changes());
    let activity = collector.finish(BTreeMap::new(), [(0, vec!["wait".into()]), (1, vec![])].into(), true);
    assert_eq!(activity.spans.iter().map(|span| span.stack).collect::<Vec<_>>(), [Some(0), None, None]);
}

#[test]
fn waits_have_the_holder_of_the_lock() {
    let mut builder = builder();
    let lock = AbsAddr(0x100);
    let wait = || StepKind::LockWait { lock, name: "table".into() };
    for (tid, at, kind) in [
        (1, 10, wait()),
        (1, 11, StepKind::LockAcquire { lock }),
        (2, 20, wait()),
        (3, 25, wait()),
        // The next holder's acquire step comes before the last holder's release step.
        (2, 50, StepKind::LockAcquire { lock }),
        (1, 51, StepKind::LockRelease { lock }),
        (2, 60, StepKind::LockRelease { lock }),
        (3, 61, StepKind::LockAcquire { lock }),
    ] {
        builder.add(step(tid, at, kind));
    }
    let activity = finish(builder, 70);
    let expected = [
        (1, SpanKind::LockWait, "table", 10, 11, false),
        (1, SpanKind::LockHold, "table", 11, 51, false),
        (2, SpanKind::LockWait, "table", 20, 50, false),
        (2, SpanKind::LockHold, "table", 50, 60, false),
        (3, SpanKind::LockWait, "table", 25, 61, false),
        (3, SpanKind::LockHold, "table", 61, 70, true),
    ];
    assert_eq!(shown(&activity), expected);
    let holders: Vec<_> = activity.spans.iter().map(|span| span.holder.map(|tid| tid.0)).collect();
    assert_eq!(holders, [None, None, Some(1), None, Some(1), None]);
    let [row] = activity.locks[..] else { panic!("{:?}", activity.locks) };
    assert_eq!((row.address, row.sums.waits, row.sums.holds, row.sums.most_waiters), (lock, 3, 3, 2));
    assert_eq!((row.sums.wait_time, row.sums.longest_wait), (Nanoseconds(1 + 30 + 36), Nanoseconds(36)));
    // Thread 3 holds the lock at the end.
    assert_eq!(row.sums.hold_time, Nanoseconds(40 + 10 + 9));
}

#[test]
fn waits_for_futexes_end_with_their_duration() {
    let mut builder = builder();
    let wait = |duration| StepKind::FutexWait {
        address: AbsAddr(0x200),
        duration: Nanoseconds(duration),
        holder: Some(Tid(9)),
        waker: Some(Tid(8)),
        usage: FutexUse::Unknown,
        is_open: false,
        stack: StackId(1234),
    };
    builder.add(step(1, 50, wait(40)));
    builder.add(step(2, 60, wait(20)));
    builder.add(step(3, 80, wait(20)));
    let activity = finish(builder, 100);
    let times: Vec<_> = activity.spans.iter().map(|span| (span.begin.0, span.end.0, span.stack)).collect();
    assert_eq!(times, [(10, 50, Some(0)), (40, 60, Some(0)), (60, 80, Some(0))]);
    assert_eq!((activity.locks[0].name, activity.locks[0].sums.most_waiters), (None, 2));
    assert!(activity.spans.iter().all(|span| (span.holder, span.waker) == (Some(Tid(9)), Some(Tid(8)))));
}

/// A wait of 10 ns for the futex at `address`.
fn futex_wait(address: u64, waker: u32, usage: FutexUse, stack: u64) -> StepKind {
    let (address, duration, waker) = (AbsAddr(address), Nanoseconds(10), Some(Tid(waker)));
    StepKind::FutexWait { address, duration, holder: waker, waker, usage, is_open: false, stack: StackId(stack) }
}

#[test]
fn futexes_have_the_class_of_their_waits() {
    let mut builder = builder();
    let steps = [
        futex_wait(0x100, 2, FutexUse::Unknown, 1011),
        futex_wait(0x200, 2, FutexUse::Unknown, 1012),
        futex_wait(0x300, 2, FutexUse::Join, 1013),
        futex_wait(0x400, 2, FutexUse::Join, 1013),
        futex_wait(0x400, 3, FutexUse::Join, 1013),
        futex_wait(0x500, 2, FutexUse::Unknown, 1014),
        futex_wait(0x600, 2, FutexUse::Unknown, 1013),
    ];
    (0..).zip(steps).for_each(|(index, kind)| builder.add(step(1, 20 * (index + 1), kind)));
    builder.set_place(PID, AbsAddr(0x100), "server:table");
    let mut collector = ActivityCollector::default();
    collector.add(builder.take_changes());
    let stack = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>();
    let stacks = [
        (0, stack(&["__lll_lock_wait", "pthread_mutex_lock", "main"])),
        (1, stack(&["__futex_abstimed_wait_common", "pthread_cond_wait", "main"])),
        (2, stack(&["libc.so.6+0x1000", "main"])),
        (3, stack(&["libc.so.6+0x2000", "_int_free", "free", "main"])),
    ];
    let activity = collector.finish(BTreeMap::new(), stacks.into(), true);
    let mut locks: Vec<_> = activity
        .locks
        .iter()
        .map(|lock| {
            let place = lock.place.map(|place| activity.names[place as usize].as_str());
            (lock.address.0, lock.class, lock.joined.map(|tid| tid.0), place)
        })
        .collect();
    locks.sort_unstable();
    let expected = [
        (0x100, WaitClass::Lock, None, Some("server:table")),
        (0x200, WaitClass::Idle, None, None),
        (0x300, WaitClass::Join, Some(2), None),
        (0x400, WaitClass::Join, None, None),
        (0x500, WaitClass::Lock, None, Some("malloc arena")),
        (0x600, WaitClass::Lock, None, None),
    ];
    assert_eq!(locks, expected);
    let names: Vec<_> = activity.spans.iter().map(|span| activity.names[span.name as usize].as_str()).collect();
    assert_eq!(names, ["futex", "futex", "join", "join", "join", "futex", "futex"]);
    let classes: Vec<_> = activity.spans.iter().map(|span| activity.wait_class(span)).collect();
    let [lock, join, idle] = [WaitClass::Lock, WaitClass::Join, WaitClass::Idle];
    assert_eq!(classes, [lock, idle, join, join, join, lock, lock]);
}

#[test]
fn threads_that_wait_for_each_other_are_a_deadlock() {
    let mut builder = builder();
    let open = |tid, holder, address| {
        let (address, duration, stack) = (AbsAddr(address), Nanoseconds(10), StackId::NOT_TAKEN);
        let (holder, waker, usage) = (Some(Tid(holder)), None, FutexUse::Unknown);
        step(tid, 100, StepKind::FutexWait { address, duration, holder, waker, usage, is_open: true, stack })
    };
    // Thread 1 waits for the cycle of 2, 3 and 4, and thread 5 for a thread that does not wait.
    for step in [open(1, 2, 0x10), open(2, 3, 0x20), open(3, 4, 0x30), open(4, 2, 0x40), open(5, 6, 0x50)] {
        builder.add(step);
    }
    builder.add(step(6, 100, futex_wait(0x60, 5, FutexUse::Unknown, 1011)));
    let activity = finish(builder, 100);
    let thread = |span: &usize| activity.threads[activity.spans[*span].thread as usize].tid.0;
    let cycles: Vec<Vec<u32>> = activity.deadlocks().iter().map(|cycle| cycle.iter().map(thread).collect()).collect();
    assert_eq!(cycles, [[2, 3, 4]]);
}

/// Returns the activity of threads with these steps.
fn after_steps(steps: &[(u32, StepKind)]) -> Activity {
    let mut builder = builder();
    (1..).zip(steps).for_each(|(at, (tid, kind))| builder.add(step(*tid, at, kind.clone())));
    finish(builder, 100)
}

/// Waiting thread and holder of each open wait for a lock.
fn open_waits(activity: &Activity) -> Vec<(u32, Option<u32>)> {
    let open = activity.spans.iter().filter(|span| span.is_open && span.kind == SpanKind::LockWait);
    open.map(|span| (activity.threads[span.thread as usize].tid.0, span.holder.map(|tid| tid.0))).collect()
}

#[test]
fn open_waits_have_the_holder_at_the_end() {
    let [a, b] = [AbsAddr(0x10), AbsAddr(0x20)];
    let wait = |lock| StepKind::LockWait { lock, name: "table".into() };
    let acquire = |lock| StepKind::LockAcquire { lock };
    let release = |lock| StepKind::LockRelease { lock };
    let deadlock = [(1, acquire(b)), (2, acquire(a)), (1, wait(a)), (2, wait(b))];
    let activity = after_steps(&deadlock);
    assert_eq!((open_waits(&activity), activity.deadlocks().len()), (vec![(1, Some(2)), (2, Some(1))], 1));
    // Thread 3 gets the lock that thread 1 waits for, and runs.
    let (last, begin) = deadlock.split_last().unwrap();
    let activity = after_steps(&[begin, &[(2, release(a)), (3, acquire(a)), last.clone()]].concat());
    assert_eq!((open_waits(&activity), activity.deadlocks().len()), (vec![(1, Some(3)), (2, Some(1))], 0));
    // No thread holds the lock.
    let activity = after_steps(&[begin, &[(2, release(a)), last.clone()]].concat());
    assert_eq!(open_waits(&activity), [(1, None), (2, Some(1))]);
    // If the lock has several holders, the wait keeps the holder at its begin.
    let activity = after_steps(&[begin, &[(3, acquire(a)), last.clone()]].concat());
    assert_eq!(open_waits(&activity), [(1, Some(2)), (2, Some(1))]);
}

#[test]
fn exit_ends_the_spans_of_a_thread() {
    let mut builder = builder();
    let lock = AbsAddr(0x100);
    builder.add(step(5, 0, StepKind::Start));
    builder.add(step(5, 10, begin(0, 0, "task")));
    builder.add(step(5, 20, StepKind::LockAcquire { lock }));
    builder.add(step(5, 30, StepKind::Exit { name: Comm::from("worker") }));
    let unnamed = builder.take_unnamed();
    unnamed.into_iter().for_each(|thread| builder.name_thread(thread, &Comm::from("server"), &Comm::from("old")));
    // A new thread gets the TID of the exited one.
    builder.add(step(5, 40, begin(0, 0, "second")));
    let activity = finish(builder, 50);
    let expected = [
        (5, SpanKind::Task, "second", 40, 50, true),
        (5, SpanKind::Task, "task", 10, 30, false),
        (5, SpanKind::LockHold, "[no name]", 20, 30, false),
    ];
    assert_eq!(shown(&activity), expected);
    let row = &activity.threads[1];
    assert_eq!((row.process.raw(), row.name.raw()), ("server", "worker"));
    assert_eq!((row.start, row.end), (Some(Nanoseconds(0)), Some(Nanoseconds(30))));
}

#[test]
fn exit_without_a_name_keeps_the_name() {
    let mut builder = builder();
    builder.add(step(5, 10, StepKind::Number { name: "queue".into(), value: 1 }));
    let unnamed = builder.take_unnamed();
    unnamed.into_iter().for_each(|thread| builder.name_thread(thread, &Comm::from("server"), &Comm::from("worker")));
    builder.add(step(5, 30, StepKind::Exit { name: Comm::default() }));
    let activity = finish(builder, 50);
    assert_eq!((activity.threads[0].name.raw(), activity.threads[0].end), ("worker", Some(Nanoseconds(30))));
}

#[test]
fn events_and_stalls_have_their_times() {
    let mut builder = builder();
    builder.add(step(1, 5, StepKind::Number { name: "queue".into(), value: -3 }));
    builder.add(step(1, 6, StepKind::Text { name: "state".into(), text: "ready".into() }));
    builder.add(step(1, 7, StepKind::Call { site: 1, value: 8 }));
    builder.add(step(1, 20, StepKind::Stall { work: ReclaimKind::Direct, duration: Nanoseconds(4) }));
    let activity = finish(builder, 30);
    let events: Vec<_> =
        activity.events.iter().map(|event| (event.at.0, activity.names[event.name as usize].as_str())).collect();
    assert_eq!(events, [(5, "queue"), (6, "state"), (7, "parse")]);
    assert_eq!((activity.events[0].value, activity.events[2].value), (EventValue::Number(-3), EventValue::Number(8)));
    assert_eq!(shown(&activity), [(1, SpanKind::Stall, ReclaimKind::Direct.name(), 16, 20, false)]);
}

#[test]
fn spans_that_are_too_deep_are_counted() {
    let mut builder = builder();
    (0..200).for_each(|at| builder.add(step(1, at, begin(0, 0, "deep"))));
    (200..400).for_each(|at| builder.add(step(1, at, end(0))));
    builder.add(step(1, 500, begin(0, 0, "next")));
    builder.add(step(1, 600, end(0)));
    assert_eq!(builder.losses().get(LossReason::SpanTooDeep), 200 - 128);
    let activity = finish(builder, 1000);
    assert_eq!(activity.spans.len(), 129);
    assert_eq!(shown(&activity)[128], (1, SpanKind::Task, "next", 500, 600, false));
    assert_eq!((activity.spans[0].begin.0, activity.spans[0].end.0), (0, 399));
}

#[test]
fn shortest_spans_are_left_out() {
    let mut collector = ActivityCollector::default();
    let mut builder = builder();
    let mut at = 0;
    for number in 0..300_000_u64 {
        let duration = if number % 100 == 0 { 1 << 20 } else { 100 + number % 1000 };
        builder.add(step(1, at, begin(0, 0, "task")));
        builder.add(step(1, at + duration, end(0)));
        at += duration + 1;
        if number % 1000 == 0 {
            collector.add(builder.take_changes());
        }
    }
    collector.add(builder.take_changes());
    let activity = collector.finish(BTreeMap::new(), BTreeMap::new(), false);
    let kept = activity.spans.len() as u64;
    assert_eq!(kept, ActivityCollector::MAX_SPANS as u64);
    assert_eq!(kept + activity.left_out.spans, 300_000);
    assert_eq!(activity.totals[0].sums.count, 300_000);
    // Each duration from 101 to 1099 ns has 300 spans, except for multiples of 100: 100,000 spans take up to 437 ns.
    assert_eq!(activity.left_out.shorter_than.0, 438);
    assert!(activity.spans.iter().all(|span| span.duration().0 >= 437));
    assert_eq!(activity.spans.iter().filter(|span| span.duration().0 == 1 << 20).count(), 3000);
}

#[test]
fn spans_and_events_keep_their_threads() {
    const THREADS: u32 = 1000;
    const SPANS: u32 = 230_000;
    let thread = |number| ActiveThread {
        pid: PID,
        tid: Tid(number),
        process: Comm::default(),
        name: Comm::default(),
        start: None,
        end: Some(Nanoseconds(1)),
    };
    // The first threads have the shortest spans.
    let span = |index: u32| {
        let (thread, end) = (index / (SPANS / THREADS), Nanoseconds(1 + u64::from(index)));
        Span { thread, end, label: Some(SpanLabel::Number(thread.into())), ..Span::default() }
    };
    let event = ActivityEvent { thread: THREADS, at: Nanoseconds(1), name: 0, value: EventValue::None };
    let mut collector = ActivityCollector::default();
    collector.add(ActivityChanges {
        names: vec![(0, "task".into())],
        threads: (0..=THREADS).map(|number| (number, thread(number))).collect(),
        spans: (0..SPANS).map(span).collect(),
        events: vec![event],
        ..ActivityChanges::default()
    });
    let activity = collector.finish(BTreeMap::new(), BTreeMap::new(), false);
    assert_eq!(activity.spans.len(), ActivityCollector::MAX_SPANS);
    let tid = |thread: u32| activity.threads[thread as usize].tid.0;
    let has_thread = |span: &Span| span.label == Some(SpanLabel::Number(tid(span.thread).into()));
    assert!(activity.spans.iter().all(has_thread));
    assert_eq!(tid(activity.events[0].thread), THREADS);
    // 30,000 spans are left out: all spans of the first 130 threads, and some of the next one.
    assert_eq!(activity.threads.len(), 1001 - 130);
}

/// Numbers the steps of thread 1 as BPF does. `steps`: time and kind of each step, and true if its record arrives.
fn numbered(first: u32, steps: &[(u64, StepKind, bool)]) -> Vec<ThreadStep> {
    let mut number = first;
    let mut arrived = Vec::new();
    for (at, kind, arrives) in steps {
        let is_counted = !matches!(
            kind,
            StepKind::FutexWait { .. }
                | StepKind::Stall { .. }
                | StepKind::AllocatorCall { .. }
                | StepKind::Number { .. }
                | StepKind::Start
                | StepKind::Exit { .. }
        );
        let next = if is_counted { number.checked_add(1).unwrap_or(1) } else { number };
        let sequence = Some(StepSequence { number, next });
        if *arrives {
            arrived.push(ThreadStep { sequence, ..step(1, *at, kind.clone()) });
        }
        number = next;
    }
    arrived
}

/// Begin and end of each span, and true if the end is lost.
fn ends(activity: &Activity) -> Vec<(u64, u64, bool)> {
    activity.spans.iter().map(|span| (span.begin.0, span.end.0, span.is_end_lost)).collect()
}

/// Returns the activity of thread 1 with these steps. `next`: sequence number of the thread's next step at the end, at 100 ns;
/// `None` if the thread has exited.
fn after_losses(first: u32, steps: &[(u64, StepKind, bool)], next: Option<u32>) -> Activity {
    let mut builder = builder();
    numbered(first, steps).into_iter().for_each(|step| builder.add(step));
    builder.end_lost_threads(&next.map(|next| ((PID, Tid(1)), next)).into_iter().collect());
    finish(builder, 100)
}

#[test]
fn lost_records_end_the_spans_of_their_thread() {
    let lock = AbsAddr(0x100);
    let mut steps = [
        (1, StepKind::LockAcquire { lock }, true),
        (10, begin(0, 0, "request"), true),
        (20, begin(1, 0, ""), true),
        (25, end(1), true),
        (30, begin(1, 0, ""), true),
        (40, end(1), true),
        (50, end(0), true),
        (55, StepKind::LockRelease { lock }, true),
        (60, begin(0, 0, "request"), true),
        (70, end(0), true),
    ];
    let exact = [(1, 55, false), (10, 50, false), (20, 25, false), (30, 40, false), (60, 70, false)];
    for first in [1, u32::MAX - 4] {
        assert_eq!(ends(&after_losses(first, &steps, Some(first.checked_add(10).unwrap_or(6)))), exact);
    }
    // The end of the inner call is lost, so the task and the hold end at its begin. The end of the task has no span.
    steps[5].2 = false;
    let activity = after_losses(1, &steps, Some(11));
    assert_eq!(ends(&activity), [(1, 30, true), (10, 30, true), (20, 25, false), (30, 30, true), (60, 70, false)]);
    let lost: Vec<_> = activity.totals.iter().map(|row| (row.kind, row.sums.count, row.sums.lost_ends)).collect();
    assert_eq!(lost, [(SpanKind::Task, 2, 1), (SpanKind::Function, 2, 1), (SpanKind::LockHold, 1, 1)]);
    assert_eq!((activity.spans[1].cpu, activity.spans[1].allocated), (None, None));
    assert_eq!((activity.locks[0].sums.holds, activity.locks[0].sums.hold_time.0), (1, 29));
}

#[test]
fn lost_begins_do_not_end_the_tasks_around() {
    let steps =
        [(10, begin(0, 0, "request"), true), (20, begin(0, 0, "parse"), false), (30, end(0), true), (80, end(0), true)];
    let activity = after_losses(1, &steps, Some(5));
    assert_eq!(shown(&activity), [(1, SpanKind::Task, "request", 10, 10, false)]);
    assert_eq!(ends(&activity), [(10, 10, true)]);
}

#[test]
fn lost_events_and_waits_end_no_span() {
    let event = || StepKind::Number { name: "queue".into(), value: 1 };
    let steps = [
        (10, begin(0, 0, "request"), true),
        (20, event(), false),
        (30, futex_wait(0x100, 2, FutexUse::Unknown, 1011), false),
        (40, event(), true),
        (50, StepKind::Stall { work: ReclaimKind::Direct, duration: Nanoseconds(4) }, false),
        (60, end(0), true),
    ];
    assert_eq!(ends(&after_losses(1, &steps, Some(3))), [(10, 60, false)]);
}

#[test]
fn events_show_the_loss_of_earlier_records() {
    let event = StepKind::Number { name: "queue".into(), value: 1 };
    let steps = [(10, begin(0, 0, "request"), true), (20, event.clone(), true), (30, end(0), false), (90, event, true)];
    assert_eq!(ends(&after_losses(1, &steps, Some(3))), [(10, 20, true)]);
}

#[test]
fn spans_nest_after_a_loss_in_a_call() {
    let call = |duration| StepKind::AllocatorCall { function: 0, size: Bytes(8), duration: Nanoseconds(duration) };
    let steps = [
        (10, begin(0, 0, "request"), true),
        // The call from 20 to 60 contains both waits and the task of 35.
        (30, futex_wait(0x100, 2, FutexUse::Unknown, 1011), true),
        (35, begin(0, 0, "refill"), true),
        (45, futex_wait(0x100, 2, FutexUse::Unknown, 1011), true),
        (50, end(0), false),
        (60, call(40), true),
        (70, end(0), true),
    ];
    let activity = after_losses(1, &steps, Some(5));
    let expected = [(10, 20, true), (20, 60, false), (20, 30, false), (35, 45, true), (35, 45, false)];
    assert_eq!(ends(&activity), expected);
}

#[test]
fn last_records_of_a_thread_can_be_lost() {
    let steps = [(10, begin(0, 0, "first"), true), (20, end(0), true), (30, begin(0, 0, "second"), true)];
    assert_eq!(ends(&after_losses(1, &steps, Some(4))), [(10, 20, false), (30, 100, false)]);
    assert_eq!(ends(&after_losses(1, &steps, Some(5))), [(10, 20, false), (30, 30, true)]);
    // The exit is lost.
    assert_eq!(ends(&after_losses(1, &steps, None)), [(10, 20, false), (30, 30, true)]);
}

#[test]
fn threads_with_the_tid_of_an_exited_one_have_their_own_spans() {
    let old = [(5, StepKind::Start, true), (10, begin(0, 0, "old"), true)];
    let new = [(50, StepKind::Start, true), (60, begin(0, 0, "new"), true), (70, end(0), true)];
    let both = |is_start_lost: bool| {
        let mut builder = builder();
        let steps = numbered(1, &old).into_iter().chain(numbered(1, &new).into_iter().skip(is_start_lost.into()));
        steps.for_each(|step| {
            let sequence = step.sequence.filter(|_| !matches!(step.kind, StepKind::Start));
            builder.add(ThreadStep { sequence, ..step });
        });
        finish(builder, 100)
    };
    let activity = both(false);
    let starts: Vec<_> = activity.threads.iter().map(|thread| thread.start.map(|start| start.0)).collect();
    assert_eq!((starts, ends(&activity)), (vec![Some(5), Some(50)], vec![(10, 10, true), (60, 70, false)]));
    assert_eq!(ends(&both(true)), [(10, 10, true), (60, 70, false)]);
}

#[test]
fn waiters_of_a_lock_are_counted_after_a_loss() {
    let lock = AbsAddr(0x100);
    let wait = || StepKind::LockWait { lock, name: "table".into() };
    let mut builder = builder();
    let steps = [(10, wait(), true), (20, StepKind::LockAcquire { lock }, false), (30, wait(), true)];
    numbered(1, &steps).into_iter().for_each(|step| builder.add(step));
    builder.add(step(2, 40, wait()));
    let activity = finish(builder, 100);
    assert_eq!(ends(&activity), [(10, 10, true), (30, 100, false), (40, 100, false)]);
    assert_eq!((activity.locks[0].sums.waits, activity.locks[0].sums.most_waiters), (3, 2));
}

#[test]
fn spans_with_lost_records_are_never_too_long() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut exact, mut lost) = (0, 0);
    for _ in 0..300 {
        let (mut open, mut steps, mut durations) = (Vec::new(), Vec::new(), BTreeMap::new());
        for at in 1..90 {
            let arrives = random(5) > 0;
            if open.len() < 4 && (open.is_empty() || random(2) == 0) {
                open.push(at);
                steps.push((at, begin(0, 0, &at.to_string()), arrives));
            } else if let Some(since) = open.pop() {
                durations.insert(since, at - since);
                steps.push((at, end(0), arrives));
            }
        }
        let activity = after_losses(1, &steps, Some(90));
        for span in &activity.spans {
            let name = activity.names[span.name as usize].parse::<u64>().unwrap();
            let duration = durations.get(&name).copied().unwrap_or(100 - name);
            assert_eq!(span.begin.0, name);
            assert!(if span.is_end_lost { span.duration().0 <= duration } else { span.duration().0 == duration });
            *(if span.is_end_lost { &mut lost } else { &mut exact }) += 1;
        }
    }
    assert!(exact > 300 && lost > 300, "{exact} exact, {lost} lost");
}

#[test]
fn spans_with_lost_records_are_counted() {
    let mut builder = builder();
    for (at, kind) in [(10, begin(0, 0, "request")), (20, begin(1, 0, "")), (30, end(1)), (40, end(0))] {
        builder.add(step(1, at, kind));
    }
    builder.add(step(1, 60, futex_wait(0x100, 2, FutexUse::Unknown, 1011)));
    let begun = SpanCounts {
        by_site: [(0, 4), (1, 1), (2, 9)].into(),
        by_kind: [(SpanKind::FutexWait, 1), (SpanKind::LockHold, 2)].into(),
    };
    builder.count_missing(&begun);
    let activity = finish(builder, 100);
    let row = |row: &memtrace_model::SpanRow| {
        (row.kind, activity.names[row.name as usize].clone(), row.sums.count, row.sums.missing)
    };
    let mut rows: Vec<_> = activity.totals.iter().map(row).collect();
    rows.sort();
    let expected = [
        (SpanKind::Task, "[lost record]", 0, 3),
        (SpanKind::Task, "request", 1, 0),
        (SpanKind::Function, "load", 0, 9),
        (SpanKind::Function, "parse", 1, 0),
        (SpanKind::LockHold, "[lost record]", 0, 2),
        (SpanKind::FutexWait, "futex", 1, 0),
    ];
    assert_eq!(rows, expected.map(|(kind, name, count, missing)| (kind, name.to_owned(), count, missing)));
}

#[test]
fn a_run_without_losses_has_no_name_for_lost_records() {
    let mut builder = builder();
    builder.add(step(1, 10, begin(0, 0, "request")));
    builder.count_missing(&SpanCounts { by_site: [(0, 1)].into(), by_kind: [(SpanKind::Stall, 0)].into() });
    assert_eq!(finish(builder, 100).names, ["request"]);
}
