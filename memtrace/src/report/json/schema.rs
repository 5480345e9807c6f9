//! Fields of the report, separate from the model, so that the model can change without a change of the format.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Not;

use serde::{Serialize, Serializer};

use super::activity::ActivityFields;
use super::group_runs::{GroupRuns, end_name};
use super::histograms::HistogramFields;
use super::numbers::{Blocks, Counts, Numbers, ResidentFields, resident};
use super::timeline::TimelineFields;
use super::untraced::UntracedFields;
use super::window::WindowFields;
use super::{memcg, reclaim};
use crate::model::{
    Amount, Cost, DebugFileCounts, DebugFileOutcome, Frame, FrameId, Losses, MappingKind, Metric, ProcessProfile,
    Profile, StackEnd, StackProfile, StackQuality, TouchWindow, Variance,
};
use crate::report::groups::{Group, Groups};
use crate::report::kernel_reported::KernelReported;
use crate::report::options::Options;
use crate::report::tool::Tool;
use crate::report::trend::Trend;
use crate::report::{allocators, estimate, format};

pub(super) const SCHEMA_VERSION: u32 = 3;

#[derive(Serialize)]
pub(super) struct Report<'a> {
    schema_version: u32,
    tool: Tool,
    subject: &'a str,
    events: &'static str,
    metric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_sample: Option<u32>,
    by: &'static str,
    duration_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<WindowFields>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<WindowFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<TimelineFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<ActivityFields<'a>>,
    older_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    touches: Option<TouchFields>,
    totals: Numbers,
    unmatched_frees: u64,
    inherited_frees: u64,
    repeated_frees: u64,
    peak_bytes: Option<u64>,
    filtered: Blocks,
    discarded: Blocks,
    #[serde(skip_serializing_if = "Option::is_none")]
    histograms: Option<HistogramFields>,
    processes: Processes<'a>,
    roots: Roots<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroups: Option<Vec<memcg::Group<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaim: Option<reclaim::Machine<'a>>,
    oom_kills: Vec<reclaim::Kill<'a>>,
    #[serde(serialize_with = "losses")]
    losses: &'a Losses,
    untraced: UntracedFields<'a>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    debug_files: Option<BTreeMap<&'static str, u64>>,
    #[serde(serialize_with = "stack_quality")]
    stack_quality: StackQuality,
    frames: Frames<'a>,
    stacks: Stacks<'a>,
    cost: CostFields,
}

impl<'a> Report<'a> {
    pub(super) fn new(profile: &'a Profile, options: &'a Options, groups: &'a Groups) -> Self {
        let (total, variance) = (profile.total(), estimate::total_variance(profile));
        let discarded = profile.processes.iter().fold(Amount::default(), |sum, process| sum + process.discarded);
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            subject: &options.subject,
            events: profile.class.name(),
            metric: options.metric.name(),
            page_sample: profile.class.counts_pages().then_some(profile.page_sample.max(1)),
            by: options.by.name(),
            duration_s: profile.duration.as_secs_f64(),
            window: profile.window.as_ref().map(WindowFields::from),
            parts: profile.parts.iter().map(WindowFields::from).collect(),
            timeline: profile.timeline.as_ref().map(TimelineFields::from),
            activity: profile.activity.as_deref().map(ActivityFields::from),
            older_s: profile.older.map(|age| age.as_secs_f64()),
            touches: profile.touches.map(TouchFields::from),
            totals: Numbers::of(profile, total, variance, Some(KernelReported::of_all(profile))),
            unmatched_frees: profile.unmatched_frees(),
            inherited_frees: profile.inherited_frees(),
            repeated_frees: profile.repeated_frees(),
            peak_bytes: profile.sole_peak().map(|peak| peak.0),
            filtered: profile.filtered.into(),
            discarded: discarded.into(),
            histograms: HistogramFields::of(&profile.histograms()),
            processes: Processes(profile),
            roots: Roots { profile, groups },
            cgroups: profile.class.counts_stalls().then(|| profile.cgroups.iter().map(memcg::Group::from).collect()),
            reclaim: profile.reclaim.as_ref().map(reclaim::Machine::from),
            oom_kills: profile.oom_kills.iter().map(|kill| reclaim::Kill::new(profile, kill)).collect(),
            losses: &profile.losses,
            untraced: UntracedFields::from(&profile.untraced),
            notes: &profile.notes,
            debug_files: profile.debug_files.as_ref().map(debug_files),
            stack_quality: profile.quality(),
            frames: Frames(&profile.frames),
            stacks: Stacks { profile, metric: options.metric, groups },
            cost: profile.cost.into(),
        }
    }
}

/// How hot and cold bytes were measured.
#[derive(Serialize)]
struct TouchFields {
    method: &'static str,
    duration_s: f64,
}

impl From<TouchWindow> for TouchFields {
    fn from(window: TouchWindow) -> Self {
        Self { method: window.method.name(), duration_s: window.duration.as_secs_f64() }
    }
}

#[derive(Serialize)]
struct Process<'a> {
    pid: Option<u32>,
    comm: &'a str,
    exe: Option<String>,
    ended: Option<&'static str>,
    ended_s: Option<f64>,
    #[serde(flatten)]
    group: Option<GroupRuns>,
    totals: Numbers,
    unmatched_frees: u64,
    inherited_frees: u64,
    repeated_frees: u64,
    discarded: Blocks,
    peak_bytes: Option<u64>,
    uid: Option<u32>,
    user: Option<&'a str>,
    cgroup: Option<&'a str>,
    unit: Option<&'a str>,
    container: Option<&'a str>,
    container_runtime: Option<&'static str>,
    pod: Option<&'a str>,
    threads: Option<u32>,
    #[serde(flatten)]
    counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident: Option<BTreeMap<&'static str, ResidentFields>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalls: Option<reclaim::Stalls>,
    traced_s: f64,
    allocs_per_s: Option<f64>,
    alloc_bytes_per_s: Option<f64>,
}

impl<'a> Process<'a> {
    fn new(profile: &Profile, process: &'a ProcessProfile, variance: Variance) -> Self {
        let class = profile.class;
        let known = KernelReported::of(process);
        let user = process.user.as_ref();
        let cgroup = process.cgroup.as_deref();
        let container = cgroup.and_then(|cgroup| cgroup.container.as_ref());
        let rates = format::rates(process.total.alloc, profile.duration);
        Self {
            pid: pid(process),
            comm: process.comm.raw(),
            exe: process.exe.as_ref().map(|path| path.to_string_lossy().into_owned()),
            ended: process.ended.map(end_name),
            ended_s: process.ended_after.map(|time| time.as_secs_f64()),
            group: process.group.as_ref().map(|group| GroupRuns::new(profile, group, process.ended.is_some())),
            totals: Numbers::of(profile, process.total, variance, Some(known)),
            unmatched_frees: process.unmatched_frees,
            inherited_frees: process.inherited_frees,
            repeated_frees: process.repeated_frees,
            discarded: process.discarded.into(),
            peak_bytes: process.peak.map(|peak| peak.0),
            uid: user.map(|user| user.uid),
            user: user.and_then(|user| user.name.as_deref()),
            cgroup: cgroup.map(|cgroup| cgroup.path.as_str()),
            unit: cgroup.and_then(|cgroup| cgroup.unit.as_deref()),
            container: container.map(|container| container.id.as_str()),
            container_runtime: container.and_then(|container| container.runtime),
            pod: cgroup.and_then(|cgroup| cgroup.pod.as_deref()),
            threads: process.threads,
            counts: class.counts_pages().then(|| Counts::from(known)),
            peak_resident_bytes: process.peak_rss.map(|bytes| bytes.0),
            resident: process.resident.as_ref().map(|residence| resident(profile, residence)),
            stalls: class.counts_stalls().then(|| reclaim::stalls(&process.stalls)),
            traced_s: process.traced.as_secs_f64(),
            allocs_per_s: rates.map(|(blocks, _)| blocks),
            alloc_bytes_per_s: rates.map(|(_, bytes)| bytes),
        }
    }
}

/// Returns the process ID; `None` for a group.
fn pid(process: &ProcessProfile) -> Option<u32> {
    process.group.is_none().then_some(process.pid.0)
}

fn debug_files(counts: &DebugFileCounts) -> BTreeMap<&'static str, u64> {
    let by_name = DebugFileOutcome::ALL.map(|outcome| (outcome.name(), counts.count(outcome)));
    by_name.into_iter().chain([("downloaded_bytes", counts.downloaded.0)]).collect()
}

fn losses<S: Serializer>(losses: &Losses, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(losses.iter().map(|(reason, count)| (reason.name(), count)))
}

fn stack_quality<S: Serializer>(quality: &StackQuality, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(StackEnd::ALL.iter().map(|&end| (end.name(), quality.share(end))))
}

#[derive(Serialize)]
struct GroupFields<'a> {
    name: &'a str,
    #[serde(flatten)]
    usage: Numbers,
    #[serde(flatten)]
    counts: Option<Counts>,
    peak_bytes: Option<u64>,
}

impl<'a> GroupFields<'a> {
    fn new(profile: &Profile, root: &'a Group) -> Self {
        Self {
            name: &root.label,
            usage: Numbers::of(profile, root.usage, root.variance, root.known),
            counts: root.known.map(Counts::from),
            peak_bytes: root.at_peak.map(|bytes| bytes.0),
        }
    }
}

/// The frames, serialized one at a time.
struct Frames<'a>(&'a [Frame]);

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(FrameFields::from))
    }
}

/// The processes, serialized one at a time.
struct Processes<'a>(&'a Profile);

impl Serialize for Processes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let processes = self.0.processes.iter().zip(estimate::process_variances(self.0));
        serializer.collect_seq(processes.map(|(process, variance)| Process::new(self.0, process, variance)))
    }
}

/// The groups, serialized one at a time.
struct Roots<'a> {
    profile: &'a Profile,
    groups: &'a Groups,
}

impl Serialize for Roots<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.groups.all().iter().map(|group| GroupFields::new(self.profile, group)))
    }
}

/// The stacks, serialized one at a time.
struct Stacks<'a> {
    profile: &'a Profile,
    metric: Metric,
    groups: &'a Groups,
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ranked = ranked(self.profile, self.metric).into_iter();
        serializer
            .collect_seq(ranked.map(|(index, stack)| Stack::new(self.profile, stack, self.groups.of_stack(index))))
    }
}

#[derive(Serialize)]
struct Stack<'a> {
    pid: Option<u32>,
    process: usize,
    root: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<&'a str>,
    end: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    merged_stacks: u64,
    #[serde(flatten)]
    usage: Numbers,
    peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major_faults_error: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_allocator: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    histograms: Option<HistogramFields>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    live_changes: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    part_allocs: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trend: Option<&'static str>,
    #[serde(serialize_with = "indices")]
    frames: &'a [FrameId],
}

impl<'a> Stack<'a> {
    fn new(profile: &'a Profile, stack: &'a StackProfile, root: usize) -> Self {
        let process = &profile.processes[stack.process];
        let (thread, allocator) = (stack.part.thread(), stack.part.allocator());
        Self {
            pid: pid(process),
            process: stack.process,
            root,
            thread: thread.map(|tid| tid.0),
            thread_name: thread.and_then(|tid| process.thread_names.get(&tid)).map(String::as_str),
            allocator: allocator.and_then(|id| profile.allocators.get(&id)).map(String::as_str),
            end: stack.end.name(),
            merged_stacks: stack.merged,
            usage: Numbers::of(profile, stack.usage, stack.variance, None),
            peak_bytes: stack.at_peak.map(|bytes| bytes.0),
            memory: stack.part.memory().map(MappingKind::name),
            major_faults: profile.class.counts_pages().then_some(stack.major_faults),
            major_faults_error: estimate::count_error(profile, stack.major_faults),
            resident_bytes: profile.class.holds_mappings().then_some(stack.resident.0),
            by_allocator: profile.class.holds_mappings().then(|| allocators::is_within(profile, stack)),
            histograms: HistogramFields::of(&stack.histograms),
            live_changes: stack.live_changes.as_slice().iter().map(|part| part.live).collect(),
            part_allocs: stack.live_changes.as_slice().iter().map(|part| part.alloc).collect(),
            trend: Trend::of(&profile.parts, &stack.live_changes).map(|trend| trend.kind.name()),
            frames: &stack.frames,
        }
    }
}

/// Returns the stacks with their index, by decreasing `metric`; equal stacks keep the order of the profile.
fn ranked(profile: &Profile, metric: Metric) -> Vec<(usize, &StackProfile)> {
    let mut stacks: Vec<_> = profile.stacks.iter().enumerate().collect();
    stacks.sort_by_key(|(_, stack)| Reverse(stack.value(metric)));
    stacks
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn indices<S: Serializer>(frames: &&[FrameId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(frames.iter().map(|frame| frame.index()))
}

#[derive(Serialize)]
struct FrameFields<'a> {
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unnamed: Option<&'static str>,
    object: Option<String>,
    build_id: Option<String>,
    offset: Option<u64>,
    address: Option<u64>,
    file: Option<String>,
    line: Option<u32>,
    inlined: bool,
    #[serde(skip_serializing_if = "Not::not")]
    by_frame_pointer: bool,
}

impl<'a> From<&'a Frame> for FrameFields<'a> {
    fn from(frame: &'a Frame) -> Self {
        let object = frame.object.as_ref();
        let location = frame.location.as_ref();
        Self {
            name: frame.name.as_ref().ok().map(|name| name.0.as_str()),
            unnamed: frame.name.as_ref().err().map(|reason| reason.explanation()),
            object: object.map(|object| object.path.to_string_lossy().into_owned()),
            build_id: object.and_then(|object| object.build_id.as_ref()).map(ToString::to_string),
            offset: frame.offset.map(|offset| offset.0),
            address: frame.address.map(|address| address.0),
            file: location.map(|location| location.file.to_string_lossy().into_owned()),
            line: location.and_then(|location| location.line),
            inlined: frame.inlined,
            by_frame_pointer: frame.by_frame_pointer,
        }
    }
}

#[derive(Serialize)]
struct CostFields {
    events: u64,
    nested: u64,
    cpu_s: f64,
    tracing_cpu_s: f64,
    peak_rss_bytes: u64,
    probe_hits: Option<u64>,
    programs_s: Option<f64>,
}

impl From<Cost> for CostFields {
    fn from(cost: Cost) -> Self {
        Self {
            events: cost.events,
            nested: cost.nested,
            cpu_s: cost.cpu.as_secs_f64(),
            tracing_cpu_s: cost.cpu_tracing.as_secs_f64(),
            peak_rss_bytes: cost.peak_rss.0,
            probe_hits: cost.programs.map(|programs| programs.hits),
            programs_s: cost.programs.map(|programs| programs.time.as_secs_f64()),
        }
    }
}
