//! Converts stalls, reclaim activity, cgroups with stalls, and OOM kills to JSON.

use std::collections::BTreeMap;

use memtrace_json::{self as schema, Object};
use memtrace_model::{
    Assessment, CgroupId, KernelThread, MachineReclaim, MemcgMemory, MemcgProfile, OomKill, Order, PerSecond,
    PressureTime, Profile, ReclaimActivity, ReclaimKind, StallStats,
};

use super::objects::by_name;

/// Returns the stalls by kind.
pub(super) fn stalls(by_kind: &BTreeMap<ReclaimKind, StallStats>) -> Object<'static, schema::Stalls> {
    by_name(by_kind.iter().map(|(kind, stats)| (kind.name(), stalls_of_kind(stats))))
}

fn stalls_of_kind(stats: &StallStats) -> schema::Stalls {
    let latency = |(below_us, count)| schema::LatencyClass { below_us, count };
    schema::Stalls {
        count: stats.stalls.count,
        time_ns: stats.stalls.time.0,
        longest_ns: stats.longest.0,
        throttled_ns: stats.throttled.0,
        scanned_pages: stats.scanned,
        reclaimed_pages: stats.reclaimed,
        latencies: stats.latencies.iter().map(latency).collect(),
        orders: stats
            .orders
            .iter()
            .map(|(order, stalls)| schema::OrderStalls {
                order: order.map(Order::number),
                count: stalls.count,
                time_ns: stalls.time.0,
            })
            .collect(),
    }
}

pub(super) fn machine(machine: &MachineReclaim) -> schema::MachineReclaim<'_> {
    schema::MachineReclaim {
        efforts: by_name(machine.efforts.iter().map(|(kind, activity)| (kind.name(), effort(activity)))),
        kernel_threads: machine.threads.iter().map(kernel_thread).collect(),
        vmstat: schema::Vmstat {
            scanned_pages: machine.counters.scanned,
            reclaimed_pages: machine.counters.reclaimed,
            refaulted_pages: machine.counters.refaults,
            swapped_in_pages: machine.counters.swapped_in,
            swapped_out_pages: machine.counters.swapped_out,
            major_faults: machine.counters.major_faults,
            oom_kills: machine.counters.oom_kills,
        },
        seconds: machine.seconds.all,
        scanning_seconds: machine.seconds.scanning,
        paging_seconds: machine.seconds.paging,
        assessment: assessment(machine.seconds).into(),
        pressure: machine.pressure.map(pressure),
        missing_tracepoints: machine.missing.iter().map(Into::into).collect(),
    }
}

const fn assessment(seconds: PerSecond) -> &'static str {
    match seconds.assessment() {
        Assessment::TooShort => "too_short",
        Assessment::Quiet => "quiet",
        Assessment::Bursts => "bursts",
        Assessment::Near => "near",
        Assessment::Beyond => "beyond",
    }
}

fn pressure(pressure: PressureTime) -> schema::StallPressure {
    schema::StallPressure { some_s: pressure.some.as_secs_f64(), full_s: pressure.full.map(|full| full.as_secs_f64()) }
}

const fn effort(activity: &ReclaimActivity) -> schema::Effort {
    schema::Effort {
        times: activity.times,
        time_ns: activity.time.0,
        scanned_pages: activity.scanned,
        scanned_active_pages: activity.scanned_active,
        taken_pages: activity.taken,
        reclaimed_pages: activity.reclaimed,
        deactivated_pages: activity.deactivated,
        written_pages: activity.written,
    }
}

fn kernel_thread(thread: &KernelThread) -> schema::KernelThread<'_> {
    schema::KernelThread {
        name: thread.name.as_str().into(),
        work: thread.work.name().into(),
        times: thread.effort.times,
        time_ns: thread.effort.time.0,
        scanned_pages: thread.effort.scanned,
        reclaimed_pages: thread.effort.reclaimed,
    }
}

pub(super) fn cgroup(group: &MemcgProfile) -> schema::Cgroup<'_> {
    schema::Cgroup {
        id: group.id.map(CgroupId::number),
        path: group.path.as_deref().map(Into::into),
        stalls: stalls(&group.stalls),
        memory: group.memory.as_ref().map(cgroup_memory),
    }
}

fn cgroup_memory(memory: &MemcgMemory) -> schema::CgroupMemory<'static> {
    schema::CgroupMemory {
        version: if memory.version_2 { 2 } else { 1 },
        limit_bytes: memory.limit.map(|limit| limit.0),
        high_bytes: memory.high.map(|high| high.0),
        current_bytes: memory.current.map(|current| current.0),
        watched_s: memory.watched.as_secs_f64(),
        refaulted_pages: memory.refaults,
        pressure: memory.pressure.map(pressure),
        seconds: memory.seconds.all,
        scanning_seconds: memory.seconds.scanning,
        paging_seconds: memory.refaults.map(|_| memory.seconds.paging),
        assessment: assessment(memory.seconds).into(),
    }
}

pub(super) fn oom_kill<'a>(profile: &'a Profile, kill: &'a OomKill) -> schema::OomKill<'a> {
    let path = |id: Option<CgroupId>| profile.run.killed_cgroups.get(&id?).map(Into::into);
    schema::OomKill {
        pid: kill.victim.pid.0,
        comm: kill.comm.as_str().into(),
        by_pid: kill.by.0,
        by_comm: kill.by_comm.as_str().into(),
        cgroup: path(kill.group),
        full_cgroup: path(kill.full),
        at_s: kill.at.since_start().as_secs_f64(),
    }
}
