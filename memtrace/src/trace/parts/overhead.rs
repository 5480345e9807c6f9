//! Overhead during a run, measured by the processor time of the targets.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use memtrace_history::facts;
use memtrace_host::kernel::ProcessFilter;
use memtrace_host::procfs;
use memtrace_model::{Bytes, ImageEnd, ImageId, LossReason, Pid, RaisedMinSize, Tick};

use crate::options::SamplingRate;
use crate::run_kit::observer::Observer;
use crate::targets::select::{Selection, Target, Targets};
use crate::targets::track::ProcessTracker;
use crate::trace::config::Config;
use crate::trace::context::{Context, PatchRequest};
use crate::trace::cost;
use crate::trace::facts::Facts;
use crate::trace::overhead::{OverheadMeter, Reaction, Sample};
use crate::trace::part::{LeftImage, Part};
use crate::trace::wait::Stop;

/// Minimum ratio of the time between two samples to the duration of a sample. A sample of thousands of processes takes long.
const SAMPLED_FOR: u32 = 100;

/// Measures the overhead during a run, and warns once if it is high. Enforces the limit of the user.
pub(super) struct MeasuredOverhead {
    meter: OverheadMeter,
    time: TargetTime,
    /// True if all processes of the machine are targets.
    is_whole_machine: bool,
    /// Earliest time of the next sample.
    next: Instant,
    /// Sample at the end of the trace.
    last: Option<Sample>,
    raised: Option<RaisedMinSize>,
    /// Minimum size of recorded allocations at the start.
    min_size: Bytes,
    /// True if memtrace can sample the blocks instead of ending the trace.
    can_sample: bool,
    /// True if the trace ends because of its overhead.
    has_reached_limit: bool,
}

impl MeasuredOverhead {
    /// Starts the first period.
    pub(super) fn start(meter: OverheadMeter, config: &Config, context: &Context) -> Self {
        let mut overhead = Self {
            meter,
            time: TargetTime::default(),
            is_whole_machine: matches!(config.target, Target::Selected { .. }) && !config.target.includes_some(),
            next: Instant::now(),
            last: None,
            raised: None,
            min_size: config.heap.min_size.unwrap_or(Bytes(0)),
            can_sample: config.allow_patching && is_single_process(&config.target),
            has_reached_limit: false,
        };
        let sample = overhead.sample(context);
        // The first sample ends no period.
        overhead.meter.update(sample);
        overhead.meter.react(sample);
        overhead
    }

    fn sample(&mut self, context: &Context) -> Sample {
        let start = Instant::now();
        let machine_time = procfs::processor_time_of_machine().map(|time| time.saturating_sub(cost::processor_time()));
        let (processor_time, Ended { missing, passed }) = match machine_time.filter(|_| self.is_whole_machine) {
            Some(time) => (time, Ended::default()),
            None => self.time.read(&context.targets, &context.filter, &context.tracker),
        };
        let counters = context.kernel.counters();
        let at = Instant::now();
        self.next = at + SAMPLED_FOR * at.duration_since(start);
        Sample {
            at,
            calls: context.shards.progress().calls,
            not_recorded: counters.filtered.count + counters.losses.get(LossReason::RingFullAlloc),
            hits: counters.hits,
            processor_time,
            machine_time,
            missing,
            passed,
        }
    }

    /// Lets the target be sampled instead of ending the trace.
    fn sample_instead(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.can_sample = false;
        // Samples need no larger minimum size.
        if let Err(error) = context.kernel.raise_min_size(self.min_size) {
            log::warn!("{error}");
        }
        context.sampling = Some(SamplingRate::default());
        context.patch_requests.push(PatchRequest::Targets);
        // Blocks from before the change stay live, because no probe sees their frees.
        context.complete = false;
        observer.note(
            "to stay below --max-overhead, the allocations are sampled from now on; blocks from before count as live until \
             the end",
        );
    }

    /// Raises the minimum size of recorded allocations.
    fn raise(&mut self, min_size: Bytes, context: &mut Context, observer: &mut dyn Observer) {
        if let Err(error) = context.kernel.raise_min_size(min_size) {
            log::warn!("{error}");
            return;
        }
        let raised = RaisedMinSize { at: context.clock.start.elapsed(), min_size };
        observer.note(&format!(
            "to stay below --max-overhead, only allocations of at least {min_size} are traced from now on; numbers of \
             smaller blocks are lower bounds"
        ));
        if let Some(recorder) = &mut context.recorder {
            recorder.add_facts(facts::of_raised(raised));
        }
        self.raised = Some(raised);
    }
}

impl Part for MeasuredOverhead {
    /// Ends the period of the measurement if it is long enough.
    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        let now = Instant::now();
        if now < self.next || !self.meter.is_due(now) {
            return;
        }
        let sample = self.sample(context);
        self.meter.update(sample).iter().for_each(|message| observer.note(message));
        match self.meter.react(sample) {
            Reaction::None => {}
            Reaction::Raise(min_size) => self.raise(min_size, context, observer),
            Reaction::Detach if self.can_sample => self.sample_instead(context, observer),
            Reaction::Detach => {
                self.has_reached_limit = true;
                context.stop = Some(Stop::OverheadLimit);
            }
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

    fn read_rest(&mut self, _: Tick, _: &mut Context, facts: &mut Facts) {
        facts.raised = self.raised;
        facts.losses.add(LossReason::OverheadLimit, self.has_reached_limit.into());
    }

    fn finish(self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        let note = self.last.and_then(|last| self.meter.finish(Sample { calls: facts.calls, ..last }));
        context.targets.notes.extend(note);
    }
}

/// Returns true if the target is a single process that runs, without its children.
fn is_single_process(target: &Target) -> bool {
    matches!(target, Target::Pids { pids, children: false } if pids.len() == 1)
}

/// Reader of the processor time of the targets.
#[derive(Default)]
struct TargetTime {
    /// True for each image that the filter selected at the last reading. The results are kept, because the test of an
    /// image reads several files of procfs.
    is_selected: HashMap<ImageId, bool>,
    /// Targets that have left the registry.
    ended: Ended,
}

/// Numbers of ended targets.
#[derive(Clone, Copy, Default)]
struct Ended {
    /// Number of targets with unknown processor time.
    missing: usize,
    /// Number of targets with parents that may have got their processor time.
    passed: usize,
}

impl Ended {
    fn add(&mut self, pid: Pid, targets: &Targets, filter: &ProcessFilter) {
        if is_kept(pid, targets, filter) {
            self.passed += 1;
        } else {
            self.missing += 1;
        }
    }
}

impl TargetTime {
    /// Counts a target that has exited and left the registry.
    fn add_exit(&mut self, pid: Pid, targets: &Targets, filter: &ProcessFilter) {
        self.ended.add(pid, targets, filter);
    }

    /// Returns the processor time of the targets, and the numbers of ended targets.
    fn read(&mut self, targets: &Targets, filter: &ProcessFilter, tracker: &ProcessTracker) -> (Duration, Ended) {
        let selection = Selection::of(filter);
        let is_family = *filter == ProcessFilter::Families;
        let mut running: BTreeSet<_> = targets.command_pid().into_iter().collect();
        let mut ended = self.ended;
        let before = std::mem::take(&mut self.is_selected);
        for (&id, image) in tracker.images().iter().filter(|(id, _)| tracker.is_traced(id.pid)) {
            let is_selected = before.get(&id).copied().unwrap_or_else(|| selection.contains(tracker, id));
            self.is_selected.insert(id, is_selected);
            match image.ended {
                _ if !is_selected => {}
                Some((ImageEnd::Exec, _)) => {}
                Some(_) => ended.add(id.pid, targets, filter),
                None => _ = running.insert(id.pid),
            }
        }
        let time = |pid: &Pid| {
            let children = if is_family { procfs::processor_time_of_children(*pid) } else { None };
            Some(procfs::processor_time(*pid)? + children.unwrap_or_default())
        };
        (running.iter().filter_map(time).sum(), ended)
    }
}

/// Returns true if the time of a process can still count after its exit. The time of a child passes to the parent that
/// waits for it, and memtrace waits for its command at the end of the run.
fn is_kept(pid: Pid, targets: &Targets, filter: &ProcessFilter) -> bool {
    let is_family = *filter == ProcessFilter::Families;
    targets.command_pid() == Some(pid) || is_family && targets.pids().all(|named| named != pid)
}
