//! Fields of stalls, reclaim activity and OOM kills.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{
    Assessment, CgroupId, KernelThread, Latencies, MachineReclaim, OomKill, Order, PerSecond, PressureTime, Profile,
    ReclaimActivity, ReclaimKind, StallStats, StallTotals, VmCounters,
};

/// Stalls by kind.
pub(super) type Stalls = BTreeMap<&'static str, StallFields>;

pub(super) fn stalls(stalls: &BTreeMap<ReclaimKind, StallStats>) -> Stalls {
    stalls.iter().map(|(kind, stats)| (kind.name(), StallFields::from(stats))).collect()
}

#[derive(Serialize)]
pub(super) struct StallFields {
    count: u64,
    time_ns: u64,
    longest_ns: u64,
    throttled_ns: u64,
    scanned_pages: u64,
    reclaimed_pages: u64,
    latencies: Vec<LatencyFields>,
    orders: Vec<OrderFields>,
}

impl From<&StallStats> for StallFields {
    fn from(stats: &StallStats) -> Self {
        Self {
            count: stats.stalls.count,
            time_ns: stats.stalls.time.0,
            longest_ns: stats.longest.0,
            throttled_ns: stats.throttled.0,
            scanned_pages: stats.scanned,
            reclaimed_pages: stats.reclaimed,
            latencies: latencies(&stats.latencies),
            orders: stats.orders.iter().map(OrderFields::from).collect(),
        }
    }
}

#[derive(Serialize)]
struct LatencyFields {
    below_us: Option<u64>,
    count: u64,
}

#[derive(Serialize)]
struct OrderFields {
    order: Option<u32>,
    count: u64,
    time_ns: u64,
}

impl From<(Option<Order>, StallTotals)> for OrderFields {
    fn from((order, stalls): (Option<Order>, StallTotals)) -> Self {
        Self { order: order.map(Order::number), count: stalls.count, time_ns: stalls.time.0 }
    }
}

fn latencies(latencies: &Latencies) -> Vec<LatencyFields> {
    latencies.iter().map(|(below_us, count)| LatencyFields { below_us, count }).collect()
}

/// Reclaim activity of the machine.
#[derive(Serialize)]
pub(super) struct Machine<'a> {
    efforts: BTreeMap<&'static str, EffortFields>,
    kernel_threads: Vec<ThreadFields<'a>>,
    vmstat: VmFields,
    seconds: u64,
    scanning_seconds: u64,
    paging_seconds: u64,
    assessment: &'static str,
    pressure: Option<PressureFields>,
    missing_tracepoints: &'a [String],
}

impl<'a> From<&'a MachineReclaim> for Machine<'a> {
    fn from(machine: &'a MachineReclaim) -> Self {
        Self {
            efforts: machine.efforts.iter().map(|(kind, effort)| (kind.name(), effort.into())).collect(),
            kernel_threads: machine.threads.iter().map(ThreadFields::from).collect(),
            vmstat: machine.counters.into(),
            seconds: machine.seconds.all,
            scanning_seconds: machine.seconds.scanning,
            paging_seconds: machine.seconds.paging,
            assessment: assessment(machine.seconds),
            pressure: machine.pressure.map(PressureFields::from),
            missing_tracepoints: &machine.missing,
        }
    }
}

pub(super) const fn assessment(seconds: PerSecond) -> &'static str {
    match seconds.assessment() {
        Assessment::TooShort => "too_short",
        Assessment::Quiet => "quiet",
        Assessment::Bursts => "bursts",
        Assessment::Near => "near",
        Assessment::Beyond => "beyond",
    }
}

#[derive(Serialize)]
pub(super) struct PressureFields {
    some_s: f64,
    full_s: Option<f64>,
}

impl From<PressureTime> for PressureFields {
    fn from(pressure: PressureTime) -> Self {
        Self { some_s: pressure.some.as_secs_f64(), full_s: pressure.full.map(|full| full.as_secs_f64()) }
    }
}

#[derive(Serialize)]
struct EffortFields {
    times: u64,
    time_ns: u64,
    scanned_pages: u64,
    scanned_active_pages: u64,
    taken_pages: u64,
    reclaimed_pages: u64,
    deactivated_pages: u64,
    written_pages: u64,
}

impl From<&ReclaimActivity> for EffortFields {
    fn from(effort: &ReclaimActivity) -> Self {
        Self {
            times: effort.times,
            time_ns: effort.time.0,
            scanned_pages: effort.scanned,
            scanned_active_pages: effort.scanned_active,
            taken_pages: effort.taken,
            reclaimed_pages: effort.reclaimed,
            deactivated_pages: effort.deactivated,
            written_pages: effort.written,
        }
    }
}

#[derive(Serialize)]
struct ThreadFields<'a> {
    name: &'a str,
    work: &'static str,
    times: u64,
    time_ns: u64,
    scanned_pages: u64,
    reclaimed_pages: u64,
}

impl<'a> From<&'a KernelThread> for ThreadFields<'a> {
    fn from(thread: &'a KernelThread) -> Self {
        Self {
            name: &thread.name,
            work: thread.work.name(),
            times: thread.effort.times,
            time_ns: thread.effort.time.0,
            scanned_pages: thread.effort.scanned,
            reclaimed_pages: thread.effort.reclaimed,
        }
    }
}

#[derive(Serialize)]
struct VmFields {
    scanned_pages: u64,
    reclaimed_pages: u64,
    refaulted_pages: u64,
    swapped_in_pages: u64,
    swapped_out_pages: u64,
    major_faults: u64,
    oom_kills: u64,
}

impl From<VmCounters> for VmFields {
    fn from(counters: VmCounters) -> Self {
        Self {
            scanned_pages: counters.scanned,
            reclaimed_pages: counters.reclaimed,
            refaulted_pages: counters.refaults,
            swapped_in_pages: counters.swapped_in,
            swapped_out_pages: counters.swapped_out,
            major_faults: counters.major_faults,
            oom_kills: counters.oom_kills,
        }
    }
}

/// An OOM kill.
#[derive(Serialize)]
pub(super) struct Kill<'a> {
    pid: u32,
    comm: &'a str,
    by_pid: u32,
    by_comm: &'a str,
    cgroup: Option<&'a str>,
    full_cgroup: Option<&'a str>,
    at_s: f64,
}

impl<'a> Kill<'a> {
    pub(super) fn new(profile: &'a Profile, kill: &'a OomKill) -> Self {
        let path = |id: Option<CgroupId>| profile.cgroup_paths.get(&id?).map(String::as_str);
        Self {
            pid: kill.victim.pid.0,
            comm: &kill.comm,
            by_pid: kill.by.0,
            by_comm: &kill.by_comm,
            cgroup: path(kill.group),
            full_cgroup: path(kill.full),
            at_s: kill.at.since_start().as_secs_f64(),
        }
    }
}
