//! JSON reports. The types of `memtrace_json` define and document the fields. An incompatible change, such as the
//! removal of a field, raises the version of the format.

mod activity;
mod numbers;
mod objects;
mod processes;
mod reader;
mod reclaim;
mod stacks;
mod timeline;

pub(super) use self::objects::{by_name, in_order, occurred};
pub use self::reader::{ReadError, SavedReport, read};

use std::io;

use memtrace_json::{self as schema, Object, Stream};
use memtrace_model::{Cost, DebugFileCounts, DebugFileOutcome, Losses, Profile, StackEnd, TagFunctionCalls};

use crate::estimate::SampledPart;
use crate::groups::{Group, Groups};
use crate::json_lines;
use crate::kernel_reported::KernelReported;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::resident_sets;
use crate::stack_quality::StackQuality;

/// memtrace itself, as the writer of the JSON.
pub(super) const TOOL: schema::Tool<'static> = schema::Tool {
    name: std::borrow::Cow::Borrowed("memtrace"),
    version: std::borrow::Cow::Borrowed(env!("CARGO_PKG_VERSION")),
};

/// Writes the report. Elements of long lists are made and written one at a time, to save memory.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let view = MetricView::new(profile, options.metric);
    let groups = Groups::of(profile, options.by);
    let total = profile.total();
    let sampled = SampledPart::of_profile(profile);
    let peak = profile.sole_peak();
    let [peak_bytes_low, peak_bytes_high] = numbers::ends_of_peak(profile, peak, &sampled);
    let report = schema::Report {
        schema_version: schema::SCHEMA_VERSION,
        tool: TOOL,
        subject: options.subject.as_str().into(),
        events: profile.run.class.name().into(),
        metric: options.metric.name().into(),
        page_sample: profile.run.class.counts_pages().then_some(profile.run.page_sample.max(1)),
        by: options.by.name().into(),
        duration_s: profile.run.duration.as_secs_f64(),
        window: profile.run.window.as_ref().map(timeline::window),
        parts: profile.run.parts.iter().map(timeline::window).collect(),
        timeline: profile.run.timeline.as_ref().map(timeline::timeline),
        activity: profile.run.activity.as_deref().map(activity::activity),
        older_s: profile.run.older.map(|age| age.as_secs_f64()),
        touches: profile.run.touches.map(|window| schema::TouchWindow {
            method: window.method.name().into(),
            duration_s: window.duration.as_secs_f64(),
        }),
        totals: numbers::of(view, total, &sampled, Some(KernelReported::of_all(profile))),
        unmatched_frees: profile.unmatched_frees(),
        inherited_frees: profile.inherited_frees(),
        rss_note: resident_sets::sentences(profile).map(Into::into),
        repeated_frees: profile.repeated_frees(),
        unmatched_samples: profile.unmatched_samples(),
        samplers: profile.run.samplers.all().map(processes::sampler).collect(),
        patched_processes: match profile.run.window {
            None => profile.run.patched.iter().map(processes::patched).collect(),
            Some(_) => Vec::new(),
        },
        peak_bytes: peak.map(|peak| peak.0),
        peak_bytes_low,
        peak_bytes_high,
        filtered: numbers::blocks(profile.run.filtered),
        raised_min_size: profile
            .run
            .raised
            .map(|raised| schema::RaisedMinSize { at_s: raised.at.as_secs_f64(), bytes: raised.min_size.0 }),
        discarded: numbers::blocks(total.discarded()),
        histograms: numbers::histograms(&profile.histograms()),
        processes: Stream(|| processes::all(view)),
        roots: Stream(|| groups.all().iter().map(move |root| group(view, root))),
        cgroups: profile.run.class.counts_stalls().then(|| profile.cgroups.iter().map(reclaim::cgroup).collect()),
        reclaim: profile.run.reclaim.as_ref().map(reclaim::machine),
        oom_kills: profile.oom_kills.iter().map(|kill| reclaim::oom_kill(profile, kill)).collect(),
        losses: losses(&profile.losses),
        untraced: processes::untraced(&profile.run.untraced),
        tag_functions: profile.run.tag_functions.iter().map(tag_function).collect(),
        notes: profile.run.notes.iter().map(Into::into).collect(),
        debug_files: profile.run.debug_files.as_ref().map(debug_files),
        stack_quality: stack_quality(&StackQuality::of(profile)),
        frames: Stream(|| profile.frames.iter().map(stacks::frame)),
        stacks: Stream(|| stacks::ranked(view, &groups)),
        cost: profile.run.cost.as_ref().map(cost),
    };
    json_lines::write(&report, out)
}

fn cost(cost: &Cost) -> schema::Cost {
    schema::Cost {
        events: cost.events,
        nested: cost.nested,
        cpu_s: cost.cpu.as_secs_f64(),
        tracing_cpu_s: cost.cpu_tracing.as_secs_f64(),
        peak_rss_bytes: cost.peak_rss.0,
        probe_hits: cost.programs.map(|programs| programs.hits),
        programs_s: cost.programs.map(|programs| programs.time.as_secs_f64()),
    }
}

fn group<'a>(view: MetricView<'_>, root: &'a Group) -> schema::Group<'a> {
    let peak = root.at_peak();
    let [peak_bytes_low, peak_bytes_high] = numbers::ends_of_peak(view.profile(), peak, &root.sampled);
    schema::Group {
        name: root.label.as_str().into(),
        totals: numbers::of(view, root.usage, &root.sampled, root.known),
        kernel: root.known.map(numbers::kernel_counts),
        peak_bytes: peak.map(|peak| peak.0),
        peak_bytes_low,
        peak_bytes_high,
    }
}

/// Returns the calls of a function that sets tags.
pub(super) fn tag_function(function: &TagFunctionCalls) -> schema::TagFunction<'_> {
    let TagFunctionCalls { rule, calls, effective, tested } = function;
    let value = |&(value, calls): &(u32, u64)| schema::TestedValue { value, calls };
    schema::TagFunction {
        rule: rule.as_str().into(),
        calls: *calls,
        effective_calls: *effective,
        tested_argument: tested.as_ref().map(|tested| tested.argument),
        tested_values: tested.as_ref().map(|tested| tested.values.iter().map(value).collect()),
        other_values_calls: tested.as_ref().map(|tested| tested.others),
    }
}

fn losses(losses: &Losses) -> Object<'static, u64> {
    in_order(losses.iter().map(|(reason, count)| (reason.name(), count)))
}

fn debug_files(counts: &DebugFileCounts) -> Object<'static, u64> {
    let outcomes = DebugFileOutcome::ALL.map(|outcome| (outcome.name(), counts.count(outcome)));
    by_name(outcomes.into_iter().chain([("downloaded_bytes", counts.downloaded.0)]))
}

fn stack_quality(quality: &StackQuality) -> Object<'static, f64> {
    in_order(StackEnd::ALL.iter().map(|&end| (end.name(), quality.share(end))))
}
