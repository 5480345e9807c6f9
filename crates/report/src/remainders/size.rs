//! Estimates the size of a JSON report without `timeline` and `activity`. The estimates are too high rather than too
//! low.

use memtrace_model::{Frame, ProcessProfile, Profile, StackProfile};

use crate::estimate::{SampledPart, has_samples};

/// Bytes for the keys and numbers of a stack without errors of estimates.
const STACK: usize = 460;
/// Bytes for the keys and numbers of a stack with errors of estimates.
const ESTIMATED_STACK: usize = 640;
/// Bytes for the number of samples of a stack, and for the ends of its intervals.
const SAMPLES: usize = 520;
/// Bytes for a bucket of a histogram: a logarithm and a count in brackets.
const BUCKET: usize = 26;
/// Maximum number of buckets of a stack, for sizes, lifetimes and ages together.
const MAX_BUCKETS: usize = 130;
/// Bytes for the changes of a stack in a part of a recording: two numbers.
const PART: usize = 42;
/// Bytes for the keys of the changes of a stack, and for its trend.
const PARTS: usize = 80;
/// Bytes for the index of a frame with its comma.
const FRAME_INDEX: usize = 7;
/// Bytes for the keys and numbers of a frame, and for its build ID.
const FRAME: usize = 210;
/// Bytes for the keys and numbers of a process and of its group of stacks.
const PROCESS: usize = 1500;
/// Bytes for a process in the list `largest_runs` of a group.
const RUN: usize = 360;
/// Bytes for the keys and numbers of a function that sets tags.
const TAG_FUNCTION: usize = 640;
/// Bytes for the other keys of the report, without `timeline` and `activity`.
const HEAD: usize = 64 << 10;
/// Bytes for an untraced process, a control group, an OOM kill, or a group of stacks with a label.
const ENTRY: usize = 2 << 10;

/// Estimated sizes of the parts of one profile in the JSON, in bytes.
pub(super) struct Sizes {
    stack: usize,
    /// Size of a sum of merged stacks.
    merged_stack: usize,
    /// Size of the intervals of a process; 0 if all blocks are exact.
    intervals: usize,
    total: usize,
}

impl Sizes {
    pub(super) fn new(profile: &Profile) -> Self {
        let stack = if profile.run.class.counts_pages() { ESTIMATED_STACK } else { STACK };
        let has_histograms = profile.stacks.iter().any(|stack| !stack.histograms.is_empty());
        let histograms = if has_histograms { MAX_BUCKETS * BUCKET } else { 0 };
        let is_sampled = SampledPart::of_profile(profile).is_sampled();
        let samples = if is_sampled { SAMPLES } else { 0 };
        let merged_stack = stack + samples + histograms + changes(profile.run.parts.len());
        // A process has the intervals of its totals and of its group of stacks, and a list of its samplers.
        let mut sizes = Self { stack, merged_stack, intervals: 3 * samples, total: 0 };
        let stacks: usize = profile.stacks.iter().map(|stack| sizes.stack(stack)).sum();
        let frames: usize = profile.frames.iter().map(|frame| sizes.frame(frame)).sum();
        let processes: usize = profile.processes.iter().map(|process| sizes.process(process)).sum();
        sizes.total = stacks + frames + processes + sizes.head(profile);
        sizes
    }

    /// Returns the size of the report, without `timeline` and `activity`.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn stack(&self, stack: &StackProfile) -> usize {
        let changes = changes(stack.live_changes.as_slice().len());
        let samples = if has_samples(&stack.usage) { SAMPLES } else { 0 };
        self.stack + samples + stack.frames.len() * FRAME_INDEX + stack.histograms.len() * BUCKET + changes
    }

    /// Returns the size of `number` sums of merged stacks.
    pub(super) const fn stacks(&self, number: usize) -> usize {
        self.merged_stack.saturating_mul(number)
    }

    pub(super) fn frame(&self, frame: &Frame) -> usize {
        let name = frame.name.as_ref().map_or(0, |name| text(name.0.as_bytes()));
        let object = frame.object.as_ref().map_or(0, |object| text(object.path.as_os_str().as_encoded_bytes()));
        let file = frame.location.as_ref().map_or(0, |place| text(place.file.as_os_str().as_encoded_bytes()));
        FRAME + name + object + file
    }

    pub(super) fn process(&self, process: &ProcessProfile) -> usize {
        let exe = process.exe.as_ref().map_or(0, |path| text(path.as_os_str().as_encoded_bytes()));
        let cgroup = process.cgroup.as_ref().map_or(0, |cgroup| 3 * text(cgroup.path.as_bytes()));
        let threads: usize = process.thread_names.values().map(|name| PROCESS / 2 + text(name.as_bytes())).sum();
        let runs = process.group.as_ref().map_or(0, |group| group.largest.len() * RUN);
        PROCESS + self.intervals + 2 * text(process.comm.raw().as_bytes()) + exe + cgroup + threads + runs
    }

    /// Returns the size of the report without stacks, frames, processes, `timeline` and `activity`.
    pub(super) fn head(&self, profile: &Profile) -> usize {
        let notes: usize = profile.run.notes.iter().map(|note| text(note.as_bytes())).sum();
        let functions = profile.run.tag_functions.iter();
        let functions: usize = functions.map(|function| TAG_FUNCTION + text(function.rule.as_bytes())).sum();
        let labels: usize = profile.labels.iter().map(|label| ENTRY + text(label.as_bytes())).sum();
        let entries = profile.run.untraced.listed().len() + profile.cgroups.len() + profile.oom_kills.len();
        HEAD + notes + functions + labels + ENTRY * entries
    }
}

/// Returns the size of the changes of a stack in `parts` parts of a recording.
const fn changes(parts: usize) -> usize {
    if parts == 0 { 0 } else { PARTS + parts * PART }
}

/// Returns the maximum size of a text in JSON: a byte that may be escaped counts as six.
fn text(bytes: &[u8]) -> usize {
    let is_plain = |byte: &&u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let plain = bytes.iter().filter(is_plain).count();
    plain + 6 * (bytes.len() - plain)
}
