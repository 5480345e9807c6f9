//! Converts stacks and frames to JSON.

use std::cmp::Reverse;

use memtrace_json::{self as schema};
use memtrace_model::{Bytes, Frame, Quantity, StackProfile};

use super::{numbers, processes};
use crate::allocators;
use crate::estimate::{self, SampledPart};
use crate::groups::Groups;
use crate::metrics::MetricView;
use crate::trend::Trend;

/// Returns the stacks by decreasing value. Stacks with equal values keep the order of the profile.
pub(super) fn ranked<'a>(view: MetricView<'a>, groups: &'a Groups) -> impl Iterator<Item = schema::Stack<'a>> {
    let profile = view.profile();
    let mut stacks: Vec<_> = profile.stacks.iter().enumerate().collect();
    stacks.sort_by_key(|(_, stack)| Reverse(view.value(&stack.usage)));
    stacks.into_iter().map(move |(index, one)| stack(view, one, groups.of_stack(index)))
}

fn stack<'a>(view: MetricView<'a>, stack: &StackProfile, root: usize) -> schema::Stack<'a> {
    let profile = view.profile();
    let class = profile.run.class;
    let process = &profile.processes[stack.process];
    let (thread, allocator) = (stack.part.thread(), stack.part.allocator());
    let changes = stack.live_changes.as_slice();
    let sampled = SampledPart::of_stack(&stack.usage);
    let peak = process.peak.map(|_| Bytes(stack.usage[Quantity::AtPeakBytes]));
    let [peak_bytes_low, peak_bytes_high] = numbers::ends_of_peak(profile, peak, &sampled);
    schema::Stack {
        pid: processes::pid(process),
        process: stack.process,
        root,
        thread: thread.map(|tid| tid.0),
        thread_name: thread.and_then(|tid| process.thread_names.get(&tid)).map(Into::into),
        allocator: allocator.and_then(|id| profile.run.allocators.get(&id)).map(Into::into),
        end: stack.end.name().into(),
        merged_stacks: stack.merged(),
        totals: numbers::of(view, stack.usage, &sampled, None),
        peak_bytes: peak.map(|peak| peak.0),
        peak_bytes_low,
        peak_bytes_high,
        memory: stack.part.memory().map(|kind| kind.name().into()),
        major_faults: class.counts_pages().then_some(stack.usage[Quantity::MajorFaults]),
        major_faults_error: estimate::count_error(profile, stack.usage[Quantity::MajorFaults]),
        resident_bytes: (class.holds_mappings() && !process.resident_is_unknown)
            .then_some(stack.usage[Quantity::ResidentBytes]),
        by_allocator: class.holds_mappings().then(|| allocators::is_within(profile, stack)),
        histograms: numbers::histograms(&stack.histograms),
        live_changes: changes.iter().map(|part| part.live).collect(),
        part_allocs: changes.iter().map(|part| part.alloc).collect(),
        trend: Trend::of(profile, &stack.live_changes, &stack.usage).map(|trend| trend.kind.name().into()),
        frames: stack.frames.iter().map(|frame| frame.index()).collect(),
    }
}

pub(super) fn frame(frame: &Frame) -> schema::Frame<'_> {
    let object = frame.object.as_ref();
    let location = frame.location.as_ref();
    schema::Frame {
        name: frame.name.as_ref().ok().map(|name| name.0.as_str().into()),
        unnamed: frame.name.as_ref().err().map(|reason| reason.explanation().into()),
        object: object.map(|object| object.path.to_string_lossy()),
        build_id: object.and_then(|object| object.build_id.as_ref()).map(|id| id.to_string().into()),
        offset: frame.offset.map(|offset| offset.0),
        address: frame.address.map(|address| address.0),
        file: location.map(|location| location.file.to_string_lossy()),
        line: location.and_then(|location| location.line),
        inlined: frame.inlined,
        by_frame_pointer: frame.by_frame_pointer,
    }
}
