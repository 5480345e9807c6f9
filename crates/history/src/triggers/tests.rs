use std::ops::Range;
use std::time::Duration;

use memtrace_model::{
    CgroupId, CounterSource, MachineValue, OtherThreads, Pid, ProcessInterval, ProcessValue, ProcessValues,
    SourceState, TaskState, ThreadIdentity, ThreadInterval, ThreadUsage, Tid, UsageCounter,
};

use super::*;

const MIB: u64 = 1 << 20;

fn triggers(conditions: &[&str]) -> Triggers {
    Triggers::new(conditions.iter().map(|text| text.parse().unwrap()).collect())
}

fn process(pid: u32, usage: &[(UsageCounter, u64)], rss: Option<u64>) -> ProcessInterval {
    let mut values = ProcessValues::default();
    for kind in [ProcessValue::RssAnon, ProcessValue::RssFile, ProcessValue::RssShmem] {
        values.set(kind, rss.map(|rss| if kind == ProcessValue::RssAnon { rss } else { 0 }));
    }
    ProcessInterval {
        pid: Pid(pid),
        start_ns: 5,
        comm: "redis".into(),
        source: SourceState { source: CounterSource::Bpf, is_stale: false },
        usage: ThreadUsage::of(usage),
        threads: Vec::new(),
        ended: OtherThreads::default(),
        others: OtherThreads::default(),
        started: 0,
        values,
        has_exited: false,
    }
}

fn thread(pid: u32, tid: u32, start_ns: u64, usage: &[(UsageCounter, u64)]) -> ThreadInterval {
    ThreadInterval {
        thread: ThreadIdentity { pid: Pid(pid), tid: Tid(tid), start_ns },
        comm: "worker\u{1b}".into(),
        state: TaskState::Running,
        usage: ThreadUsage::of(usage),
    }
}

/// The interval of a second.
fn second(second: u64, processes: Vec<ProcessInterval>) -> ThreadsInterval {
    ThreadsInterval { span: seconds(second..second + 1), processes, ..ThreadsInterval::default() }
}

fn seconds(span: Range<u64>) -> Range<Duration> {
    Duration::from_secs(span.start)..Duration::from_secs(span.end)
}

/// Returns the seconds when a condition on the RSS of a process fires.
fn firing_seconds(condition: &str, rss: impl IntoIterator<Item = Option<u64>>) -> Vec<u64> {
    let mut triggers = triggers(&[condition]);
    let intervals = rss.into_iter().zip(0..).map(|(rss, at)| second(at, vec![process(1, &[], rss)]));
    intervals.flat_map(|interval| triggers.observe(&interval, &[])).map(|firing| firing.at.as_secs() - 1).collect()
}

#[test]
fn condition_fires_when_it_becomes_true() {
    let rss = [10, 30, 40, 20, 30].map(Some);
    assert_eq!(firing_seconds("rss > 30", rss), [2]);
    assert_eq!(firing_seconds("rss >= 30", rss), [1]);
    assert_eq!(firing_seconds("rss > 5", rss), [0], "true from the start");
    assert_eq!(firing_seconds("rss > 40", rss), [0; 0]);
    assert_eq!(firing_seconds("rss < 30", rss), [0]);
    assert_eq!(firing_seconds("rss <= 9", rss), [0; 0]);
}

#[test]
fn condition_fires_again_after_a_minute_without_it() {
    let high_at = |high: &'static [u64], end| (0..end).map(|second| Some(if high.contains(&second) { 9 } else { 1 }));
    assert_eq!(firing_seconds("rss > 5", high_at(&[0, 60], 130)), [0], "59 s below the limit");
    assert_eq!(firing_seconds("rss > 5", high_at(&[0, 61], 130)), [0, 61]);
    assert_eq!(firing_seconds("rss > 5", high_at(&[0, 40, 80, 120, 181], 200)), [0, 181]);
}

#[test]
fn unknown_value_does_not_change_the_state() {
    let rss = [Some(9)].into_iter().chain([None; 100]).chain([Some(9), Some(1), Some(9)]);
    assert_eq!(firing_seconds("rss > 5", rss), [0]);
    let mut triggers = triggers(&["rss > 5", "descriptors > 5", "thread.cpu > 5%"]);
    triggers.observe(&second(0, vec![process(1, &[], None), process(2, &[], Some(1))]), &[]);
    assert_eq!(triggers.losses(), TriggerLosses { subjects_full: 0, values_unknown: 3 });
}

#[test]
fn long_interval_counts_as_time_below_the_limit() {
    let mut triggers = triggers(&["rss > 5"]);
    let mut fires = |span, rss| {
        let interval = ThreadsInterval { span: seconds(span), ..second(0, vec![process(1, &[], Some(rss))]) };
        !triggers.observe(&interval, &[]).is_empty()
    };
    assert_eq!(
        [fires(0..300, 9), fires(300..600, 1), fires(600..900, 9), fires(900..959, 1)],
        [true, false, true, false]
    );
    assert_eq!([fires(959..960, 9), fires(960..961, 9)], [false; 2]);
}

#[test]
fn rate_is_the_sum_of_the_last_period() {
    let mut triggers = triggers(&["net > 60MiB/min"]);
    let mut fired = Vec::new();
    for at in 0..200 {
        // The process gains 2 MiB a second, except from second 60 to 149.
        let allocated = if (60..150).contains(&at) { 0 } else { 3 * MIB };
        let freed = allocated / 3;
        let usage = [(UsageCounter::AllocBytes, allocated), (UsageCounter::FreeBytes, freed)];
        fired.extend(triggers.observe(&second(at, vec![process(1, &usage, None)]), &[]));
    }
    // The sum is 62 MiB in second 30. It does not exceed the limit from second 89 to 179.
    let shown: Vec<_> = fired.iter().map(|firing| (firing.at.as_secs(), firing.value.as_str())).collect();
    assert_eq!(shown, [(31, "62.00 MiB/min"), (181, "62.00 MiB/min")]);
}

#[test]
fn upper_bound_of_a_rate_needs_a_whole_period() {
    let mut triggers = triggers(&["alloc < 1MiB/min", "alloc >= 0/min"]);
    let mut fired = Vec::new();
    for at in 0..70 {
        let firings = triggers.observe(&second(at, vec![process(1, &[], None)]), &[]);
        fired.extend(firings.into_iter().map(|firing| (firing.condition, firing.at.as_secs())));
    }
    assert_eq!(fired, [(String::from("alloc >= 0/min"), 1), (String::from("alloc < 1MiB/min"), 60)]);
}

#[test]
fn sum_without_a_period_begins_with_the_monitor() {
    let mut triggers = triggers(&["alloc > 10MiB"]);
    let usage = [(UsageCounter::AllocBytes, MIB)];
    let fired: Vec<_> =
        (0..100).flat_map(|at| triggers.observe(&second(100 * at, vec![process(1, &usage, None)]), &[])).collect();
    let shown: Vec<_> = fired.iter().map(|firing| (firing.at.as_secs(), firing.value.as_str())).collect();
    assert_eq!(shown, [(1001, "11.00 MiB")]);
}

#[test]
fn shares_are_those_of_the_interval() {
    let mut triggers = triggers(&["cpu > 150%", "run_delay >= 25%", "thread.cpu > 50%"]);
    let mut busy =
        process(1, &[(UsageCounter::UserTime, 2_000_000_000), (UsageCounter::SystemTime, 1_200_000_000)], None);
    busy.usage.set(UsageCounter::RunDelay, 500_000_000);
    busy.threads = vec![thread(1, 1, 5, &[(UsageCounter::UserTime, 1_000_000_000)])];
    let interval = ThreadsInterval { span: seconds(3..5), ..second(3, vec![busy]) };
    let fired = triggers.observe(&interval, &[]);
    let shown: Vec<_> = fired.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["cpu > 150%: process 1 (redis), 160.0%", "run_delay >= 25%: process 1 (redis), 25.0%"]);
}

#[test]
fn firing_describes_its_subject() {
    let mut triggers = triggers(&["thread.alloc > 1k/s", "cgroup.memory > 1G", "pressure > 20%", "machine.cpu > 50%"]);
    let mut owner = process(4711, &[], None);
    owner.threads = vec![thread(4711, 4712, 6, &[(UsageCounter::AllocBytes, 2048)]), thread(4711, 4711, 5, &[])];
    let mut interval = second(7, vec![owner]);
    interval.machine.set(MachineValue::MemoryPressure, Some(250_000_000));
    interval.machine.set(MachineValue::UserTime, Some(3));
    interval.machine.set(MachineValue::IdleTime, Some(1));
    let cgroup =
        CgroupObservation { id: CgroupId::of(9).unwrap(), path: "/a\nb".into(), memory: Some(3 << 30), pressure: None };
    let firing = |condition: &str, subject: &str, pid, value: &str, limit: &str| Firing {
        condition: condition.into(),
        subject: subject.into(),
        pid,
        value: value.into(),
        limit: limit.into(),
        at: Duration::from_secs(8),
    };
    let expected = [
        firing("thread.alloc > 1KiB/s", "thread 4711/4712 (worker\u{fffd})", Some(Pid(4711)), "2.00 KiB/s", "1KiB/s"),
        firing("memory > 1GiB", "cgroup /a\u{fffd}b", None, "3.00 GiB", "1GiB"),
        firing("pressure > 20%", "the machine", None, "25.0%", "20%"),
        firing("machine.cpu > 50%", "the machine", None, "75.0%", "50%"),
    ];
    assert_eq!(triggers.observe(&interval, &[cgroup]), expected);
}

#[test]
fn each_field_reads_its_own_value() {
    let values = [
        ("net > -1", "1.99 KiB"),
        ("alloc > 0", "2.93 KiB"),
        ("free > 0", "960 B"),
        ("major_faults > 0", "7"),
        ("switches > 0", "11"),
        ("read > 0", "12 B"),
        ("write > 0", "13 B"),
        ("rss > 0", "14 B"),
        ("swap > 0", "15 B"),
        ("descriptors > 0", "16"),
        ("threads > 0", "17"),
        ("cpu_pressure > 0%", "1.8%"),
        ("io_pressure > 0%", "1.9%"),
        ("available > 0", "20 B"),
        ("cgroup.pressure > 0%", "2.1%"),
    ];
    let mut process = process(
        1,
        &[
            (UsageCounter::AllocBytes, 3000),
            (UsageCounter::FreeBytes, 960),
            (UsageCounter::MajorFaults, 7),
            (UsageCounter::MinorFaults, 70),
            (UsageCounter::VoluntarySwitches, 1),
            (UsageCounter::InvoluntarySwitches, 10),
            (UsageCounter::ReadBytes, 12),
            (UsageCounter::WriteBytes, 13),
        ],
        Some(14),
    );
    process.values.set(ProcessValue::Swap, Some(15));
    process.values.set(ProcessValue::Descriptors, Some(16));
    process.values.set(ProcessValue::Threads, Some(17));
    let mut interval = second(0, vec![process]);
    interval.machine.set(MachineValue::CpuPressure, Some(18_000_000));
    interval.machine.set(MachineValue::IoPressure, Some(19_000_000));
    interval.machine.set(MachineValue::MemoryAvailable, Some(20));
    let cgroup =
        CgroupObservation { id: CgroupId::of(9).unwrap(), path: "/".into(), memory: None, pressure: Some(21_000_000) };
    let mut triggers = triggers(&values.map(|(condition, _)| condition));
    let shown: Vec<_> = triggers.observe(&interval, &[cgroup]).into_iter().map(|firing| firing.value).collect();
    assert_eq!(shown, values.map(|(_, value)| value));
}

#[test]
fn heap_of_an_untraced_process_is_unknown() {
    let mut triggers = triggers(&["net >= 0", "cpu >= 0%"]);
    let untraced = ProcessInterval { source: SourceState::default(), ..process(1, &[], None) };
    let fired = triggers.observe(&second(0, vec![untraced]), &[]);
    assert_eq!(fired.iter().map(|firing| firing.condition.as_str()).collect::<Vec<_>>(), ["cpu >= 0%"]);
    assert_eq!(triggers.losses().values_unknown, 1);
}

#[test]
fn reused_id_is_another_subject() {
    let mut triggers = triggers(&["thread.alloc > 1"]);
    let mut count = |at, start_ns| {
        let threads = vec![thread(1, 2, start_ns, &[(UsageCounter::AllocBytes, 2)])];
        triggers.observe(&second(at, vec![ProcessInterval { threads, ..process(1, &[], None) }]), &[]).len()
    };
    assert_eq!([count(0, 5), count(1, 5), count(2, 7), count(3, 7)], [1, 0, 1, 0]);
}

fn states(triggers: &Triggers) -> usize {
    triggers.watches.iter().map(Watch::states).sum()
}

#[test]
fn subjects_that_ended_or_are_idle_have_no_state() {
    let conditions = ["alloc > 1GiB/min", "rss > 5"].map(|text| text.parse().unwrap());
    let mut triggers = Triggers::with_limit(conditions.into(), 200);
    let used = |pid, rss| process(pid, &[(UsageCounter::AllocBytes, 2)], Some(rss));
    triggers.observe(&second(0, (1..=100).map(|pid| used(pid, 9)).collect()), &[]);
    assert_eq!(states(&triggers), 200);
    triggers.observe(&second(1, (1..=10).map(|pid| used(pid, 1)).collect()), &[]);
    assert_eq!(states(&triggers), 20);
    for at in 2..62 {
        triggers.observe(&second(at, (1..=10).map(|pid| process(pid, &[], Some(1))).collect()), &[]);
    }
    assert_eq!(states(&triggers), 0);
    triggers.observe(&second(62, (101..=200).map(|pid| used(pid, 9)).collect()), &[]);
    assert_eq!(states(&triggers), 200);
    assert_eq!(triggers.losses(), TriggerLosses::default());
}

#[test]
fn subjects_beyond_the_limit_are_counted() {
    let mut triggers = Triggers::with_limit(vec!["rss > 5".parse().unwrap(), "swap > 5".parse().unwrap()], 3);
    let all = |at, rss: [u64; 4]| {
        second(at, rss.into_iter().zip(1..).map(|(rss, pid)| process(pid, &[], Some(rss))).collect())
    };
    let pids = |firings: Vec<Firing>| firings.into_iter().map(|firing| firing.pid.unwrap().0).collect::<Vec<_>>();
    assert_eq!(pids(triggers.observe(&all(0, [9, 9, 1, 9]), &[])), [1, 2, 4]);
    assert_eq!(pids(triggers.observe(&all(1, [9, 9, 9, 9]), &[])), [0; 0]);
    assert_eq!((triggers.losses().subjects_full, states(&triggers)), (1, 3));
    // The first process ends. Its room is free in the next interval.
    let without_first = |at| second(at, (2..=4).map(|pid| process(pid, &[], Some(9))).collect());
    assert_eq!(pids(triggers.observe(&without_first(2), &[])), [0; 0]);
    assert_eq!(pids(triggers.observe(&without_first(3), &[])), [3]);
    assert_eq!(triggers.losses().subjects_full, 2);
}

#[test]
fn empty_interval_has_no_shares() {
    let mut triggers = triggers(&["cpu >= 0%", "net >= 0/min"]);
    let empty = ThreadsInterval { span: seconds(3..3), ..second(3, vec![process(1, &[], None)]) };
    let fired = triggers.observe(&empty, &[]);
    assert_eq!(fired.iter().map(|firing| firing.condition.as_str()).collect::<Vec<_>>(), ["net >= 0/min"]);
}
