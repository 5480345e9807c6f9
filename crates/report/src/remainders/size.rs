//! Estimates of the size of a JSON report. They are too high rather than too low.

use memtrace_model::{Frame, ProcessProfile, Profile, StackProfile};

/// Keys and numbers of a stack: ten numbers of memory; with errors for estimates, and stalls.
const STACK: usize = 460;
/// Keys and numbers of a stack that has errors.
const ESTIMATED_STACK: usize = 640;
/// A bucket of a histogram: a logarithm and a count in brackets.
const BUCKET: usize = 26;
/// Largest number of buckets of a stack: sizes, lifetimes and ages.
const MAX_BUCKETS: usize = 130;
/// Changes of a stack in a part of a recording: two numbers.
const PART: usize = 42;
/// Keys of the changes of a stack, and its trend.
const PARTS: usize = 80;
/// An index of a frame with its comma.
const FRAME_INDEX: usize = 7;
/// Keys of a frame, and its build ID.
const FRAME: usize = 210;
/// Keys and numbers of a process and of its group of stacks.
const PROCESS: usize = 1500;
/// A process of a group.
const RUN: usize = 360;
/// Everything else but the lists that are measured here.
const HEAD: usize = 64 << 10;
/// An untraced process, a control group, an OOM kill, or a group of stacks with a label.
const ENTRY: usize = 2 << 10;

/// Sizes of the parts of one profile.
pub(super) struct Sizes {
    stack: usize,
    /// A stack without frames that is the sum of others.
    merged_stack: usize,
    total: usize,
}

impl Sizes {
    pub(super) fn new(profile: &Profile) -> Self {
        let stack = if profile.run.class.counts_pages() { ESTIMATED_STACK } else { STACK };
        let has_histograms = profile.stacks.iter().any(|stack| !stack.histograms.is_empty());
        let histograms = if has_histograms { MAX_BUCKETS * BUCKET } else { 0 };
        let mut sizes = Self { stack, merged_stack: stack + histograms + changes(profile.run.parts.len()), total: 0 };
        let stacks: usize = profile.stacks.iter().map(|stack| sizes.stack(stack)).sum();
        let frames: usize = profile.frames.iter().map(|frame| sizes.frame(frame)).sum();
        let processes: usize = profile.processes.iter().map(|process| sizes.process(process)).sum();
        sizes.total = stacks + frames + processes + sizes.head(profile);
        sizes
    }

    /// Returns the size of the whole profile.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn stack(&self, stack: &StackProfile) -> usize {
        let changes = changes(stack.live_changes.as_slice().len());
        self.stack + stack.frames.len() * FRAME_INDEX + stack.histograms.len() * BUCKET + changes
    }

    /// Returns the size of this number of stacks without frames, which are sums of others.
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
        PROCESS + 2 * text(process.comm.raw().as_bytes()) + exe + cgroup + threads + runs
    }

    /// Returns the size of all but stacks, frames and processes.
    pub(super) fn head(&self, profile: &Profile) -> usize {
        let notes: usize = profile.run.notes.iter().map(|note| text(note.as_bytes())).sum();
        let labels: usize = profile.labels.iter().map(|label| ENTRY + text(label.as_bytes())).sum();
        let entries = profile.run.untraced.listed().len() + profile.cgroups.len() + profile.oom_kills.len();
        HEAD + notes + labels + ENTRY * entries
    }
}

/// Returns the size of the changes of a stack in this number of parts.
const fn changes(parts: usize) -> usize {
    if parts == 0 { 0 } else { PARTS + parts * PART }
}

/// Returns the size of a text: characters that are escaped take up to six bytes.
fn text(bytes: &[u8]) -> usize {
    let is_plain = |byte: &&u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let plain = bytes.iter().filter(is_plain).count();
    plain + 6 * (bytes.len() - plain)
}
