mod simulation;

use std::time::Duration;

use memtrace_model::{
    LossReason, MachineValue, OtherThreads, ProcessValue, ProcessValues, SourceState, TaskState, ThreadIdentity,
    ThreadUsage, Tid, UsageCounter,
};

use super::*;
use UsageCounter::{AllocBytes, UserTime};

/// Time of the sampling of `second`, in nanoseconds since boot.
const fn boot_ns(second: u64) -> u64 {
    1_000_000 + second * 1000
}

/// Usage with this CPU time in user mode and these allocated bytes.
fn usage(user: u64, alloc: u64) -> ThreadUsage {
    ThreadUsage::of(&[(UserTime, user), (AllocBytes, alloc)])
}

fn thread(pid: u32, tid: u32, start_ns: u64, usage: ThreadUsage) -> ThreadSample {
    ThreadSample {
        thread: ThreadIdentity { pid: Pid(pid), tid: Tid(tid), start_ns },
        comm: format!("t{tid}").into(),
        state: TaskState::Sleeping,
        usage,
        has_heap: true,
    }
}

fn process(pid: u32, start_ns: u64) -> ProcessSample {
    ProcessSample {
        pid: Pid(pid),
        start_ns,
        comm: format!("p{pid}").into(),
        source: SourceState::default(),
        ended: ThreadUsage::default(),
        started: 0,
        exited: 0,
        values: ProcessValues::default(),
        exits: Vec::new(),
        has_exited: false,
        oom_killed: false,
    }
}

fn ended(process: ProcessSample, exited: u64, ended: ThreadUsage) -> ProcessSample {
    ProcessSample { exited, ended, ..process }
}

fn with_exits(process: ProcessSample, exits: Vec<ThreadSample>) -> ProcessSample {
    let dead = |thread| ThreadSample { state: TaskState::Dead, ..thread };
    ProcessSample { exits: exits.into_iter().map(dead).collect(), ..process }
}

fn sampling(second: u64, processes: Vec<ProcessSample>, threads: Vec<ThreadSample>) -> Sampling {
    Sampling { at: Duration::from_secs(second), boot_ns: boot_ns(second), threads, processes, ..Sampling::default() }
}

/// Rows of a process: thread, CPU time in user mode, and allocated bytes.
fn rows(process: &ProcessInterval) -> Vec<(u32, u64, u64)> {
    let numbers = |usage: &ThreadUsage| (usage.get(UserTime), usage.get(AllocBytes));
    let row = |(tid, (user, alloc)): (u32, (u64, u64))| (tid, user, alloc);
    process.threads.iter().map(|row| (row.thread.tid.0, numbers(&row.usage))).map(row).collect()
}

fn only_process(interval: Option<ThreadsInterval>) -> ProcessInterval {
    let mut processes = interval.unwrap().processes;
    assert_eq!(processes.len(), 1);
    processes.remove(0)
}

#[test]
fn usage_before_the_baseline_is_in_no_interval() {
    let mut builder = IntervalBuilder::new(10);
    let at = |second, user, alloc| sampling(second, vec![process(1, 5)], vec![thread(1, 1, 5, usage(user, alloc))]);
    assert_eq!(builder.observe(at(0, 500, 70)), None);
    let first = only_process(builder.observe(at(1, 530, 75)));
    assert_eq!((first.usage, rows(&first)), (usage(30, 5), vec![(1, 30, 5)]));
    let second = only_process(builder.observe(at(2, 530, 75)));
    assert_eq!((second.usage, rows(&second)), (usage(0, 0), vec![(1, 0, 0)]));
}

#[test]
fn thread_that_starts_later_counts_from_0() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    builder.observe(sampling(0, vec![process(1, 5)], vec![main(500)]));
    let started = ProcessSample { started: 1, ..process(1, 5) };
    let threads = vec![thread(1, 2, boot_ns(0) + 7, usage(40, 3)), main(501)];
    let interval = only_process(builder.observe(sampling(1, vec![started], threads)));
    assert_eq!((interval.usage, interval.started), (usage(41, 3), 1));
    assert_eq!(rows(&interval), [(1, 1, 0), (2, 40, 3)]);
}

#[test]
fn reused_thread_id_is_another_thread() {
    let mut builder = IntervalBuilder::new(10);
    builder.observe(sampling(0, vec![process(1, 5)], vec![thread(1, 2, 5, usage(500, 0))]));
    let replaced = ended(process(1, 5), 1, usage(520, 0));
    let threads = vec![thread(1, 2, boot_ns(0) + 1, usage(30, 0))];
    let interval = only_process(builder.observe(sampling(1, vec![replaced], threads)));
    assert_eq!((interval.usage, rows(&interval)), (usage(50, 0), vec![(2, 30, 0)]));
    assert_eq!(interval.ended, OtherThreads { count: 1, usage: usage(20, 0) });
}

#[test]
fn thread_between_running_and_ended_is_not_lost() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    let baseline = vec![main(100), thread(1, 2, 5, usage(1000, 0))];
    builder.observe(sampling(0, vec![process(1, 5)], baseline));
    // Thread 2 exits after `ended` was read and before the threads are listed.
    let first = only_process(builder.observe(sampling(1, vec![process(1, 5)], vec![main(130)])));
    assert_eq!((first.usage, rows(&first)), (usage(30, 0), vec![(1, 30, 0)]));
    assert_eq!(first.ended, OtherThreads::default());
    let late = ended(process(1, 5), 1, usage(1007, 0));
    let second = only_process(builder.observe(sampling(2, vec![late], vec![main(131)])));
    assert_eq!((second.usage, rows(&second)), (usage(8, 0), vec![(1, 1, 0)]));
    assert_eq!(second.ended, OtherThreads { count: 1, usage: usage(7, 0) });
}

/// IDs of the threads that ended in an interval, and the other ended threads.
fn ends(process: &ProcessInterval) -> (Vec<u32>, OtherThreads) {
    let listed = process.threads.iter().filter(|row| row.has_ended());
    (listed.map(|row| row.thread.tid.0).collect(), process.ended)
}

#[test]
fn exited_thread_has_a_last_row() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    builder.observe(sampling(0, vec![process(1, 5)], vec![main(100), thread(1, 2, 5, usage(1000, 70))]));
    // The third thread lived for less than an interval.
    let exits = vec![thread(1, 2, 5, usage(1040, 75)), thread(1, 3, boot_ns(0) + 1, usage(3, 9))];
    let exited = with_exits(ended(process(1, 5), 2, usage(1043, 84)), exits);
    let first = only_process(builder.observe(sampling(1, vec![exited.clone()], vec![main(101)])));
    assert_eq!((first.usage, rows(&first)), (usage(44, 14), vec![(1, 1, 0), (2, 40, 5), (3, 3, 9)]));
    assert_eq!(ends(&first), (vec![2, 3], OtherThreads::default()));
    assert_eq!(first.ended_threads(), 2);
    let idle = with_exits(exited, Vec::new());
    let second = only_process(builder.observe(sampling(2, vec![idle], vec![main(101)])));
    assert_eq!((second.usage, rows(&second), second.ended_threads()), (usage(0, 0), vec![(1, 0, 0)], 0));
}

#[test]
fn exit_that_is_read_after_the_sums_is_counted_once() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    builder.observe(sampling(0, vec![process(1, 5)], vec![main(100), thread(1, 2, 5, usage(1000, 0))]));
    let counted = ended(process(1, 5), 1, usage(1007, 0));
    let first = only_process(builder.observe(sampling(1, vec![counted.clone()], vec![main(130)])));
    assert_eq!((first.usage, rows(&first)), (usage(37, 0), vec![(1, 30, 0)]));
    assert_eq!(ends(&first), (vec![], OtherThreads { count: 1, usage: usage(7, 0) }));
    let late = with_exits(counted, vec![thread(1, 2, 5, usage(1007, 0))]);
    let second = only_process(builder.observe(sampling(2, vec![late], vec![main(131)])));
    assert_eq!((second.usage, rows(&second), second.ended_threads()), (usage(1, 0), vec![(1, 1, 0)], 0));
}

#[test]
fn exit_during_a_sampling_has_its_growth_in_the_next_one() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    builder.observe(sampling(0, vec![process(1, 5)], vec![main(100), thread(1, 2, 5, usage(1000, 0))]));
    // Another thread ends in the second interval, without a record.
    builder.observe(sampling(1, vec![process(1, 5)], vec![main(100)]));
    let late = with_exits(ended(process(1, 5), 2, usage(1507, 0)), vec![thread(1, 2, 5, usage(1007, 0))]);
    let second = only_process(builder.observe(sampling(2, vec![late], vec![main(100)])));
    assert_eq!((second.usage, rows(&second)), (usage(507, 0), vec![(1, 0, 0), (2, 7, 0)]));
    assert_eq!(ends(&second), (vec![2], OtherThreads { count: 1, usage: usage(500, 0) }));
}

#[test]
fn ended_threads_share_the_limit_of_rows() {
    let mut builder = IntervalBuilder::new(3);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    builder.observe(sampling(0, vec![process(1, 5)], vec![main(0), thread(1, 2, 5, usage(10, 0))]));
    let short = |tid| thread(1, tid, boot_ns(0) + u64::from(tid), usage(100, 0));
    let exits = vec![short(7), short(8), thread(1, 2, 5, usage(11, 0))];
    let exited = with_exits(ended(process(1, 5), 3, usage(211, 0)), exits);
    let first = only_process(builder.observe(sampling(1, vec![exited], vec![main(1)])));
    assert_eq!((first.usage, rows(&first)), (usage(202, 0), vec![(1, 1, 0), (2, 1, 0), (7, 100, 0)]));
    assert_eq!(ends(&first), (vec![2, 7], OtherThreads { count: 1, usage: usage(100, 0) }));
    // Their slots are free again.
    let threads = vec![main(2), thread(1, 3, boot_ns(1), usage(1, 0)), thread(1, 4, boot_ns(1), usage(1, 0))];
    let second = ended(process(1, 5), 3, usage(211, 0));
    let second = only_process(builder.observe(sampling(2, vec![second], threads)));
    assert_eq!((rows(&second).len(), second.others.count), (3, 0));
}

#[test]
fn exited_process_has_the_rows_of_its_threads() {
    let mut builder = IntervalBuilder::new(10);
    builder.observe(sampling(0, vec![], vec![]));
    let start = boot_ns(0) + 3;
    let exits = vec![thread(7, 8, start + 1, usage(4, 500)), thread(7, 7, start, usage(1, 10))];
    let dead = with_exits(ended(process(7, start), 2, usage(5, 510)), exits);
    let last = ProcessSample { has_exited: true, started: 1, ..dead };
    let interval = only_process(builder.observe(sampling(1, vec![last], vec![])));
    assert_eq!((interval.usage, rows(&interval)), (usage(5, 510), vec![(7, 1, 10), (8, 4, 500)]));
    assert_eq!(ends(&interval), (vec![7, 8], OtherThreads::default()));
}

#[test]
fn exits_of_a_process_selected_later_have_no_earlier_usage() {
    let mut builder = IntervalBuilder::new(10);
    builder.observe(sampling(0, vec![], vec![]));
    let selected = with_exits(ended(process(7, 5), 3, usage(900, 60)), vec![thread(7, 8, 6, usage(500, 40))]);
    let interval = only_process(builder.observe(sampling(1, vec![selected], vec![thread(7, 7, 5, usage(80, 7))])));
    assert_eq!((interval.usage, rows(&interval)), (usage(0, 67), vec![(7, 0, 7), (8, 0, 40)]));
    assert_eq!(ends(&interval), (vec![8], OtherThreads { count: 0, usage: usage(0, 20) }));
}

#[test]
fn first_thread_that_another_replaces_by_exec_has_one_row() {
    let mut builder = IntervalBuilder::new(10);
    let baseline = vec![thread(1, 1, 5, usage(100, 0)), thread(1, 2, 6, usage(30, 0))];
    builder.observe(sampling(0, vec![process(1, 5)], baseline));
    let exited = with_exits(ended(process(1, 5), 1, usage(101, 0)), vec![thread(1, 1, 5, usage(101, 0))]);
    let interval = only_process(builder.observe(sampling(1, vec![exited], vec![thread(1, 1, 5, usage(32, 0))])));
    assert_eq!((interval.usage, rows(&interval)), (usage(3, 0), vec![(1, 0, 0)]));
    assert_eq!(ends(&interval), (vec![], OtherThreads { count: 1, usage: usage(3, 0) }));
}

#[test]
fn heap_counters_without_a_base_at_the_exit_are_in_no_interval() {
    let mut builder = IntervalBuilder::new(10);
    let unreadable = ThreadSample { has_heap: false, ..thread(1, 2, 5, usage(10, 0)) };
    builder.observe(sampling(0, vec![process(1, 5)], vec![unreadable]));
    let exit = vec![thread(1, 2, 5, usage(11, 5000))];
    let exited = with_exits(ended(process(1, 5), 1, usage(11, 5000)), exit);
    let first = only_process(builder.observe(sampling(1, vec![exited], vec![])));
    assert_eq!((first.usage, rows(&first), first.source.is_stale), (usage(1, 0), vec![(2, 1, 0)], true));
    let second = ended(process(1, 5), 1, usage(11, 5000));
    assert_eq!(only_process(builder.observe(sampling(2, vec![second], vec![]))).usage, usage(0, 0));
}

#[test]
fn child_counts_from_its_start() {
    let mut builder = IntervalBuilder::new(10);
    builder.observe(sampling(0, vec![], vec![]));
    let child = ProcessSample { started: 2, ..ended(process(7, boot_ns(0) + 3), 1, usage(10, 1)) };
    let threads = vec![thread(7, 7, boot_ns(0) + 3, usage(40, 3))];
    let interval = only_process(builder.observe(sampling(2, vec![child], threads)));
    assert_eq!((interval.usage, rows(&interval)), (usage(50, 4), vec![(7, 40, 3)]));
    assert_eq!((interval.started, interval.ended), (2, OtherThreads { count: 1, usage: usage(10, 1) }));
}

#[test]
fn process_selected_later_has_its_own_baseline() {
    let mut builder = IntervalBuilder::new(10);
    builder.observe(sampling(0, vec![], vec![]));
    let at = |second, started, threads| {
        let selected = ProcessSample { started, ..ended(process(7, 5), 1, usage(9000, 2)) };
        sampling(second, vec![selected], threads)
    };
    // The counters of the heap start when the probes are attached.
    let first = only_process(builder.observe(at(1, 4, vec![thread(7, 7, 5, usage(400, 30))])));
    assert_eq!((first.usage, rows(&first)), (usage(0, 32), vec![(7, 0, 30)]));
    assert_eq!((first.started, first.ended.count), (0, 0));
    let threads = vec![thread(7, 7, 5, usage(450, 31)), thread(7, 8, boot_ns(1), usage(3, 1))];
    let second = only_process(builder.observe(at(2, 5, threads)));
    assert_eq!((second.usage, rows(&second)), (usage(53, 2), vec![(7, 50, 1), (8, 3, 1)]));
    assert_eq!(second.started, 1);
}

#[test]
fn threads_beyond_the_limit_are_summed() {
    let mut builder = IntervalBuilder::new(2);
    let threads = |users: &[(u32, u64)]| users.iter().map(|&(tid, user)| thread(1, tid, 5, usage(user, 0))).collect();
    let mut observe = |second, users, exits: (u64, u64)| {
        let process = ended(process(1, 5), exits.0, usage(exits.1, 0));
        builder.observe(sampling(second, vec![process], threads(users)))
    };
    observe(0, &[(1, 10), (2, 20), (3, 30), (4, 40)], (0, 0));
    let first = only_process(observe(1, &[(1, 11), (2, 22), (3, 33), (4, 44)], (0, 0)));
    assert_eq!((rows(&first), first.usage), (vec![(1, 1, 0), (2, 2, 0)], usage(10, 0)));
    assert_eq!(first.others, OtherThreads { count: 2, usage: usage(7, 0) });
    // Thread 1 exits. Thread 3 gets its slot for the intervals that follow.
    let second = only_process(observe(2, &[(2, 23), (3, 35), (4, 47)], (1, 12)));
    assert_eq!((rows(&second), second.others), (vec![(2, 1, 0)], OtherThreads { count: 2, usage: usage(5, 0) }));
    assert_eq!(second.ended, OtherThreads { count: 1, usage: usage(1, 0) });
    let third = only_process(observe(3, &[(2, 23), (3, 135), (4, 1047)], (1, 12)));
    assert_eq!(rows(&third), [(2, 0, 0), (3, 100, 0)]);
    assert_eq!(third.others, OtherThreads { count: 1, usage: usage(1000, 0) });
}

#[test]
fn limit_holds_over_all_processes() {
    let mut builder = IntervalBuilder::new(3);
    let at = |second, pids: &[u32]| {
        let threads = pids.iter().flat_map(|&pid| [0, 1].map(|more| thread(pid, pid + more, 5, usage(second, 0))));
        sampling(second, pids.iter().map(|&pid| process(pid, 5)).collect(), threads.collect())
    };
    builder.observe(at(0, &[10, 20, 30]));
    let shown = |interval: Option<ThreadsInterval>| {
        let count = |process: ProcessInterval| (process.threads.len(), process.others.count);
        interval.unwrap().processes.into_iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(shown(builder.observe(at(1, &[10, 20, 30]))), [(2, 0), (1, 1), (0, 2)]);
    // The slots of a process that is no longer monitored become free.
    assert_eq!(shown(builder.observe(at(2, &[20, 30]))), [(1, 1), (0, 2)]);
    assert_eq!(shown(builder.observe(at(3, &[20, 30]))), [(2, 0), (1, 1)]);
}

#[test]
fn limit_of_0_has_sums_only() {
    let mut builder = IntervalBuilder::new(0);
    let at = |second, user| sampling(second, vec![process(1, 5)], vec![thread(1, 1, 5, usage(user, 0))]);
    builder.observe(at(0, 10));
    let interval = only_process(builder.observe(at(1, 17)));
    assert_eq!((interval.usage, interval.others), (usage(7, 0), OtherThreads { count: 1, usage: usage(7, 0) }));
    assert_eq!(rows(&interval), []);
}

#[test]
fn thread_that_was_missing_once_is_not_counted_again() {
    let mut builder = IntervalBuilder::new(10);
    let main = |user| thread(1, 1, 5, usage(user, 0));
    let other = |user| thread(1, 2, 5, usage(user, 0));
    let mut observe = |second, threads| builder.observe(sampling(second, vec![process(1, 5)], threads));
    observe(0, vec![main(0), other(1000)]);
    observe(1, vec![main(1)]);
    let second = only_process(observe(2, vec![main(3), other(1004)]));
    assert_eq!((second.usage, rows(&second)), (usage(6, 0), vec![(1, 2, 0), (2, 4, 0)]));
    let third = only_process(observe(3, vec![main(3), other(1005)]));
    assert_eq!((third.usage, rows(&third)), (usage(1, 0), vec![(1, 0, 0), (2, 1, 0)]));
}

#[test]
fn heap_counters_that_cannot_be_read_remain() {
    let mut builder = IntervalBuilder::new(10);
    let at = |second, user, alloc, has_heap| {
        let thread = ThreadSample { has_heap, ..thread(1, 1, 5, usage(user, alloc)) };
        sampling(second, vec![process(1, 5)], vec![thread])
    };
    builder.observe(at(0, 0, 100, true));
    let first = only_process(builder.observe(at(1, 5, 0, false)));
    assert_eq!((first.usage, rows(&first)), (usage(5, 0), vec![(1, 5, 0)]));
    let second = only_process(builder.observe(at(2, 6, 130, true)));
    assert_eq!((second.usage, rows(&second)), (usage(1, 30), vec![(1, 1, 30)]));
}

#[test]
fn heap_counters_without_a_base_are_in_no_interval() {
    // With a limit of 1, the second thread has no row.
    for limit in [10, 1] {
        let mut builder = IntervalBuilder::new(limit);
        let mut observe = |second, has_heap, alloc| {
            let thread = |tid| ThreadSample { has_heap, ..thread(1, tid, 5, usage(second, alloc)) };
            builder.observe(sampling(second, vec![process(1, 5)], vec![thread(1), thread(2)]))
        };
        observe(0, false, 0);
        let first = only_process(observe(1, true, 3_020_000));
        assert_eq!((first.usage, first.source.is_stale), (usage(2, 0), true));
        assert_eq!(first.ended.usage, usage(0, 0));
        let second = only_process(observe(2, true, 3_022_000));
        assert_eq!((second.usage, second.source.is_stale), (usage(2, 4000), false));
        assert_eq!(rows(&second)[0], (1, 1, 2000));
    }
}

#[test]
fn heap_counters_of_one_unreadable_thread_without_a_row_are_in_no_interval() {
    let mut builder = IntervalBuilder::new(1);
    let mut observe = |second, readable: u32, alloc| {
        let thread = |tid| {
            let alloc = if tid <= readable { alloc } else { 0 };
            ThreadSample { has_heap: tid <= readable, ..thread(1, tid, 5, usage(second, alloc)) }
        };
        builder.observe(sampling(second, vec![process(1, 5)], vec![thread(1), thread(2), thread(3)]))
    };
    observe(0, 0, 0);
    assert_eq!(only_process(observe(1, 2, 3_020_000)).usage, usage(3, 0));
    // Only the row of the first thread is certain.
    assert_eq!(only_process(observe(2, 3, 3_022_000)).usage, usage(3, 2000));
    assert_eq!(only_process(observe(3, 3, 3_024_000)).usage, usage(3, 6000));
}

#[test]
fn exec_by_another_thread_replaces_the_first_thread() {
    let mut builder = IntervalBuilder::new(10);
    let baseline = vec![thread(1, 1, 5, usage(100, 0)), thread(1, 2, 6, usage(30, 0))];
    builder.observe(sampling(0, vec![process(1, 5)], baseline));
    // Thread 2 becomes thread 1 with the start of thread 1, but with its own counters.
    let mut observe = |second, user| {
        let process = ended(process(1, 5), 1, usage(101, 0));
        only_process(builder.observe(sampling(second, vec![process], vec![thread(1, 1, 5, usage(user, 0))])))
    };
    assert_eq!(observe(1, 32).usage, usage(3, 0));
    assert_eq!(observe(2, 132).usage, usage(100, 0));
    assert_eq!(observe(3, 133).usage, usage(1, 0));
}

#[test]
fn exited_process_has_a_last_interval_with_events() {
    let mut builder = IntervalBuilder::new(1);
    let at = |second, oom_killed| {
        let process = ProcessSample { oom_killed, ..process(1, 5) };
        sampling(second, vec![process], vec![thread(1, 1, 5, usage(10, 0))])
    };
    builder.observe(at(0, false));
    let event = |second, kind| ThreadsEvent { at: Duration::from_secs(second), kind };
    let killed = builder.observe(at(1, true)).unwrap();
    assert_eq!(killed.events, [event(1, ThreadsEventKind::OomKill(Pid(1)))]);
    assert_eq!(builder.observe(at(2, true)).unwrap().events, [], "a kill is reported once");
    let exited = ProcessSample { has_exited: true, oom_killed: true, ..ended(process(1, 5), 1, usage(17, 0)) };
    // Another process has the pid already.
    let heir = process(1, boot_ns(2) + 1);
    let threads = vec![thread(1, 1, boot_ns(2) + 1, usage(3, 0))];
    let interval = builder.observe(sampling(3, vec![heir, exited], threads)).unwrap();
    assert_eq!(interval.events, [event(3, ThreadsEventKind::Exit(Pid(1)))]);
    let [last, first] = &interval.processes[..] else { panic!("{interval:?}") };
    assert!(last.has_exited && !first.has_exited);
    assert_eq!((last.usage, last.ended.count, rows(last)), (usage(7, 0), 1, vec![]));
    assert_eq!((first.usage, rows(first)), (usage(3, 0), vec![(1, 3, 0)]));
}

#[test]
fn process_between_two_samplings_has_one_interval() {
    let mut builder = IntervalBuilder::new(1);
    builder.observe(sampling(0, vec![], vec![]));
    let process = ProcessSample { has_exited: true, oom_killed: true, ..process(9, boot_ns(0)) };
    let interval = builder.observe(sampling(1, vec![ended(process, 1, usage(70, 8))], vec![])).unwrap();
    let kinds: Vec<_> = interval.events.iter().map(|event| event.kind.clone()).collect();
    assert_eq!(kinds, [ThreadsEventKind::OomKill(Pid(9)), ThreadsEventKind::Exit(Pid(9))]);
    assert_eq!(interval.processes[0].usage, usage(70, 8));
    assert_eq!(builder.observe(sampling(2, vec![], vec![])).unwrap().processes, []);
}

#[test]
fn interval_has_differences_of_the_machine() {
    let at = |second, idle, losses| {
        let mut sampling = sampling(second, vec![], vec![]);
        sampling.machine.set(MachineValue::IdleTime, Some(idle));
        sampling.losses.add(LossReason::BadRecord, losses);
        sampling
    };
    let mut builder = IntervalBuilder::new(1);
    builder.observe(at(1, 100, 3));
    let interval = builder.observe(at(4, 170, 5)).unwrap();
    assert_eq!(interval.span, Duration::from_secs(1)..Duration::from_secs(4));
    assert_eq!(interval.machine.get(MachineValue::IdleTime), Some(70));
    assert_eq!(interval.losses.get(LossReason::BadRecord), 2);
}

#[test]
fn values_are_those_at_the_end() {
    let at = |second, rss| {
        let mut process = process(1, 5);
        process.values.set(ProcessValue::RssAnon, rss);
        sampling(second, vec![process], vec![])
    };
    let mut builder = IntervalBuilder::new(1);
    builder.observe(at(0, Some(70)));
    assert_eq!(only_process(builder.observe(at(1, Some(40)))).values.get(ProcessValue::RssAnon), Some(40));
    assert_eq!(only_process(builder.observe(at(2, None))).values.get(ProcessValue::RssAnon), None);
}
