//! Activity of threads during a run: attaches the probes, and converts the records to spans and events.

mod lock_places;
mod sites;
mod wait_stacks;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::activity::{ActivityBuilder, ActivityCollector};
use memtrace_history::{Fact, facts, frames_of_calls};
use memtrace_host::kernel::{ActiveThreadState, ActivityReader, Kernel, ThreadActivity};
use memtrace_host::procfs::{self, FutexWaiter};
use memtrace_model::{
    Activity, ActivityChanges, CallSums, Comm, EventClass, FUNCTIONS, Frame, FutexUse, LossReason, Losses, Names,
    Nanoseconds, Object, Pid, StackId, StepKind, ThreadStep, Tick, Tid,
};

use self::lock_places::LockPlaces;
use self::wait_stacks::WaitStacks;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::observer::Observer;
use crate::targets::track::ProcessTracker;
use crate::trace::activity_changes::RecordedChanges;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::Part;
use crate::trace::recorder::Recorder;
use crate::trace::stack_copies::{FindCopy, find_copy};

/// Number of ticks between two readings of call durations for a recording. One reading takes place per second.
const CALLS_READ_EVERY: u32 = 10;

/// Maximum number of records in one read. The rest follows in the next read.
const MAX_RECORDS: usize = 100_000;

/// Activity of the threads of a run.
pub(super) struct RunActivity {
    reader: ActivityReader,
    builder: ActivityBuilder,
    collector: ActivityCollector,
    stacks: WaitStacks,
    places: LockPlaces,
    /// Minimum duration of a traced futex wait; `None` if waits are not traced.
    min_wait: Option<Duration>,
    /// Start of tracing, as time since tick 0.
    start: Duration,
    /// Durations of allocator calls; `None` if calls are not timed.
    calls: Option<TimedCalls>,
    /// True if the bytes that threads allocate are known.
    counts_bytes: bool,
}

/// Durations of the calls of allocators.
#[derive(Default)]
struct TimedCalls {
    /// Sums at the last reading, by the id of the function's name.
    sums: BTreeMap<u32, CallSums>,
    ticks: u32,
}

impl TimedCalls {
    /// Counts a tick. Returns true once in [`CALLS_READ_EVERY`] ticks.
    const fn are_due(&mut self) -> bool {
        self.ticks = self.ticks.wrapping_add(1);
        self.ticks.is_multiple_of(CALLS_READ_EVERY)
    }
}

impl RunActivity {
    /// Attaches the probes of a run with activity; returns `None` without activity.
    ///
    /// # Errors
    ///
    /// A function or a probe is not found, or cannot be attached.
    pub(super) fn attach(config: &Config, context: &mut Context) -> Result<Option<Self>, Error> {
        let Context { kernel, probes, targets, tracker, .. } = context;
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
            stacks: WaitStacks::new(),
            places: LockPlaces::default(),
            min_wait: activity.min_wait,
            start: Duration::ZERO,
            calls: activity.min_call.map(|_| TimedCalls::default()),
            counts_bytes: config.follows(EventClass::probes_allocators),
        }))
    }

    /// Reads the records since the last call, and returns the changes for a recording. The mmap events up to now are
    /// applied.
    fn read(&mut self, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>) -> RecordedChanges {
        let mut records = Vec::new();
        self.reader.drain(MAX_RECORDS, |record| records.push(record));
        for record in records {
            match record {
                ThreadActivity::Step(step) => self.builder.add(with_checked_threads(step)),
                ThreadActivity::Stack(pid, id, stack) => self.stacks.insert(pid, id, &stack),
            }
        }
        self.name_threads();
        self.take_changes(tracker, find_copy)
    }

    /// Ends all spans at the end of the trace, and returns the last changes. `end`: end of the trace, as time since
    /// tick 0.
    fn end_spans(
        &mut self,
        end: Duration,
        kernel: &Kernel,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) -> RecordedChanges {
        let mut all = self.read(tracker, find_copy);
        // The gate is closed, so no new records arrive and the loop ends.
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
        // Read the states after the last record. A record that arrives in between would look like a lost one.
        let states = kernel.active_threads();
        self.builder.end_lost_threads(&states.iter().map(|(thread, state)| (*thread, state.next_sequence)).collect());
        self.builder.count_missing(&kernel.begun_spans());
        if let Some(min_wait) = self.min_wait {
            self.add_pending_waits(end, min_wait, &states, tracker);
        }
        self.builder.finish(nanoseconds(end));
        all.calls = self.take_calls(kernel);
        all.append(self.take_changes(tracker, find_copy));
        for (pid, address, place) in self.places.take_names() {
            self.builder.set_place(pid, address, &place);
        }
        all.append(self.take_changes(tracker, find_copy));
        all
    }

    /// Reads the durations of allocator calls. Returns the calls since the last reading, by the id of the
    /// function's name.
    fn take_calls(&mut self, kernel: &Kernel) -> BTreeMap<u32, CallSums> {
        let Some(calls) = &mut self.calls else { return BTreeMap::new() };
        let times = kernel.call_times().into_iter();
        let now: BTreeMap<_, _> =
            times.map(|(function, sums)| (self.builder.name_of_function(function), sums)).collect();
        let none = CallSums::default();
        let since = |(name, sums): (&u32, &CallSums)| (*name, sums.since(calls.sums.get(name).unwrap_or(&none)));
        let new = now.iter().map(since).filter(|(_, sums)| sums.count > 0).collect();
        calls.sums = now;
        new
    }

    /// Returns the activity of the whole run, with the names of the stacks of waits.
    fn into_activity(self: Box<Self>, names: &dyn Names) -> Activity {
        let Self { collector, calls, stacks, counts_bytes, .. } = *self;
        let (numbers, calls_of) = stacks.into_calls();
        let frames = frames_of_calls(&calls_of, names);
        let labels = frames.iter().map(|frames| frames.iter().map(Frame::label).collect());
        collector.finish(calls.unwrap_or_default().sums, numbers.into_iter().zip(labels).collect(), counts_bytes)
    }

    /// Returns the losses in user space.
    fn losses(&self) -> Losses {
        let mut losses = self.builder.losses().clone();
        losses.add(LossReason::BadRecord, self.reader.bad_records());
        losses
    }

    /// Adds the futex waits that are not over at the end of the trace, such as the waits of a
    /// deadlock. A wait that began before the trace counts from the start of the trace.
    fn add_pending_waits(
        &mut self,
        end: Duration,
        min_wait: Duration,
        states: &BTreeMap<(Pid, Tid), ActiveThreadState>,
        tracker: &ProcessTracker,
    ) {
        let pids: Vec<Pid> = tracker.images().keys().map(|id| id.pid).filter(|pid| tracker.is_traced(*pid)).collect();
        for (pid, tid) in pids.into_iter().flat_map(|pid| procfs::threads(pid).into_iter().map(move |tid| (pid, tid))) {
            let Some(FutexWaiter { address, holder, usage }) = procfs::futex_wait(pid, tid) else { continue };
            let begin = states.get(&(pid, tid)).and_then(|state| state.wait_begin).unwrap_or(nanoseconds(self.start));
            let duration = Nanoseconds(nanoseconds(end).0.saturating_sub(begin.0));
            if duration < nanoseconds(min_wait) {
                continue;
            }
            let (waker, stack) = (None, StackId::NOT_TAKEN);
            let kind = StepKind::FutexWait { address, duration, holder, waker, usage, is_open: true, stack };
            let step = ThreadStep { pid, tid, at: nanoseconds(end), cpu: None, allocated: None, sequence: None, kind };
            self.builder.add(with_checked_threads(step));
        }
        self.name_threads();
    }

    fn name_threads(&mut self) {
        self.builder.take_unnamed().into_iter().for_each(|thread| self.name_thread(thread));
    }

    /// Gives a thread its current name, and the name of its process. A name is empty if its owner has exited.
    fn name_thread(&mut self, (number, pid, tid): (u32, Pid, Tid)) {
        let process = Comm::from(procfs::comm(pid).unwrap_or_default());
        let name = Comm::from(procfs::thread_name(pid, tid).unwrap_or_default());
        self.builder.name_thread((number, pid, tid), &process, &name);
    }

    fn take_changes(&mut self, tracker: &mut ProcessTracker, find_copy: &FindCopy<'_>) -> RecordedChanges {
        let changes = self.builder.take_changes();
        let frames = self.stacks.convert(&changes.stacks, tracker, find_copy);
        self.places.add(&changes.locks, tracker);
        self.collector.add(changes.clone());
        RecordedChanges { changes, frames, calls: BTreeMap::new() }
    }
}

impl Part for RunActivity {
    fn start(&mut self, context: &Context, recorded: &mut Vec<Fact>) {
        self.start = context.clock.start_tick.since_start();
        self.builder.set_start(nanoseconds(self.start));
        recorded.extend(self.counts_bytes.then(facts::of_span_bytes));
    }

    fn is_frequent(&self) -> bool {
        true
    }

    fn poll(&mut self, context: &mut Context) {
        let changes = self.read(&mut context.tracker, &find_copy(context.tables.finished_stacks()));
        record(changes, context);
    }

    fn tick(&mut self, context: &mut Context, _: &mut dyn Observer) {
        let is_due = self.calls.as_mut().is_some_and(TimedCalls::are_due);
        if is_due && context.recorder.as_ref().is_some_and(Recorder::is_viewed) {
            let calls = self.take_calls(&context.kernel);
            record(RecordedChanges { changes: ActivityChanges::default(), frames: BTreeMap::new(), calls }, context);
        }
    }

    fn objects(&self) -> Vec<&Arc<Object>> {
        self.stacks.objects().chain(self.places.objects()).collect()
    }

    fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.stacks.forget_files(closed);
        self.places.forget_files(closed);
    }

    fn read_rest(&mut self, end: Tick, context: &mut Context, facts: &mut Facts) {
        let Context { kernel, tracker, tables, .. } = context;
        let changes = self.end_spans(end.since_start(), kernel, tracker, &find_copy(tables.finished_stacks()));
        record(changes, context);
        facts.losses.merge(&self.losses());
    }

    fn finish(self: Box<Self>, _: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        facts.activity = Some(Box::new(move |names: &dyn Names| self.into_activity(names)));
    }
}

/// Adds changes to the history, if a recording or another output shows moments before the end.
fn record(changes: RecordedChanges, context: &mut Context) {
    let Context { recorder, tracker, tables, .. } = context;
    if let Some(recorder) = recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
        recorder.add_activity(changes, tracker, &find_copy(tables.finished_stacks()));
    }
}

/// Removes the futex holder from a step, unless the holder is another thread of the process. The BPF program reads the holder
/// from memory that may not be a mutex. For a join, the holder is the joined thread. If the wait has ended, the joined thread
/// is the waker.
fn with_checked_threads(mut step: ThreadStep) -> ThreadStep {
    if let StepKind::FutexWait { holder, waker, usage, .. } = &mut step.kind {
        if *usage == FutexUse::Join && waker.is_some() {
            *holder = *waker;
            return step;
        }
        let is_thread = |tid: &Tid| *tid != step.tid && procfs::thread_name(step.pid, *tid).is_some();
        *holder = holder.filter(is_thread);
        if matches!(usage, FutexUse::MaybeJoin | FutexUse::Join) {
            *usage = if holder.is_some() { FutexUse::Join } else { FutexUse::Unknown };
        }
    }
    step
}

fn nanoseconds(time: Duration) -> Nanoseconds {
    Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
