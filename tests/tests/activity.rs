//! Activity of threads, compared with the victims' own clocks and counters.
//!
//! Victims read their clock before and after each step, so that the times of a span have exact bounds, even if the
//! scheduler interrupts a victim. Most of these bounds must be narrow.

mod alone;

use std::collections::BTreeMap;
use std::fs;

use memtrace_common::wire::ActivityRecord;
use memtrace_tests::activity::{Lock, Span, SpanRecord, bounds, is_exact, parents};
use memtrace_tests::{Activity, Outcome, Scratch, Trace, victim};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Tolerance of durations, if a hundredth of the duration is less.
const TOLERANCE_NS: u64 = 20_000;

/// Tolerance of calls of functions with a probe at an instruction that the kernel single-steps. The bounds of the
/// victim include the traps, which take 19 to 30 µs on different machines.
const CALL_TOLERANCE_NS: u64 = 60_000;

/// Tolerance of CPU time, which the kernel counts with other clocks.
const CPU_TOLERANCE_NS: u64 = 50_000;

/// Tolerance of the CPU time of all spans, in percent. The time of a single span can differ by more: the kernel counts the
/// time of a context switch for the next thread, and a hypervisor can stop the CPU during the switch.
const CPU_TOLERANCE_PERCENT: u64 = 10;

/// Traces the victim `name`, while another victim runs. Returns the output of the victim, and the
/// outcome.
fn traced<T: DeserializeOwned>(name: &str, arguments: &[&str], options: &[&str]) -> (T, Outcome) {
    let mut victim = victim::start_with(name, arguments);
    let mut other = victim::start("thread_lives");
    let tracer = Trace::victim(&victim).options(options).start();
    other.process().write_line("");
    let _: Value = other.read_json();
    victim.process().write_line("");
    let expected = victim.read_json();
    let outcome = tracer.stop();
    let pid = victim.pid();
    victim.finish();
    other.finish();
    let threads = outcome.activity().threads;
    assert!(threads.iter().all(|thread| thread.pid == pid), "not only {pid}: {threads:?}");
    (expected, outcome)
}

/// Returns `--span VICTIM:FUNCTION` for each function.
fn spans(name: &str, functions: &[&str]) -> Vec<String> {
    let path = victim::path(name);
    functions.iter().map(|function| format!("--span={}:{function}", path.display())).collect()
}

/// Asserts that at least half of the numbers were measured exactly. A busy machine delays the victim between two
/// readings of its clock.
#[track_caller]
fn assert_mostly(exact: &[bool]) {
    let count = exact.iter().filter(|is_exact| **is_exact).count();
    assert!(count * 2 >= exact.len(), "only {count} of {} are exact: the machine is too busy", exact.len());
}

#[derive(Deserialize)]
struct Locks {
    table: String,
    index: String,
    most_waiters: u64,
    threads: Vec<LockThread>,
}

#[derive(Deserialize)]
struct LockThread {
    tid: u32,
    waits: Vec<Stretch>,
    holds: Vec<Stretch>,
    sleeps: Vec<Sleep>,
}

/// Name of the lock, its holder, and four readings of the clock.
#[derive(Deserialize)]
struct Stretch(String, Option<u32>, [u64; 4]);

/// Holder of the lock, and the least and greatest possible duration.
#[derive(Deserialize)]
struct Sleep(u32, u64, u64);

fn assert_locks(activity: &Activity, kind: &str, expected: &[Stretch], tid: u32) -> Vec<bool> {
    let spans = activity.spans_of(tid, &[kind]);
    let names = |(name, holder): (&String, Option<u32>)| (name.clone(), holder);
    let found: Vec<_> = spans.iter().map(|span| names((&span.name, span.holder_tid))).collect();
    let known: Vec<_> = expected.iter().map(|Stretch(name, holder, _)| names((name, *holder))).collect();
    assert_eq!(found, known, "{kind} of {tid}");
    let is_exact = |(span, Stretch(name, _, at)): (&&Span, &Stretch)| {
        let lock = &activity.locks[span.lock.expect("the lock is known")];
        assert_eq!((lock.name.as_deref(), span.open), (Some(name.as_str()), false));
        is_exact(span.duration_ns, bounds(*at), TOLERANCE_NS, kind)
    };
    spans.iter().zip(expected).map(is_exact).collect()
}

#[test]
fn lock_waits_and_holds_are_those_of_the_victim() {
    let (expected, outcome): (Locks, _) = traced("locks", &[], &["--span", "probes"]);
    let activity = outcome.activity();
    let mut exact = Vec::new();
    for thread in &expected.threads {
        exact.extend(assert_locks(&activity, "lock_wait", &thread.waits, thread.tid));
        // A hold has no holder, because the thread itself holds the lock.
        let holds: Vec<_> = thread.holds.iter().map(|Stretch(name, _, at)| Stretch(name.clone(), None, *at)).collect();
        exact.extend(assert_locks(&activity, "lock_hold", &holds, thread.tid));
    }
    assert_mostly(&exact);
    let spans = activity.spans.iter();
    let other: Vec<_> = spans.filter(|span| !["lock_wait", "lock_hold"].contains(&span.kind.as_str())).collect();
    assert!(other.is_empty(), "{other:?}");
    let count = |lock: &str, of: fn(&LockThread) -> &Vec<Stretch>| {
        let all = expected.threads.iter().flat_map(of);
        all.filter(|Stretch(name, ..)| name == lock).count() as u64
    };
    for (name, address, most_waiters) in
        [("table", &expected.table, expected.most_waiters), ("index", &expected.index, 1)]
    {
        let locks: Vec<_> = activity.locks.iter().filter(|lock| lock.name.as_deref() == Some(name)).collect();
        let [lock] = locks[..] else { panic!("{locks:?}") };
        assert_eq!((&*lock.address, lock.most_waiters), (address.as_str(), most_waiters), "{name}");
        assert_eq!(
            (lock.waits, lock.holds),
            (count(name, |thread| &thread.waits), count(name, |thread| &thread.holds))
        );
        let lengths = |kind: &str| {
            let of_lock = activity.spans.iter().filter(move |span| span.kind == kind && span.name == name);
            of_lock.map(|span| span.duration_ns).collect::<Vec<_>>()
        };
        let (waits, holds) = (lengths("lock_wait"), lengths("lock_hold"));
        assert_eq!((lock.wait_ns, Some(lock.longest_wait_ns)), (waits.iter().sum(), waits.iter().max().copied()));
        assert_eq!((lock.hold_ns, Some(lock.longest_hold_ns)), (holds.iter().sum(), holds.iter().max().copied()));
    }
}

#[test]
fn futex_waits_have_the_holder_and_the_stack_of_the_victim() {
    let (expected, outcome): (Locks, _) = traced("locks", &[], &["--min-wait", "1us"]);
    let activity = outcome.activity();
    let is_table = |lock: Option<usize>| lock.is_some_and(|lock| activity.locks[lock].address == expected.table);
    let mut exact = Vec::new();
    for thread in &expected.threads {
        let spans = activity.spans_of(thread.tid, &["futex_wait"]);
        let spans: Vec<_> = spans.into_iter().filter(|span| is_table(span.lock)).collect();
        let found: Vec<_> = spans.iter().map(|span| span.holder_tid).collect();
        let holders: Vec<_> = thread.sleeps.iter().map(|Sleep(holder, ..)| Some(*holder)).collect();
        assert_eq!(found, holders, "thread {}", thread.tid);
        for (span, Sleep(_, least, most)) in spans.iter().zip(&thread.sleeps) {
            assert!((*least..=*most).contains(&span.duration_ns), "{span:?} is not within {least}..={most}");
            exact.push(most - span.duration_ns <= TOLERANCE_NS.max(most / 100));
            let stack = span.stack.as_ref().expect("each wait has a stack");
            let of_victim: Vec<_> = stack
                .iter()
                .filter(|name| ["take", "contend", "run", "hold_for_all"].contains(&name.as_str()))
                .collect();
            assert_eq!(of_victim, ["take", "contend", "run"], "{stack:?}");
        }
    }
    assert_mostly(&exact);
    let table: Vec<_> = activity.locks.iter().filter(|lock| lock.address == expected.table).collect();
    let [table] = table[..] else { panic!("{table:?}") };
    assert_eq!((table.waits, table.most_waiters), (exact.len() as u64, expected.most_waiters));
}

#[test]
fn waits_for_a_mutex_have_the_thread_that_released_it() {
    let (expected, outcome): (Locks, _) = traced("locks", &[], &["--min-wait", "1us"]);
    let activity = outcome.activity();
    let holds_of = |thread: &LockThread| {
        let of_table = thread.holds.iter().filter(|Stretch(name, ..)| name == "table");
        of_table.map(|Stretch(_, _, at)| (at[0], thread.tid)).collect::<Vec<_>>()
    };
    let mut holds: Vec<_> = expected.threads.iter().flat_map(holds_of).collect();
    holds.sort_unstable();
    for thread in &expected.threads {
        let is_table = |span: &&&Span| span.lock.is_some_and(|lock| activity.locks[lock].address == expected.table);
        let spans = activity.spans_of(thread.tid, &["futex_wait"]);
        let found: Vec<_> = spans.iter().filter(is_table).map(|span| span.waker_tid).collect();
        // A wait has the same index as the hold after it. The thread of the previous hold has released the mutex.
        let slept = thread.waits.iter().zip(&thread.holds).filter(|(Stretch(_, holder, _), _)| holder.is_some());
        let wakers: Vec<_> = slept
            .map(|(_, Stretch(_, _, at))| {
                let hold = holds.binary_search(&(at[0], thread.tid)).expect("it is a hold of the table");
                Some(holds[hold - 1].1)
            })
            .collect();
        assert_eq!((found, thread.sleeps.len()), (wakers.clone(), wakers.len()), "thread {}", thread.tid);
    }
}

/// Threads of the victim `waits`, and the address of its mutex.
#[derive(Deserialize)]
struct Waits {
    main: u32,
    locker: u32,
    idler: u32,
    taker: u32,
    leaver: u32,
    table: String,
}

#[test]
fn waits_are_apart_by_their_use_with_the_thread_that_ended_them() {
    let scratch = Scratch::new();
    let text = scratch.join("out.txt");
    let option = format!("--output={}", text.display());
    let (expected, outcome): (Waits, _) = traced("waits", &[], &["--min-wait", "1us", &option]);
    let activity = outcome.activity();
    let waits = |tid: u32, class: &str| {
        let spans = activity.spans_of(tid, &["futex_wait"]).into_iter();
        let of_class = spans.filter(|span| span.lock.is_some_and(|lock| activity.locks[lock].class == class));
        of_class.map(|span| (span.holder_tid, span.waker_tid, span.open)).collect::<Vec<_>>()
    };
    let (main, leaver) = (Some(expected.main), Some(expected.leaver));
    assert_eq!(waits(expected.idler, "idle"), [(None, main, false)]);
    assert_eq!(waits(expected.taker, "idle"), [(None, main, false)]);
    assert_eq!(waits(expected.main, "join"), [(leaver, leaver, false)]);
    let is_table = |lock: &&Lock| lock.address == expected.table;
    let table = activity.locks.iter().find(is_table).expect("the mutex is a futex");
    assert_eq!((&*table.class, table.place.as_deref(), table.waits), ("lock", Some("waits:table"), 1));
    let of_table = |span: &&&Span| span.lock.is_some_and(|lock| activity.locks[lock].address == expected.table);
    let spans = activity.spans_of(expected.locker, &["futex_wait"]);
    let of_table: Vec<_> = spans.iter().filter(of_table).map(|span| (span.holder_tid, span.waker_tid)).collect();
    assert_eq!(of_table, [(main, main)]);
    let joins: Vec<_> = activity.locks.iter().filter(|lock| lock.class == "join").collect();
    assert!(matches!(joins[..], [join] if join.joined_tid == leaver), "{joins:?}");
    assert_eq!(activity.deadlocks, Vec::<Vec<u32>>::new());
    let text = fs::read_to_string(&text).expect("the report was written");
    for title in ["Locks by the time of waiting", "Waits for the exit of threads", "Idle waits, for condition"] {
        assert!(text.contains(title), "{title}: {text}");
    }
    assert!(text.contains("waited for waits:table, held by"), "{text}");
}

#[test]
fn short_futex_waits_are_left_out() {
    let (expected, outcome): (Locks, _) = traced("locks", &[], &["--min-wait", "19ms"]);
    let waits = outcome.activity().spans;
    assert!(waits.iter().all(|span| span.duration_ns >= 19_000_000), "{waits:?}");
    let sleeps: usize = expected.threads.iter().map(|thread| thread.sleeps.len()).sum();
    assert!(waits.len() >= sleeps, "{} of {sleeps}", waits.len());
    let (_, outcome): (Value, _) = traced("locks", &[], &["--min-wait", "100s"]);
    assert_eq!(outcome.activity().spans, []);
}

/// Asserts that the tasks and functions of each thread equal the victim's spans.
fn assert_spans(activity: &Activity, expected: &[SpanRecord], is_traced: impl Fn(&str) -> bool, has_cpu: bool) {
    let (mut exact, mut exact_cpu) = (Vec::new(), Vec::new());
    let (mut cpu_found, mut cpu_least, mut cpu_most) = (0, 0, 0);
    for SpanRecord { tid, spans } in expected {
        // Index of each span in `found_spans`; `None` if the span is not traced.
        let mut places: Vec<Option<usize>> = Vec::new();
        let mut next = 0;
        for span in spans {
            places.push(is_traced(&span.name).then_some(next));
            next += usize::from(is_traced(&span.name));
        }
        let place_of_parent = |mut parent: Option<usize>| {
            while let Some(index) = parent {
                if places[index].is_some() {
                    return places[index];
                }
                parent = spans[index].parent;
            }
            None
        };
        let known = spans.iter().filter(|span| is_traced(&span.name));
        let found_spans = activity.spans_of(*tid, &["task", "function"]);
        let shown = |(index, (found_span, parent)): (usize, (&&Span, Option<usize>))| {
            (
                index,
                found_span.kind.clone(),
                found_span.name.clone(),
                found_span.label.clone(),
                parent,
                found_span.allocated_bytes,
            )
        };
        let found: Vec<_> = found_spans.iter().zip(parents(&found_spans)).enumerate().map(shown).collect();
        let wanted: Vec<_> = known
            .clone()
            .enumerate()
            .map(|(index, span)| {
                let (kind, name, label) = (span.kind.clone(), span.name.clone(), span.label.clone());
                (index, kind, name, label, place_of_parent(span.parent), Some(span.bytes))
            })
            .collect();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "thread {tid}");
        }
        assert_eq!(found.len(), wanted.len(), "thread {tid}");
        for (found_span, span) in found_spans.iter().zip(known) {
            assert!(!found_span.open);
            exact.push(is_exact(found_span.duration_ns, bounds(span.at), CALL_TOLERANCE_NS, &span.name));
            if has_cpu && found_span.duration_ns > 1_000_000 {
                let cpu = found_span.cpu_ns.expect("the CPU time is known");
                let [least, most] = bounds(span.cpu);
                let is_within = |tolerance: u64| (least.saturating_sub(tolerance)..=most + tolerance).contains(&cpu);
                assert!(cpu <= found_span.duration_ns, "{span:?}: more CPU time than {found_span:?} took");
                exact_cpu.push(is_within(CPU_TOLERANCE_NS.max(most / 100)));
                (cpu_found, cpu_least, cpu_most) = (cpu_found + cpu, cpu_least + least, cpu_most + most);
            }
        }
    }
    assert_mostly(&exact);
    if has_cpu {
        assert!(exact_cpu.len() > 20, "{}", exact_cpu.len());
        assert_mostly(&exact_cpu);
        let tolerance = cpu_most * CPU_TOLERANCE_PERCENT / 100;
        let is_within = (cpu_least - tolerance..=cpu_most + tolerance).contains(&cpu_found);
        assert!(is_within, "CPU time of all found_spans: {cpu_found} ns, not {cpu_least} to {cpu_most}");
    }
}

#[test]
fn tasks_and_functions_are_those_of_the_victim() {
    let functions = ["outer", "inner(id=arg0)", "switched", "named(name=arg0)"];
    let mut options = spans("spans", &functions);
    options.push("--span=probes".into());
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (expected, outcome): (Vec<SpanRecord>, _) = traced("spans", &["6"], &options);
    let activity = outcome.activity();
    assert_spans(&activity, &expected, |_| true, true);
    let mut totals: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for span in expected.iter().flat_map(|thread| &thread.spans) {
        let sums = totals.entry((span.kind.clone(), span.name.clone())).or_default();
        *sums = (sums.0 + 1, sums.1 + span.bytes);
    }
    let found = activity
        .totals
        .iter()
        .map(|(key, sums)| (key.clone(), (sums.count, sums.allocated_bytes.expect("allocations are traced"))));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), totals);
}

#[test]
fn a_single_function_is_traced() {
    let options = spans("spans", &["inner(id=arg0)"]);
    let (expected, outcome): (Vec<SpanRecord>, _) = traced("spans", &["2"], &[&options[0]]);
    assert_spans(&outcome.activity(), &expected, |name| name == "inner", true);
}

#[test]
fn functions_left_by_longjmp_do_not_disturb_later_spans() {
    let options = spans("left", &["stays(id=arg0)", "leaves", "leaves_by_table"]);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (expected, outcome): (Vec<SpanRecord>, _) = traced("left", &[], &options);
    assert_left(&outcome.activity(), &expected);
    // No function that longjmp leaves is traced here, so nothing can disturb the spans of `stays`.
    let (expected, outcome): (Vec<SpanRecord>, _) = traced("left", &[], &options[..1]);
    assert_spans(&outcome.activity(), &expected, |name| name == "stays", false);
}

#[test]
fn functions_left_by_exceptions_do_not_disturb_later_spans() {
    let options = spans("thrown", &["stays(id=arg0)", "catches(id=arg0)", "throws"]);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (expected, outcome): (Vec<SpanRecord>, _) = traced("thrown", &[], &options);
    assert_left(&outcome.activity(), &expected);
}

/// Asserts that the spans of functions that end with jumps equal the spans of the victim `name`, and that their totals
/// have the victim's counts. The functions are named by a symbol, by a pattern, and by a part of a name.
fn assert_tail_calls(name: &str) -> BTreeMap<String, u64> {
    let options = spans(name, &["within", "to_*", "conditional", "by_method"]);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (expected, outcome): (Vec<SpanRecord>, _) = traced(name, &[], &options);
    let activity = outcome.activity();
    assert_spans(&activity, &expected, |_| true, false);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for span in expected.iter().flat_map(|thread| &thread.spans) {
        *counts.entry(span.name.clone()).or_default() += 1;
    }
    let totals = activity.totals.iter().map(|((_, name), sums)| (name.clone(), sums.count));
    assert_eq!(totals.collect::<BTreeMap<_, _>>(), counts);
    counts
}

#[test]
fn jumps_to_unknown_code_end_spans_with_a_name_of_their_own() {
    let counts = assert_tail_calls("tail_calls");
    let is_jump = |name: &&String| name.ends_with("[until its tail call]");
    assert_eq!((counts.len(), counts.keys().filter(is_jump).count()), (6, 3), "{counts:?}");
    assert_eq!((counts["within"], counts["conditional"]), (40, 20));
}

#[test]
fn spans_without_exceptions_last_until_the_return_to_the_caller() {
    let counts = assert_tail_calls("tail_calls.whole");
    assert_eq!(counts.values().collect::<Vec<_>>(), [&40; 4], "{counts:?}");
}

/// Asserts that the names and labels of all spans equal the victim's. Spans that end by a return must have the victim's
/// duration and parent too.
fn assert_left(activity: &Activity, expected: &[SpanRecord]) {
    assert_eq!(expected.len(), 1);
    let SpanRecord { tid, spans } = &expected[0];
    let found_spans = activity.spans_of(*tid, &["function"]);
    let found: Vec<_> = found_spans.iter().map(|found_span| (&found_span.name, &found_span.label)).collect();
    let wanted: Vec<_> = spans.iter().map(|span| (&span.name, &span.label)).collect();
    assert_eq!(found.len(), wanted.len());
    assert_eq!(found, wanted);
    let parents = parents(&found_spans);
    let mut exact = Vec::new();
    for (index, (found_span, span)) in found_spans.iter().zip(spans).enumerate() {
        let has_left = |index: usize| spans[index].at[3] == 0;
        if !has_left(index) {
            assert!(!found_span.open, "{found_span:?}");
            exact.push(is_exact(found_span.duration_ns, bounds(span.at), CALL_TOLERANCE_NS, &span.name));
            // A function without a return may seem to continue.
            let mut parent = parents[index];
            while let Some(around) = parent.filter(|parent| has_left(*parent)) {
                parent = parents[around];
            }
            assert_eq!(parent, span.parent, "{index}: {found_span:?}");
        }
    }
    assert_mostly(&exact);
}

/// TID, name, value, and the times before and after the event.
#[derive(Deserialize)]
struct VictimEvent(u32, String, Value, u64, u64);

#[test]
fn events_have_the_values_and_the_order_of_the_victim() {
    let (expected, outcome): (Vec<VictimEvent>, _) = traced("events", &[], &["--span", "probes"]);
    let activity = outcome.activity();
    let found: Vec<_> = activity.events.iter().map(|event| (event.tid, &event.name, &event.value)).collect();
    let wanted: Vec<_> = expected.iter().map(|VictimEvent(tid, name, value, ..)| (*tid, name, value)).collect();
    assert_eq!(found, wanted);
    let (first, last) = (&expected[0], &expected[expected.len() - 1]);
    let between = activity.events[expected.len() - 1].at_ns - activity.events[0].at_ns;
    let _ = is_exact(between, bounds([first.3, first.4, last.3, last.4]), TOLERANCE_NS, "the time of all events");
}

#[test]
fn calls_of_allocators_are_as_many_as_those_of_the_victim() {
    let run = |least: &str| {
        let (expected, outcome): (BTreeMap<String, (u64, u64)>, _) =
            traced("call_counts", &[], &["--allocator-latency", least]);
        let activity = outcome.activity();
        let counts: BTreeMap<_, _> = activity.calls.iter().map(|(name, calls)| (name.clone(), calls.count)).collect();
        let wanted: BTreeMap<_, _> = expected.iter().map(|(name, (calls, _))| (name.clone(), *calls)).collect();
        assert_eq!(counts, wanted, "{least}");
        for (name, calls) in &activity.calls {
            assert_eq!(calls.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), calls.count, "{name}");
        }
        (expected, activity)
    };
    let (expected, all) = run("1ns");
    for (name, (calls, bytes)) in expected {
        let spans: Vec<_> =
            all.spans.iter().filter(|span| span.kind == "allocator_call" && span.name == name).collect();
        let sizes = spans.iter().map(|span| span.label.as_u64().unwrap_or_default());
        assert_eq!((spans.len() as u64, sizes.fold(0, u64::wrapping_add)), (calls, bytes), "{name}");
        let mut histogram: BTreeMap<u64, u64> = BTreeMap::new();
        for span in &spans {
            *histogram
                .entry(span.duration_ns.checked_ilog2().filter(|log2| *log2 > 0).map_or(0, |log2| 1 << log2))
                .or_default() += 1;
        }
        let found = &all.calls[&name];
        assert_eq!(
            found.histogram.iter().map(|bucket| (bucket.from_ns, bucket.count)).collect::<BTreeMap<_, _>>(),
            histogram
        );
        assert_eq!(found.time_ns, spans.iter().map(|span| span.duration_ns).sum::<u64>(), "{name}");
    }
    let (_, none) = run("100s");
    assert_eq!(none.spans, []);
}

/// TID, name, and four times: before the start, first and last in the thread, and after its exit.
#[derive(Deserialize)]
struct Life(u32, String, [u64; 4]);

#[test]
fn starts_and_exits_are_those_of_the_threads_of_the_victim() {
    let (expected, outcome): (Vec<Life>, _) = traced("thread_lives", &[], &["--span", "probes"]);
    let mut activity = outcome.activity();
    assert_eq!(activity.events.len(), expected.len());
    activity.threads.sort_by_key(|thread| thread.start_ns);
    let found: Vec<_> = activity.threads.iter().map(|thread| (thread.tid, &*thread.name, &*thread.process)).collect();
    let wanted: Vec<_> = expected.iter().map(|Life(tid, name, _)| (*tid, name.as_str(), "thread_lives")).collect();
    assert_eq!(found, wanted);
    for (thread, Life(_, name, at)) in activity.threads.iter().zip(&expected) {
        let (start, exit) = thread.start_ns.zip(thread.exit_ns).expect("it started and exited");
        let _ = is_exact(exit - start, bounds(*at), TOLERANCE_NS, name);
    }
}

#[test]
fn thread_ends_at_its_exec_in_place_of_the_leader() {
    let options = spans("thread_exec", &["replace"]);
    let (tid, outcome): (u32, _) = traced("thread_exec", &[], &[&options[0]]);
    let activity = outcome.activity();
    let thread = activity.threads.iter().find(|thread| thread.tid == tid).expect("the thread has a span");
    let exit = thread.exit_ns.expect("the thread has ended");
    let spans = activity.spans_of(tid, &["function"]);
    let [replace] = spans[..] else { panic!("{spans:?}") };
    assert_eq!((replace.open, replace.end_lost, replace.begin_ns + replace.duration_ns), (false, false, exit));
}

#[test]
fn a_run_without_spans_says_so() {
    let scratch = Scratch::new();
    let text = scratch.join("out.txt");
    let option = format!("--output={}", text.display());
    let mut unused = spans("call_counts", &["abandon"]);
    unused.push(option);
    let (_, outcome): (Value, _) = traced("call_counts", &[], &[&unused[0], &unused[1]]);
    assert_eq!(outcome.activity().spans, []);
    let text = fs::read_to_string(&text).expect("the report was written");
    assert!(text.contains("Activity of threads: no task, span or wait was recorded."), "{text}");
}

#[derive(Deserialize)]
struct Deadlocked {
    tid: u32,
    futex: String,
}

#[test]
fn deadlocked_threads_wait_for_each_other_until_the_end() {
    let mut victim = victim::start("deadlock");
    let scratch = Scratch::new();
    let text = scratch.join("out.txt");
    let option = format!("--output={}", text.display());
    // Neither of the two waits begins or ends during the trace.
    let tracer = Trace::victim(&victim).options(&["--min-wait", "1ms", &option]).start();
    victim.process().write_line("");
    let [first, second]: [Deadlocked; 2] = victim.read_json();
    let outcome = tracer.stop();
    let activity = outcome.activity();
    for (waiter, holder) in [(&first, &second), (&second, &first)] {
        let spans = activity.spans_of(waiter.tid, &["futex_wait"]);
        let [wait] = spans[..] else { panic!("{spans:?}") };
        assert_eq!((wait.begin_ns, wait.open, wait.holder_tid), (0, true, Some(holder.tid)));
        let lock = &activity.locks[wait.lock.expect("the lock is known")];
        assert_eq!((&*lock.address, lock.waits, lock.wait_ns), (waiter.futex.as_str(), 1, wait.duration_ns));
    }
    let cycles = activity.deadlocks.iter().map(|cycle| cycle.iter().map(|&span| activity.spans[span as usize].tid));
    let cycles: Vec<Vec<u32>> = cycles.map(Iterator::collect).collect();
    let (one, other) = (first.tid.min(second.tid), first.tid.max(second.tid));
    assert_eq!(cycles, [[one, other]]);
    let text = fs::read_to_string(&text).expect("the report was written").replace('\n', " ");
    let thread = |tid: u32| format!("deadlock ({tid})");
    let sentence = format!(
        "Deadlock: {} waits for deadlock:mutexes, held by {}, which waits for deadlock:mutexes, held by {}.",
        thread(one),
        thread(other),
        thread(one)
    );
    assert!(text.contains(&sentence), "{sentence}: {text}");
    victim.finish();
}

/// Traces batches of nested tasks. The ring is too small for the first batch, which runs while memtrace is suspended. Returns the
/// number and the longest duration of the tasks with each name, the activity and the text report.
fn traced_with_losses(batches: u32) -> (BTreeMap<String, (u64, u64)>, Activity, String) {
    /// Number of records that fit into the ring. Each has a header of 8 bytes.
    const FIT: usize = (8 << 20) / (size_of::<ActivityRecord>() + 8);
    /// Exit code of a trace with losses.
    const LOST: i32 = 20;
    // A request has four steps.
    let requests = (FIT / 4 + 1000).to_string();
    let mut victim = victim::start_with("nested_tasks", &[&requests]);
    let scratch = Scratch::new();
    let text = scratch.join("out.txt");
    let option = format!("--output={}", text.display());
    let tracer = Trace::victim(&victim).options(&["--span", "probes", &option]).start();
    tracer.suspend();
    victim.process().write_line("");
    let mut expected = victim.read_json();
    tracer.resume();
    for _ in 1..batches {
        victim.process().write_line("");
        expected = victim.read_json();
    }
    let outcome = tracer.stop();
    victim.finish();
    let text = fs::read_to_string(&text).expect("the report was written");
    (expected, outcome.activity_with_code(LOST), text)
}

/// Asserts that no task is open, and that none is longer than the longest one of the victim with its name. Returns the number of
/// tasks with lost ends.
fn assert_no_longer(activity: &Activity, expected: &BTreeMap<String, (u64, u64)>) -> u64 {
    for span in &activity.spans {
        let (_, longest) = expected[&span.name];
        assert!(!span.open && span.duration_ns <= longest, "at most {longest} ns: {span:?}");
    }
    let lost = activity.spans.iter().filter(|span| span.end_lost).count() as u64;
    assert_eq!((activity.left_out, activity.totals.values().map(|sums| sums.lost_ends).sum::<u64>()), (0, lost));
    lost
}

#[test]
fn tasks_with_lost_ends_are_no_longer_than_they_were() {
    let (expected, activity, text) = traced_with_losses(1);
    let lost_ends = assert_no_longer(&activity, &expected);
    let begun: u64 = expected.values().map(|(count, _)| count).sum();
    let found: u64 = activity.totals.values().map(|sums| sums.count).sum();
    let missing: u64 = activity.totals.values().map(|sums| sums.missing).sum();
    assert_eq!(found + missing, begun);
    // The first records arrive, and all others are lost. The end of a task is lost with its begin, or alone.
    assert_eq!(2 * missing + lost_ends, activity.losses["ring_full_activity"]);
    assert!(missing > 0 && lost_ends > 0, "{missing} begins and {lost_ends} ends");
    let text = text.replace('\n', " ").replace(',', "");
    let missing = format!("missing because of lost records: task ({missing})");
    for sentence in ["last record of its thread before the loss", &missing] {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
}

#[test]
fn records_after_a_loss_end_no_task_from_before() {
    let (expected, activity, _) = traced_with_losses(3);
    assert!(assert_no_longer(&activity, &expected) > 0);
    let begun: u64 = expected.values().map(|(count, _)| count).sum();
    assert_eq!(activity.totals.values().map(|sums| sums.count + sums.missing).sum::<u64>(), begun);
}
