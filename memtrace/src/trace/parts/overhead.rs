//! Overhead during a run, measured by the processor time of the targets.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use memtrace_host::kernel::ProcessFilter;
use memtrace_host::procfs;
use memtrace_model::{ImageEnd, ImageId, LossReason, Pid};

use crate::run_kit::observer::Observer;
use crate::targets::select::{Selection, Targets};
use crate::targets::track::ProcessTracker;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::overhead::{OverheadMeter, Sample};
use crate::trace::part::{LeftImage, Part};

/// Measures the overhead during a run, and warns once if it is high.
pub(super) struct MeasuredOverhead {
    meter: OverheadMeter,
    time: TargetTime,
    /// Sample at the end of the trace.
    last: Option<Sample>,
}

impl MeasuredOverhead {
    /// Starts the first period.
    pub(super) fn start(meter: OverheadMeter, context: &Context) -> Self {
        let mut overhead = Self { meter, time: TargetTime::default(), last: None };
        let sample = overhead.sample(context);
        // The first sample ends no period.
        overhead.meter.update(sample);
        overhead
    }

    fn sample(&mut self, context: &Context) -> Sample {
        let (processor_time, missing) = self.time.read(&context.targets, &context.filter, &context.tracker);
        let counters = context.kernel.counters();
        Sample {
            at: Instant::now(),
            calls: context.shards.progress().calls,
            not_recorded: counters.filtered.count + counters.losses.get(LossReason::RingFullAlloc),
            processor_time,
            missing,
        }
    }
}

impl Part for MeasuredOverhead {
    /// Ends the period of the measurement if it is long enough.
    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        if self.meter.is_due(Instant::now()) {
            let sample = self.sample(context);
            self.meter.update(sample).iter().for_each(|message| observer.note(message));
        }
    }

    fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        if left.is_listed_exit {
            self.time.add_exit(left.id.pid, &context.targets, &context.filter);
        }
    }

    fn stop(&mut self, context: &mut Context) {
        self.last = Some(self.sample(context));
    }

    fn finish(self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        let note = self.last.and_then(|last| self.meter.finish(Sample { calls: facts.calls, ..last }));
        context.targets.notes.extend(note);
    }
}

/// Reader of the processor time of the targets.
#[derive(Default)]
struct TargetTime {
    /// True for each image that the filter selected at the last reading. The results are kept, because the test of an
    /// image reads several files of procfs.
    is_selected: HashMap<ImageId, bool>,
    /// Number of targets that have left the registry with an unknown processor time.
    missing: usize,
}

impl TargetTime {
    /// Counts a target that has exited and left the registry, if its processor time is unknown.
    fn add_exit(&mut self, pid: Pid, targets: &Targets, filter: &ProcessFilter) {
        if !is_kept(pid, targets, filter) {
            self.missing += 1;
        }
    }

    /// Returns the processor time of the targets, and the number of ended targets with unknown processor time.
    fn read(&mut self, targets: &Targets, filter: &ProcessFilter, tracker: &ProcessTracker) -> (Duration, usize) {
        let selection = Selection::of(filter);
        let is_family = *filter == ProcessFilter::Families;
        let mut running: BTreeSet<_> = targets.command_pid().into_iter().collect();
        let mut missing = self.missing;
        let before = std::mem::take(&mut self.is_selected);
        for (&id, image) in tracker.images().iter().filter(|(id, _)| tracker.is_traced(id.pid)) {
            let is_selected = before.get(&id).copied().unwrap_or_else(|| selection.contains(tracker, id));
            self.is_selected.insert(id, is_selected);
            match image.ended {
                _ if !is_selected => {}
                Some((ImageEnd::Exec, _)) => {}
                Some(_) => missing += usize::from(!is_kept(id.pid, targets, filter)),
                None => _ = running.insert(id.pid),
            }
        }
        let time = |pid: &Pid| {
            let children = if is_family { procfs::processor_time_of_children(*pid) } else { None };
            Some(procfs::processor_time(*pid)? + children.unwrap_or_default())
        };
        (running.iter().filter_map(time).sum(), missing)
    }
}

/// Returns true if the time of a process still counts after its exit. The time of a child passes to the parent that
/// waits for it, and memtrace waits for its command at the end of the run.
fn is_kept(pid: Pid, targets: &Targets, filter: &ProcessFilter) -> bool {
    let is_family = *filter == ProcessFilter::Families;
    targets.command_pid() == Some(pid) || is_family && targets.pids().all(|named| named != pid)
}
