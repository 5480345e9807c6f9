//! Profiles for speedscope: its file format, with a sampled profile for each metric.

use std::io;

use serde::Serialize;

use crate::model::{Frame, Measure, Metric, Profile, printable};
use crate::report::groups::Groups;
use crate::report::options::Options;
use crate::report::tool::Tool;
use crate::report::{escape, format, metrics};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<SampledProfile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<FrameFields>,
}

#[derive(Serialize)]
struct FrameFields {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames of each stack, the outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes a profile for each metric that was measured. The outermost frame of a stack is its group. Decreases between two
/// moments of a recording are left out.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let metrics = metrics::measured_unsigned(profile);
    let groups = Groups::of(profile, options.by);
    let mut frames: Vec<_> = profile.frames.iter().map(frame).collect();
    let first_group = frames.len();
    frames.extend(groups.all().iter().map(|group| text(&group.label)));
    let mut paths = Vec::with_capacity(profile.stacks.len());
    for (index, stack) in profile.stacks.iter().enumerate() {
        let mut path = vec![first_group + groups.of_stack(index)];
        path.extend(stack.frames.iter().map(|frame| frame.index()));
        if stack.merged > 0 || stack.frames.is_empty() {
            path.push(frames.len());
            frames.push(text(&match stack.merged {
                0 => String::from(escape::missing_frames(stack.end)),
                merged => escape::other_stacks(merged),
            }));
        }
        paths.push(path);
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("{} {}", Tool::THIS.name, Tool::THIS.version),
        name: format!("{} ({})", escape::visible(&options.subject), format::completeness(profile)),
        active_profile_index: metrics.iter().position(|metric| *metric == options.metric).unwrap_or_default(),
        profiles: metrics.iter().map(|&metric| sampled(profile, metric, &paths)).collect(),
        shared: Shared { frames },
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

fn sampled(profile: &Profile, metric: Metric, paths: &[Vec<usize>]) -> SampledProfile {
    let values = profile.stacks.iter().map(|stack| stack.value(metric));
    let (samples, weights): (Vec<_>, Vec<_>) =
        paths.iter().cloned().zip(values).filter(|(_, value)| *value > 0).unzip();
    SampledProfile {
        kind: "sampled",
        name: format::metric_title(profile, metric),
        unit: match metric.measure() {
            Measure::Bytes => "bytes",
            Measure::Count => "none",
            Measure::Time => "nanoseconds",
        },
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
        samples,
        weights,
    }
}

fn frame(frame: &Frame) -> FrameFields {
    let location = frame.location.as_ref();
    FrameFields {
        name: escape::visible(&frame.label()),
        file: location.map(|location| escape::visible(&printable(&location.file))),
        line: location.and_then(|location| location.line),
    }
}

fn text(name: &str) -> FrameFields {
    FrameFields { name: escape::visible(name), file: None, line: None }
}
