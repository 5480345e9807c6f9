//! Profiles for speedscope: its file format, with a sampled profile for each metric.

use std::io;

use memtrace_model::{Frame, Measure, Profile, printable};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::groups::Groups;
use crate::json::TOOL;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::{escape, format};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<SampledProfile<'a>>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<FrameFields>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct FrameFields {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames of each stack, the outermost first.
    samples: Vec<&'a [usize]>,
    weights: Vec<u64>,
}

/// Frames of the file, each once, because the viewer joins calls with the same frame.
#[derive(Default)]
struct Frames {
    all: Vec<FrameFields>,
    known: FxHashMap<FrameFields, usize>,
}

impl Frames {
    fn number(&mut self, frame: FrameFields) -> usize {
        *self.known.entry(frame).or_insert_with_key(|frame| {
            self.all.push(frame.clone());
            self.all.len() - 1
        })
    }

    fn number_of_text(&mut self, text: &str) -> usize {
        self.number(FrameFields { name: escape::visible(text), file: None })
    }
}

/// Writes a profile for each metric that was measured. The group of a stack is its outermost frame. In a window of a
/// recording, decreases are left out.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let drawn = MetricView::new(profile, options.metric);
    let views = drawn.measured_growth();
    let groups = Groups::of(profile, options.by);
    let mut frames = Frames::default();
    let of_frames: Vec<_> = profile.frames.iter().map(|frame| frames.number(function(frame))).collect();
    let of_groups: Vec<_> = groups.all().iter().map(|group| frames.number_of_text(&group.label)).collect();
    let mut paths = Vec::with_capacity(profile.stacks.len());
    for (index, stack) in profile.stacks.iter().enumerate() {
        let mut path = vec![of_groups[groups.of_stack(index)]];
        path.extend(stack.frames.iter().map(|frame| of_frames[frame.index()]));
        path.extend(escape::instead_of_frames(stack).map(|text| frames.number_of_text(&text)));
        paths.push(path);
    }
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("{} {}", TOOL.name, TOOL.version),
        name: format!("{} ({})", escape::visible(&options.subject), format::completeness(profile)),
        active_profile_index: views.iter().position(|view| view.name() == drawn.name()).unwrap_or_default(),
        profiles: views.iter().map(|&view| sampled(view, &paths)).collect(),
        shared: Shared { frames: frames.all },
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

fn sampled<'a>(view: MetricView<'_>, paths: &'a [Vec<usize>]) -> SampledProfile<'a> {
    let values = view.profile().stacks.iter().map(|stack| view.increase(&stack.usage));
    let (samples, weights): (Vec<_>, Vec<_>) =
        paths.iter().map(Vec::as_slice).zip(values).filter(|(_, value)| *value > 0).unzip();
    SampledProfile {
        kind: "sampled",
        name: view.title(),
        unit: match view.measure() {
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

/// Returns a frame for the function. The line is left out, because it is the line of the call and not of the
/// function.
fn function(frame: &Frame) -> FrameFields {
    let file = frame.location.as_ref().map(|location| escape::visible(&printable(&location.file)));
    FrameFields { name: escape::visible(&frame.label()), file }
}
