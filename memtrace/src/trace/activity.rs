//! Activity of threads during a run: attaches its probes, reads its records, and collects slices and events.

mod sites;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::activity::{ActivityBuilder, ActivityCollector};
use memtrace_history::{Fact, facts};
use memtrace_history::{LiveCall, LivePaths, frames_of_calls};
use memtrace_host::kernel::{ActivityReader, Kernel, Probes, ThreadActivity};
use memtrace_host::procfs::{self, FutexWaiter};
use memtrace_model::{
    Activity, CallSums, Comm, EventClass, FUNCTIONS, Frame, LossReason, Losses, Names, Nanoseconds, Node, Object, Pid,
    StackId, Stacks, StepKind, ThreadStep, Tid,
};
use memtrace_object::symbolize::ImageCode;
use rustc_hash::FxHashMap;

use super::activity_changes::RecordedChanges;
use super::stack_copies::FindCopy;
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::Targets;
use crate::targets::track::{ProcessTracker, generated_code};
use crate::trace::config::Config;

/// The most records that are read in one go. The rest follows in the next tick.
const MAX_RECORDS: usize = 100_000;

/// The most call paths of waits.
const MAX_PATHS: usize = 1 << 16;

/// The most stacks with known paths. A stack that occurs again after they were forgotten has its frames sent again, sooner or
/// later.
const MAX_KNOWN: usize = 1 << 16;

/// Bytes of the names of generated code in the stacks of waits.
const MAX_NAME_BYTES: usize = 1 << 20;

/// The most frames that are shown of a wait.
const MAX_FRAMES: usize = 32;

/// Activity of the threads of a run.
pub(super) struct RunActivity {
    reader: ActivityReader,
    builder: ActivityBuilder,
    collector: ActivityCollector,
    paths: LivePaths,
    /// Frames of stacks that have arrived, by process, until they are converted.
    frames: BTreeMap<Pid, Stacks>,
    /// Stacks of waits by number: their calls, the innermost first.
    stacks: BTreeMap<u32, Vec<LiveCall>>,
    /// Call paths of stacks.
    known: FxHashMap<StackId, Node>,
    /// Stacks that slices refer to, and that have no calls yet.
    waiting: Vec<(u32, Pid, StackId)>,
    /// Shortest wait for a futex; `None` if they are not traced.
    min_wait: Option<Duration>,
    /// Start of tracing, since the start of the clock.
    start: Duration,
    /// Calls of allocators are timed.
    times_calls: bool,
    calls: BTreeMap<u32, CallSums>,
    /// Bytes that threads allocate are known.
    counts_bytes: bool,
}

impl RunActivity {
    /// Attaches the probes of a run with activity; `None` without. The trace starts at `start`.
    ///
    /// # Errors
    ///
    /// Those of the probes.
    pub(super) fn attach(
        kernel: &mut Kernel,
        probes: &mut Probes,
        config: &Config,
        targets: &Targets,
        tracker: &ProcessTracker,
    ) -> Result<Option<Self>, Error> {
        let Some(activity) = &config.activity else { return Ok(None) };
        let reader = kernel.take_activity().map_err(|error| from_engines::kernel(None, error))?;
        let Some(reader) = reader else { return Ok(None) };
        let sites = sites::attach(kernel, probes, activity, targets, tracker)?;
        let mut builder = ActivityBuilder::new(sites);
        builder.set_functions(FUNCTIONS.iter().map(|function| function.name.to_owned()).collect());
        Ok(Some(Self {
            reader,
            builder,
            collector: ActivityCollector::default(),
            paths: LivePaths::new(MAX_PATHS, MAX_NAME_BYTES),
            frames: BTreeMap::new(),
            stacks: BTreeMap::new(),
            known: FxHashMap::default(),
            waiting: Vec::new(),
            min_wait: activity.min_wait,
            start: Duration::ZERO,
            times_calls: activity.min_call.is_some(),
            calls: BTreeMap::new(),
            counts_bytes: config.follows(EventClass::probes_allocators),
        }))
    }

    /// Returns the fact for a recording that the bytes that threads allocate are known, if they are.
    pub(super) fn fact(&self) -> Option<Fact> {
        self.counts_bytes.then(facts::of_slice_bytes)
    }

    /// Sets the start of tracing, since the start of the clock.
    pub(super) fn start(&mut self, start: Duration) {
        self.start = start;
        self.builder.set_start(nanoseconds(start));
    }

    /// Reads the records since the last call. The mmap events up to now are applied. Returns the changes, for a recording.
    pub(super) fn read(&mut self, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>) -> RecordedChanges {
        let mut records = Vec::new();
        self.reader.drain(MAX_RECORDS, |record| records.push(record));
        for record in records {
            match record {
                ThreadActivity::Step(step) => self.builder.add(with_checked_holder(step)),
                ThreadActivity::Stack(pid, id, stack) => self.frames.entry(pid).or_default().insert(id, &stack),
            }
        }
        self.name_threads();
        self.take_changes(tracker, find_copy)
    }

    /// Ends all slices at the end of the trace, `end` after the start of the clock, and returns the last changes.
    pub(super) fn finish(
        &mut self,
        end: Duration,
        kernel: &Kernel,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) -> RecordedChanges {
        let mut all = self.read(tracker, find_copy);
        // The gate is closed, so that this ends.
        loop {
            let more = self.read(tracker, find_copy);
            if more.changes.is_empty() {
                break;
            }
            all.append(more);
        }
        for (thread, pid, tid) in self.builder.running() {
            self.name_thread((thread, pid, tid));
        }
        if let Some(min_wait) = self.min_wait {
            self.add_pending_waits(end, min_wait, kernel, tracker);
        }
        self.builder.finish(nanoseconds(end));
        all.calls = self.take_calls(kernel);
        all.append(self.take_changes(tracker, find_copy));
        all
    }

    /// Reads the durations of the calls of allocators. Returns the calls since the last time, by the number of the name of the
    /// function.
    pub(super) fn take_calls(&mut self, kernel: &Kernel) -> BTreeMap<u32, CallSums> {
        if !self.times_calls {
            return BTreeMap::new();
        }
        let times = kernel.call_times().into_iter();
        let now: BTreeMap<_, _> =
            times.map(|(function, sums)| (self.builder.name_of_function(function), sums)).collect();
        let none = CallSums::default();
        let since = |(name, sums): (&u32, &CallSums)| (*name, sums.since(self.calls.get(name).unwrap_or(&none)));
        let new = now.iter().map(since).filter(|(_, sums)| sums.count > 0).collect();
        self.calls = now;
        new
    }

    /// Returns the activity of the whole run, with the names of the stacks of waits.
    pub(super) fn into_activity(self, names: &dyn Names) -> Activity {
        let Self { collector, calls, stacks, counts_bytes, .. } = self;
        let (numbers, calls_of): (Vec<u32>, Vec<_>) = stacks.into_iter().unzip();
        let frames = frames_of_calls(&calls_of, names);
        let labels = frames.iter().map(|frames| frames.iter().map(Frame::label).collect());
        collector.finish(calls, numbers.into_iter().zip(labels).collect(), counts_bytes)
    }

    /// Returns the losses in user space.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.builder.losses().clone();
        losses.add(LossReason::BadRecord, self.reader.bad_records());
        losses
    }

    /// Returns the objects of the stacks, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.paths.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.paths.forget_files(closed);
    }

    /// Adds the waits for futexes that last at the end of the trace, such as those of a deadlock. Those that began before the trace
    /// began with it.
    fn add_pending_waits(&mut self, end: Duration, min_wait: Duration, kernel: &Kernel, tracker: &ProcessTracker) {
        let begins = kernel.pending_waits();
        let pids: Vec<Pid> = tracker.images().keys().map(|id| id.pid).filter(|pid| tracker.is_traced(*pid)).collect();
        for (pid, tid) in pids.into_iter().flat_map(|pid| procfs::threads(pid).into_iter().map(move |tid| (pid, tid))) {
            let Some(FutexWaiter { address, holder }) = procfs::futex_wait(pid, tid) else { continue };
            let begin = begins.get(&tid).copied().unwrap_or(nanoseconds(self.start));
            let duration = Nanoseconds(nanoseconds(end).0.saturating_sub(begin.0));
            if duration < nanoseconds(min_wait) {
                continue;
            }
            let stack = StackId::NOT_TAKEN;
            let kind = StepKind::FutexWait { address, duration, holder, is_open: true, stack };
            let step = ThreadStep { pid, tid, at: nanoseconds(end), cpu: None, allocated: None, kind };
            self.builder.add(with_checked_holder(step));
        }
        self.name_threads();
    }

    fn name_threads(&mut self) {
        self.builder.take_unnamed().into_iter().for_each(|thread| self.name_thread(thread));
    }

    /// Names a thread that runs. It may have exited, and its name may change.
    fn name_thread(&mut self, (number, pid, tid): (u32, Pid, Tid)) {
        let process = Comm::from(procfs::comm(pid).unwrap_or_default());
        let name = Comm::from(procfs::thread_name(pid, tid).unwrap_or_default());
        self.builder.name_thread((number, pid, tid), &process, &name);
    }

    fn take_changes(&mut self, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>) -> RecordedChanges {
        let changes = self.builder.take_changes();
        self.waiting.extend(changes.stacks.iter().copied());
        // Frames that user space has found arrive later.
        for &(_, pid, id) in &self.waiting {
            if !self.known.contains_key(&id)
                && let Some((_, Some(stack))) = find_copy(pid, id)
            {
                self.frames.entry(pid).or_default().insert(id, &stack);
            }
        }
        let mut frames = BTreeMap::new();
        for (pid, stacks) in std::mem::take(&mut self.frames) {
            let id = tracker.latest_id(pid);
            let generated = generated_code::of_image(tracker, id);
            let Some(image) = tracker.images().get(&id) else { continue };
            let mut code = ImageCode::new(image, generated.as_ref());
            let converted = self.paths.convert(image, &stacks, &mut code);
            self.known.extend(converted.into_iter().map(|(stack, path, _)| (stack, path)));
            frames.insert(id, stacks);
        }
        let Self { waiting, known, stacks, paths, .. } = self;
        waiting.retain(|(number, _, id)| match known.get(id) {
            Some(&path) => {
                stacks.insert(*number, paths.calls(path).take(MAX_FRAMES).collect());
                false
            }
            None => true,
        });
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        self.collector.add(changes.clone());
        RecordedChanges { changes, frames, calls: BTreeMap::new() }
    }
}

/// Returns a step whose holder of a futex is a thread of the process: the BPF program takes it from memory that may not be a
/// mutex.
fn with_checked_holder(mut step: ThreadStep) -> ThreadStep {
    if let StepKind::FutexWait { holder, .. } = &mut step.kind {
        let is_thread = |tid: &Tid| *tid != step.tid && procfs::thread_name(step.pid, *tid).is_some();
        *holder = holder.filter(is_thread);
    }
    step
}

/// Returns a time in nanoseconds.
fn nanoseconds(time: Duration) -> Nanoseconds {
    Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
