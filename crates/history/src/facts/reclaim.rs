//! Reclaim of the machine and memory of cgroups, as facts of a history.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_model::{
    Bytes, CgroupId, KernelThread, MachineReclaim, MemcgMemory, Nanoseconds, PerSecond, PressureTime, ReclaimActivity,
    ReclaimKind, VmCounters,
};

use super::row::{duration, number, text};
use crate::interval::{Fact, FactValue};

/// Topic of the machine's counters. An item is the name of a counter, alone (`scanned`) or after a kind of reclaim
/// (`direct.scanned`).
pub(super) const MACHINE: &str = "reclaim";
/// Topic of kernel threads. Items are numbered. The text has the kind of reclaim, the number of runs, their time in
/// nanoseconds, the numbers of scanned and reclaimed pages, and the name of the thread, separated by spaces.
pub(super) const THREAD: &str = "reclaim_thread";
/// Topic of missing tracepoints. An item is the name of a tracepoint.
pub(super) const MISSING: &str = "missing_tracepoint";
/// Topic of cgroups. An item is the ID of a cgroup and the name of a value: `4711.limit_bytes`.
pub(super) const CGROUP: &str = "reclaim_cgroup";

/// Facts of one topic.
type Topic = BTreeMap<String, FactValue>;

/// Returns the facts of the machine.
pub(super) fn of_machine(machine: &MachineReclaim) -> Vec<Fact> {
    let MachineReclaim { efforts, threads, counters, seconds, pressure, missing } = machine;
    let mut facts = Vec::new();
    for (kind, activity) in efforts {
        let item = |name| format!("{}.{name}", kind.name());
        facts.extend(numbers_of(activity).into_iter().map(|(name, value)| number(MACHINE, item(name), value)));
    }
    for (index, KernelThread { name, work, effort }) in threads.iter().enumerate() {
        let ReclaimActivity { times, time, scanned, reclaimed, .. } = effort;
        let line = format!("{} {times} {} {scanned} {reclaimed} {name}", work.name(), time.0);
        facts.push(text(THREAD, format!("{index:04}"), &line));
    }
    let VmCounters {
        scanned,
        machine_reclaim,
        reclaimed,
        refaults,
        swapped_in,
        swapped_out,
        major_faults,
        oom_kills,
        kswapd_runs,
    } = *counters;
    let counters = [
        ("scanned", scanned),
        ("machine_reclaim", machine_reclaim),
        ("reclaimed", reclaimed),
        ("refaults", refaults),
        ("swapped_in", swapped_in),
        ("swapped_out", swapped_out),
        ("major_faults", major_faults),
        ("oom_kills", oom_kills),
        ("kswapd_runs", kswapd_runs),
    ];
    facts.extend(counters.into_iter().map(|(name, value)| number(MACHINE, name, value)));
    facts.extend(of_seconds(*seconds).into_iter().map(|(name, value)| number(MACHINE, name, value)));
    facts.extend(of_pressure(*pressure).into_iter().map(|(name, time)| duration(MACHINE, name, time)));
    facts.extend(missing.iter().map(|name| text(MISSING, name.clone(), "")));
    facts
}

/// Returns the reclaim of the machine that [`of_machine`] has recorded.
pub(super) fn machine(numbers: &Topic, threads: Option<&Topic>, missing: Option<&Topic>) -> MachineReclaim {
    let value = |item: &str| number_in(numbers, item);
    let mut efforts = BTreeMap::new();
    for &kind in ReclaimKind::ALL {
        let of_kind = |name| value(&format!("{}.{name}", kind.name()));
        if of_kind("times").is_some() {
            let number = |name| of_kind(name).unwrap_or_default();
            let activity = ReclaimActivity {
                times: number("times"),
                time: Nanoseconds(number("time_ns")),
                scanned: number("scanned"),
                scanned_active: number("scanned_active"),
                taken: number("taken"),
                reclaimed: number("reclaimed"),
                deactivated: number("deactivated"),
                written: number("written"),
            };
            efforts.insert(kind, activity);
        }
    }
    let number = |name| value(name).unwrap_or_default();
    MachineReclaim {
        efforts,
        threads: threads.into_iter().flatten().filter_map(|(_, line)| thread(line)).collect(),
        counters: VmCounters {
            scanned: number("scanned"),
            machine_reclaim: number("machine_reclaim"),
            reclaimed: number("reclaimed"),
            refaults: number("refaults"),
            swapped_in: number("swapped_in"),
            swapped_out: number("swapped_out"),
            major_faults: number("major_faults"),
            oom_kills: number("oom_kills"),
            kswapd_runs: number("kswapd_runs"),
        },
        seconds: seconds(value),
        pressure: pressure(value),
        missing: missing.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
    }
}

/// Returns the facts of a cgroup.
pub(super) fn of_cgroup(id: CgroupId, path: &str, memory: &MemcgMemory) -> Vec<Fact> {
    let MemcgMemory { version_2, limit, high, current, watched, refaults, pressure, seconds } = *memory;
    let item = |name: &str| format!("{}.{name}", id.number());
    let sizes = [("limit_bytes", limit), ("high_bytes", high), ("usage_bytes", current)];
    let sizes = sizes.into_iter().filter_map(|(name, size)| Some((name, size?.0)));
    let numbers = sizes
        .chain([("version_2", u64::from(version_2))])
        .chain(refaults.map(|refaults| ("refaults", refaults)))
        .chain(of_seconds(seconds));
    let mut facts = vec![text(CGROUP, item("path"), path), duration(CGROUP, item("watched_ns"), watched)];
    facts.extend(numbers.map(|(name, value)| number(CGROUP, item(name), value)));
    facts.extend(of_pressure(pressure).into_iter().map(|(name, time)| duration(CGROUP, item(name), time)));
    facts
}

/// Returns the cgroups that [`of_cgroup`] has recorded. Damaged rows are left out.
pub(super) fn cgroups(topic: &Topic) -> BTreeMap<CgroupId, (PathBuf, MemcgMemory)> {
    let mut by_id: BTreeMap<CgroupId, Topic> = BTreeMap::new();
    for (item, value) in topic {
        let id = item.split_once('.').and_then(|(id, name)| Some((CgroupId::of(id.parse().ok()?)?, name)));
        if let Some((id, name)) = id {
            by_id.entry(id).or_default().insert(name.to_owned(), value.clone());
        }
    }
    let group = |(id, numbers): (CgroupId, Topic)| {
        let Some(FactValue::Text(path)) = numbers.get("path") else { return None };
        let value = |item: &str| number_in(&numbers, item);
        let memory = MemcgMemory {
            version_2: value("version_2") == Some(1),
            limit: value("limit_bytes").map(Bytes),
            high: value("high_bytes").map(Bytes),
            current: value("usage_bytes").map(Bytes),
            watched: Duration::from_nanos(value("watched_ns").unwrap_or_default()),
            refaults: value("refaults"),
            pressure: pressure(value),
            seconds: seconds(value),
        };
        Some((id, (PathBuf::from(path), memory)))
    };
    by_id.into_iter().filter_map(group).collect()
}

fn numbers_of(activity: &ReclaimActivity) -> [(&'static str, u64); 8] {
    let ReclaimActivity { times, time, scanned, scanned_active, taken, reclaimed, deactivated, written } = *activity;
    [
        ("times", times),
        ("time_ns", time.0),
        ("scanned", scanned),
        ("scanned_active", scanned_active),
        ("taken", taken),
        ("reclaimed", reclaimed),
        ("deactivated", deactivated),
        ("written", written),
    ]
}

fn thread(line: &FactValue) -> Option<KernelThread> {
    let FactValue::Text(line) = line else { return None };
    let mut parts = line.splitn(6, ' ');
    let kind = parts.next()?;
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (times, time, scanned, reclaimed) = (number()?, number()?, number()?, number()?);
    let effort = ReclaimActivity { times, time: Nanoseconds(time), scanned, reclaimed, ..ReclaimActivity::default() };
    let work = ReclaimKind::ALL.iter().copied().find(|known| known.name() == kind)?;
    Some(KernelThread { name: parts.next()?.to_owned(), work, effort })
}

const fn of_seconds(seconds: PerSecond) -> [(&'static str, u64); 3] {
    let PerSecond { all, scanning, paging } = seconds;
    [("seconds", all), ("scanning_seconds", scanning), ("paging_seconds", paging)]
}

fn seconds(value: impl Fn(&str) -> Option<u64>) -> PerSecond {
    let [all, scanning, paging] = of_seconds(PerSecond::default()).map(|(name, _)| value(name).unwrap_or_default());
    PerSecond { all, scanning, paging }
}

fn of_pressure(pressure: Option<PressureTime>) -> Vec<(&'static str, Duration)> {
    let some = pressure.map(|pressure| ("pressure_some_ns", pressure.some));
    let full = pressure.and_then(|pressure| Some(("pressure_full_ns", pressure.full?)));
    some.into_iter().chain(full).collect()
}

fn pressure(value: impl Fn(&str) -> Option<u64>) -> Option<PressureTime> {
    let time = |name| value(name).map(Duration::from_nanos);
    Some(PressureTime { some: time("pressure_some_ns")?, full: time("pressure_full_ns") })
}

fn number_in(topic: &Topic, item: &str) -> Option<u64> {
    match topic.get(item)? {
        FactValue::Number(number) => Some(*number),
        FactValue::Text(_) => None,
    }
}
