//! Converts processes, groups of ended processes, and processes that are not traced to JSON.

use std::time::Duration;

use memtrace_json::{self as schema};
use memtrace_model::{
    EndedGroup, EndedRun, ImageEnd, PatchedProcess, ProcessMemory, ProcessProfile, Profile, Sampler, Untraced,
    UntracedProcess, UntracedReason,
};

use super::objects::{by_name, in_order};
use super::{numbers, reclaim};
use crate::estimate::{SampledPart, SampledProcesses};
use crate::format;
use crate::kernel_reported::KernelReported;
use crate::metrics::MetricView;
use crate::samplers;

/// A process that starts within this time after the start of the trace counts as a process that ran before the trace.
const START: Duration = Duration::from_millis(50);

/// Returns the processes in the order of the profile.
pub(super) fn all(view: MetricView<'_>) -> impl Iterator<Item = schema::Process<'_>> {
    let profile = view.profile();
    let sampled = SampledProcesses::of(profile);
    profile.processes.iter().enumerate().map(move |(index, one)| process(view, one, &sampled.get(index)))
}

fn process<'a>(view: MetricView<'_>, process: &'a ProcessProfile, sampled: &SampledPart) -> schema::Process<'a> {
    let profile = view.profile();
    let class = profile.run.class;
    let known = KernelReported::of(process);
    let user = process.user.as_ref();
    let cgroup = process.cgroup.as_deref();
    let container = cgroup.and_then(|cgroup| cgroup.container.as_ref());
    let rates =
        format::rates(process.total.alloc(), profile.run.duration).filter(|_| !has_older_blocks(profile, process));
    let [peak_bytes_low, peak_bytes_high] = numbers::ends_of_peak(profile, process.peak, sampled);
    schema::Process {
        pid: pid(process),
        comm: process.comm.raw().into(),
        exe: process.exe.as_ref().map(|path| path.to_string_lossy()),
        ended: process.ended.map(|end| end_name(end).into()),
        ended_s: process.ended_after.map(|time| time.as_secs_f64()),
        group: process.group.as_ref().map(|group| group_runs(profile, group, process.ended.is_some())),
        totals: numbers::of(view, process.total, sampled, Some(known)),
        unmatched_frees: process.unmatched_frees,
        inherited_frees: process.inherited_frees,
        repeated_frees: process.repeated_frees,
        unmatched_samples: process.unmatched_samples,
        samplers: profile.run.samplers.of(process.pid).map(sampler).collect(),
        shares_memory_of: process.shares_memory_of.map(|main| main.0),
        demotion: demotion(profile, process),
        discarded: numbers::blocks(process.total.discarded()),
        peak_bytes: process.peak.map(|peak| peak.0),
        peak_bytes_low,
        peak_bytes_high,
        uid: user.map(|user| user.uid),
        user: user.and_then(|user| user.name.as_deref()).map(Into::into),
        cgroup: cgroup.map(|cgroup| cgroup.path.as_str().into()),
        unit: cgroup.and_then(|cgroup| cgroup.unit.as_deref()).map(Into::into),
        container: container.map(|container| container.id.as_str().into()),
        container_runtime: container.and_then(|container| container.runtime).map(Into::into),
        pod: cgroup.and_then(|cgroup| cgroup.pod.as_deref()).map(Into::into),
        threads: process.threads,
        kernel: class.counts_pages().then(|| numbers::kernel_counts(known)),
        peak_resident_bytes: process.peak_rss.map(|bytes| bytes.0),
        resident: process.resident.as_ref().map(|residence| numbers::resident(profile, residence)),
        resident_unknown: process.resident_is_unknown.then(|| format::RESIDENT_UNKNOWN.into()),
        rss: process.rss.map(|rss| schema::ResidentSet {
            start_bytes: rss.start.map(|start| start.0),
            end_bytes: rss.end.0,
            shared_bytes: rss.shared.0,
            runtime: rss.runtime.map(|runtime| runtime.name().into()),
        }),
        stalls: class.counts_stalls().then(|| reclaim::stalls(&process.stalls)),
        traced_s: process.traced.as_secs_f64(),
        allocs_per_s: rates.map(|(blocks, _)| blocks),
        alloc_bytes_per_s: rates.map(|(_, bytes)| bytes),
    }
}

/// Returns true if the allocated blocks of a process can be older than the trace: they are from the profile that the runtime of Go
/// keeps since the start of the process, and the process may have run before the trace.
fn has_older_blocks(profile: &Profile, process: &ProcessProfile) -> bool {
    let end = process.ended_after.unwrap_or(profile.run.duration);
    let has_first_reading = profile.run.window.as_ref().is_none_or(|window| window.start.is_zero());
    !profile.run.from_start
        && samplers::has_go_profile(profile, process)
        && has_first_reading
        && (process.group.is_some() || process.traced + START >= end)
}

/// Converts a sampler.
pub(super) fn sampler(sampler: Sampler) -> schema::Sampler<'static> {
    schema::Sampler { source: sampler.source.name().into(), interval_bytes: sampler.interval.map(|bytes| bytes.0) }
}

/// Converts a process whose allocator was patched.
pub(super) fn patched(process: &PatchedProcess) -> schema::PatchedProcess<'_> {
    schema::PatchedProcess {
        pid: process.pid.0,
        comm: process.comm.raw().into(),
        functions: process.functions,
        gaps: process.gaps.iter().map(Into::into).collect(),
        allocated_bytes: process.allocated.map(|bytes| bytes.0),
        exact: process.exact,
        samples: process.samples,
        not_inserted: process.not_inserted,
        level: process.level,
        stop_s: process.stop.as_secs_f64(),
        restarted_calls: process.rewound,
    }
}

fn demotion(profile: &Profile, process: &ProcessProfile) -> Option<schema::Demotion> {
    let demotion = &process.demotion;
    let share = || demotion.followed_share(process.total.alloc().bytes);
    (!demotion.is_none()).then(|| schema::Demotion {
        demoted_s: process.group.is_none().then(|| demotion.at.since_start().as_secs_f64()),
        min_size_bytes: demotion.min_size.0,
        dropped: numbers::blocks(demotion.dropped),
        followed_share: profile.run.window.is_none().then(share),
        demoted_frees: demotion.frees,
    })
}

/// Returns the process ID; `None` for a group.
pub(super) fn pid(process: &ProcessProfile) -> Option<u32> {
    process.group.is_none().then_some(process.pid.0)
}

/// `have_ended`: true if the processes of the group have ended, false if they run.
fn group_runs(profile: &Profile, group: &EndedGroup, have_ended: bool) -> schema::GroupRuns<'static> {
    let run = |run: &EndedRun| schema::Run {
        pid: run.pid.0,
        start_s: run.start.as_secs_f64(),
        end_s: run.end.as_secs_f64(),
        ended: end_name(run.ended).into(),
        totals: numbers::without_errors(profile, run.total),
    };
    schema::GroupRuns {
        runs: group.runs,
        ends: by_name(group.ends.iter().map(|(&end, &runs)| (end_name(end), runs))),
        first_start_s: group.first_start.as_secs_f64(),
        last_end_s: have_ended.then_some(group.last_end.as_secs_f64()),
        largest_runs: group.largest.iter().map(run).collect(),
    }
}

const fn end_name(end: ImageEnd) -> &'static str {
    match end {
        ImageEnd::Exit => "exit",
        ImageEnd::OomKill => "oom_kill",
        ImageEnd::Exec => "exec",
    }
}

pub(super) fn untraced(untraced: &Untraced) -> schema::Untraced<'_> {
    let memory = |memory: ProcessMemory| schema::UntracedMemory { count: memory.processes, rss_bytes: memory.rss.0 };
    let process = |process: &'_ UntracedProcess| schema::UntracedProcess {
        pid: process.pid.0,
        comm: process.comm.raw().to_owned().into(),
        exe: process.exe.as_ref().map(|path| path.to_string_lossy().into_owned().into()),
        reason: process.reason.name().into(),
        rss_bytes: process.rss.map(|rss| rss.0),
    };
    let reasons = UntracedReason::ALL.into_iter();
    schema::Untraced {
        total: memory(untraced.total()),
        reasons: in_order(reasons.map(|reason| (reason.name(), memory(untraced.with_reason(reason))))),
        processes: untraced.listed().iter().map(process).collect(),
    }
}
