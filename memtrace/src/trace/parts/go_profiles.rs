//! Heap profiles that Go programs keep. They are read from outside, and their changes become events of the ledger.

mod moments;
mod process;
mod reader_threads;
mod schedule;
mod stack_budget;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::procfs;
use memtrace_model::{
    Bytes, ImageId, LossReason, Losses, SampleSource, Sampler, Samplers, Tick, UntracedReason, plain,
};
use memtrace_object::go::ProfileError;

use self::moments::Moments;
use self::process::{FirstReading, GoProcess};
use self::reader_threads::{Answer, Failure, Program, ReaderThreads};
use self::schedule::{Schedule, pause};
pub(in crate::trace) use self::stack_budget::ProfileLimits;
use self::stack_budget::StackBudget;
use super::rechecks::Rechecks;
use super::recorded_samplers::RecordedSamplers;
use crate::run_kit::error::Error;
use crate::run_kit::go_profile::{GoExecutables, GoObstacle};
use crate::run_kit::observer::Observer;
use crate::targets::select::Selection;
use crate::targets::track::{Changes, generated_code};
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::{LeftImage, Part};

/// Shortest time between two readings of a process.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum of this shortest time. The interval of a recording can lengthen it.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
/// Time for the first readings before the trace begins. Later ones follow during the trace.
const FIRST: Duration = Duration::from_secs(1);
/// If no answer arrives for this time, the trace begins: processes that hold a lock of their memory must not delay it. The
/// examination of an executable of 100 MB takes about 0.2 seconds.
const PATIENCE: Duration = Duration::from_millis(250);
/// Time for the last readings at the end of the trace.
const LAST: Duration = Duration::from_secs(2);
/// Interval of the checks whether a program has entered or left the selection, or can be read now.
const RECHECK: Duration = Duration::from_secs(10);
/// Maximum number of checks of programs in each tick.
const MOST_CHECKS: usize = 100;
/// Time for the child of a fork to call exec. Most children do so at once.
const EXEC: Duration = Duration::from_secs(1);

/// Reads the profiles of the Go programs in scope when more collections have finished.
pub(super) struct GoProfiles {
    threads: ReaderThreads,
    executables: Arc<GoExecutables>,
    /// Sizes of the blocks that count.
    sizes: RangeInclusive<Bytes>,
    interval: Duration,
    budget: StackBudget,
    processes: BTreeMap<ImageId, GoProcess>,
    schedule: Schedule,
    /// Process whose next reading may add all free stacks. No other reading begins before it.
    whole: Option<ImageId>,
    /// Go programs that are not read yet: those outside of the selection, new children of forks, and those that do not fit.
    rechecks: Rechecks,
    /// Programs that are read no more.
    given_up: BTreeSet<ImageId>,
    /// Programs that did not fit.
    unfit: BTreeSet<ImageId>,
    is_closing: bool,
    /// Answers whose processes may have called exec during the reading: the mmap events up to now are not applied yet.
    arrived: Vec<Answer>,
    losses: Losses,
    /// Reasons with a message.
    noted: BTreeSet<UntracedReason>,
    /// Messages that were not shown yet, each with its process and its reason.
    messages: Vec<(ImageId, UntracedReason, String)>,
    samplers: Samplers,
    recorded: RecordedSamplers,
    moments: Moments,
}

impl GoProfiles {
    /// Reads the profiles of the running programs. Returns `None` if the run reads no profiles that targets keep.
    pub(super) fn start(config: &Config, limits: ProfileLimits, context: &mut Context) -> Result<Option<Self>, Error> {
        if !config.reads_own_profiles() {
            return Ok(None);
        }
        let executables = Arc::new(GoExecutables::default());
        let threads = ReaderThreads::start(&executables)
            .map_err(|error| Error::Failed(format!("cannot start the threads that read heap profiles: {error}")))?;
        let sizes = config.heap.min_size.unwrap_or(Bytes(0))..=config.heap.max_size.unwrap_or(Bytes(u64::MAX));
        let interval = config.recording.as_ref().map_or(INTERVAL, |recording| recording.interval);
        let mut profiles = Self {
            threads,
            executables,
            sizes,
            interval: interval.clamp(INTERVAL, LONGEST_INTERVAL),
            budget: StackBudget::new(limits),
            processes: BTreeMap::new(),
            schedule: Schedule::default(),
            whole: None,
            rechecks: Rechecks::default(),
            given_up: BTreeSet::new(),
            unfit: BTreeSet::new(),
            is_closing: false,
            arrived: Vec::new(),
            losses: Losses::default(),
            noted: BTreeSet::new(),
            messages: Vec::new(),
            samplers: Samplers::default(),
            recorded: RecordedSamplers::default(),
            moments: Moments::default(),
        };
        profiles.find_new(context);
        profiles.read_until(Instant::now() + FIRST, PATIENCE, context);
        profiles.handle_failed(context);
        Ok(Some(profiles))
    }

    /// Adds the Go programs that have started since the last call, the largest first.
    fn find_new(&mut self, context: &mut Context) {
        let Context { tracker, filter, kernel, clock, .. } = context;
        let now = Instant::now();
        let new = tracker.own_profiles.take_new();
        let mut found: BTreeSet<_> = new.into_iter().map(|pid| tracker.latest_id(pid)).collect();
        found.extend(match self.is_closing {
            true => self.rechecks.take_all(),
            false => self.rechecks.take_due(now, MOST_CHECKS),
        });
        found.retain(|id| !self.processes.contains_key(id) && !self.given_up.contains(id));
        if found.is_empty() {
            return;
        }
        let selection = Selection::of(filter);
        let mut added = Vec::new();
        for id in found {
            let image = tracker.images().get(&id).filter(|image| image.ended.is_none() && tracker.is_traced(id.pid));
            let Some((image, program)) = image.zip(tracker.go_program(id)) else { continue };
            if !selection.contains(tracker, id) {
                self.rechecks.set(id, now + RECHECK);
                continue;
            }
            let first = FirstReading::of(image.start, clock.start_tick);
            if first == FirstReading::Inherited {
                let age = image.start.tick().map(|at| clock.now().since_start().saturating_sub(at.since_start()));
                if !self.is_closing && age.is_some_and(|age| age < EXEC) {
                    self.rechecks.set(id, now + EXEC);
                    continue;
                }
                // After vfork(2), the memory belongs to the parent, and the blocks count for the parent only.
                if kernel.is_memory_sharer(id.pid) {
                    tracker.own_profiles.set_read(id);
                    self.rechecks.set(id, now + RECHECK);
                    continue;
                }
            }
            let rss = procfs::counted(id.pid).map(|counted| counted.rss).unwrap_or_default();
            added.push((id, GoProcess::new(Program::New(program.clone()), rss, first, now + RECHECK)));
        }
        added.sort_by_key(|(_, process)| Reverse(process.rss));
        for (id, process) in added {
            if !self.budget.has_room(self.processes.len()) {
                self.losses.add(LossReason::ProfilesFull, u64::from(self.unfit.insert(id)));
                tracker.own_profiles.set_unread(id, UntracedReason::GoProfilesFull);
                self.rechecks.set(id, now + RECHECK);
                continue;
            }
            self.schedule.add(now, process.rss, id);
            self.processes.insert(id, process);
        }
    }

    /// Requests the readings that are due.
    fn send_due(&mut self, context: &Context) {
        let now = Instant::now();
        let mut selection = None;
        while self.threads.have_room() {
            let waiting = self.whole.take().filter(|id| self.processes.contains_key(id));
            let Some(id) = waiting.or_else(|| self.schedule.take_due(now)) else { return };
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if process.next_check <= now {
                process.next_check = now + RECHECK;
                let selection = selection.get_or_insert_with(|| Selection::of(&context.filter));
                if !selection.contains(&context.tracker, id) {
                    self.schedule.add(process.next_check, process.rss, id);
                    continue;
                }
            }
            if process.needs_all && self.budget.has_grants() {
                self.whole = Some(id);
                return;
            }
            process.begin_reading();
            process.granted = self.budget.grant(id.pid, process.needs_all);
            self.threads.send(id, process.program.clone(), process.known());
        }
    }

    /// Receives the answers that arrive within `time`. Returns false if there are none.
    fn receive(&mut self, time: Duration, context: &mut Context) -> bool {
        let (mut time, mut has_received) = (time, false);
        while let Some(answer) = self.threads.receive(time) {
            let accepted = self.accept(answer, context);
            self.arrived.extend(accepted);
            (time, has_received) = (Duration::ZERO, true);
        }
        has_received
    }

    /// Reads until no reading is due, until `deadline`, or until no answer has arrived for the time `patience`.
    fn read_until(&mut self, deadline: Instant, patience: Duration, context: &mut Context) {
        loop {
            self.send_due(context);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.threads.pending() == 0 || !self.receive(left.min(patience), context) {
                return;
            }
        }
    }

    /// Records the state of the process, and plans its next reading. Returns the answer if its profile has changed, or could not
    /// be read.
    fn accept(&mut self, answer: Answer, context: &mut Context) -> Option<Answer> {
        let id = answer.id;
        let process = self.processes.get_mut(&id)?;
        if let Some(profile) = &answer.profile {
            process.program = Program::Open(Arc::clone(profile));
        }
        let count = answer.result.as_ref().ok().and_then(Option::as_ref).map_or(0, |profile| profile.buckets.len());
        let new = count.saturating_sub(process.stacks);
        process.stacks += new;
        self.budget.settle(id.pid, std::mem::take(&mut process.granted), new);
        let profile = match &answer.result {
            Ok(None) => {
                process.failures = 0;
                self.plan(id, answer.took);
                return None;
            }
            Ok(Some(profile)) => profile,
            Err(Failure::Read(error)) if is_too_large(error) && !process.needs_all => {
                process.needs_all = true;
                self.schedule.add(Instant::now(), process.rss, id);
                return None;
            }
            Err(_) => return Some(answer),
        };
        process.failures = 0;
        process.needs_all = false;
        context.tracker.own_profiles.set_read(id);
        let sampler = Sampler { source: SampleSource::Go, interval: Some(profile.rate) };
        self.samplers.add(id.pid, sampler);
        self.losses.add(LossReason::BucketChanged, profile.changed);
        self.plan(id, answer.took);
        Some(answer)
    }

    /// Plans the next reading of a process, unless the trace ends. `took`: duration of the last one.
    fn plan(&mut self, id: ImageId, took: Duration) {
        if let Some(process) = self.processes.get(&id).filter(|_| !self.is_closing) {
            let pause = pause(self.interval, self.processes.len(), took);
            self.schedule.add(Instant::now() + pause, process.rss, id);
        }
    }

    /// Handles the readings that have failed. The mmap events up to now should be applied: after an exec, the failure says nothing.
    fn handle_failed(&mut self, context: &mut Context) {
        let arrived = std::mem::take(&mut self.arrived);
        let (failed, read): (Vec<_>, Vec<_>) = arrived.into_iter().partition(|answer| answer.result.is_err());
        self.arrived = read;
        for Answer { id, result, took, .. } in failed {
            if let Err(failure) = result {
                self.fail(id, &failure, took, context);
            }
        }
    }

    /// Handles a failed reading: it is repeated later, or the process is given up.
    fn fail(&mut self, id: ImageId, failure: &Failure, took: Duration, context: &mut Context) {
        if !is_running(id, context) {
            return;
        }
        let obstacle = match failure {
            Failure::Read(error) if is_too_large(error) => {
                self.losses.add(LossReason::ProfilesFull, 1);
                self.give_up(id, UntracedReason::GoProfilesFull, context);
                return;
            }
            Failure::Closed(obstacle) => obstacle.clone(),
            // The image has ended: its last reading stands.
            Failure::Read(ProfileError::Memory(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Failure::Read(error) => GoObstacle::from(error),
        };
        log::debug!("process {}: its heap profile is not read: {}", id.pid, obstacle.text);
        if procfs::has_ended(id.pid) {
            return;
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_off = matches!(failure, Failure::Read(ProfileError::RateIsZero));
        let is_final = process.add_failure(is_off) || obstacle.is_final;
        if process.was_read {
            self.losses.add(LossReason::ProfileUnread, 1);
        }
        // A program may switch sampling on at its start, so its first failure gets no message.
        if (is_final || process.failures > 1) && !self.noted.contains(&obstacle.reason) {
            let comm = procfs::comm(id.pid).unwrap_or_default();
            let (pid, text) = (id.pid, &obstacle.text);
            let message = format!("the heap profile of process {pid} ({}) is not read: {text}", plain(&comm));
            self.messages.push((id, obstacle.reason, message));
        }
        if is_final {
            self.give_up(id, obstacle.reason, context);
        } else {
            context.tracker.own_profiles.set_unread(id, obstacle.reason);
            self.plan(id, took);
        }
    }

    /// Stops to read a process. If it was read before, its last reading stands.
    fn give_up(&mut self, id: ImageId, reason: UntracedReason, context: &mut Context) {
        context.tracker.own_profiles.set_unread(id, reason);
        self.remove(id);
        self.given_up.insert(id);
    }

    fn remove(&mut self, id: ImageId) {
        if let Some(process) = self.processes.remove(&id) {
            self.budget.settle(id.pid, process.granted, 0);
            self.budget.release(id.pid, process.stacks);
        }
    }

    /// Passes the answers that have arrived to the shards. The mmap events up to now must be applied.
    fn apply_arrived(&mut self, context: &mut Context) {
        self.handle_failed(context);
        let mut has_changed = false;
        for Answer { id, result, end, .. } in std::mem::take(&mut self.arrived) {
            let Ok(Some(profile)) = result else { continue };
            let Some(process) = self.processes.get_mut(&id) else { continue };
            let at = context.clock.tick_at(end);
            // The process may have called exec before the end of the reading. After the end of an image, the ledgers may have
            // ended it too. In both cases, the reading is dropped.
            if !is_running(id, context) {
                log::debug!("process {}: a reading of its heap profile came after the end of the image", id.pid);
                continue;
            }
            log::debug!("process {}: its heap profile was read: {} stacks", id.pid, profile.buckets.len());
            let allocator = context.tracker.allocators.go_id();
            if process.reads_older_blocks() {
                self.moments.set_older(id, context.clock.now());
            }
            let (events, decreased) = process.events(id, &profile, at, allocator, &self.sizes);
            self.losses.add(LossReason::BucketChanged, decreased);
            self.moments.set(id, process.seen);
            context.shards.apply(id, events);
            has_changed = true;
        }
        if has_changed {
            self.moments.record(context);
        }
    }
}

/// Returns true if a profile has more stacks, or longer ones, than the reading was permitted to add.
const fn is_too_large(error: &ProfileError) -> bool {
    matches!(error, ProfileError::TooManyBuckets(_) | ProfileError::TooManyFrames(_))
}

/// Returns true if the image has not ended, as far as the mmap events are applied.
fn is_running(id: ImageId, context: &Context) -> bool {
    context.tracker.images().get(&id).is_some_and(|image| image.ended.is_none())
}

/// Applies the mmap events up to now.
fn follow(context: &mut Context) {
    let Changes { allocators, remapped } = context.tracker.poll();
    context.tracker.put_back(allocators);
    generated_code::add_of(&mut context.tracker, &remapped);
}

impl Part for GoProfiles {
    fn is_frequent(&self) -> bool {
        true
    }

    fn poll(&mut self, context: &mut Context) {
        for id in context.shards.take_refused() {
            if let Some(process) = self.processes.get_mut(&id) {
                process.is_refused = true;
            }
        }
        self.apply_arrived(context);
        self.receive(Duration::ZERO, context);
        self.send_due(context);
    }

    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.find_new(context);
        self.recorded.update(&self.samplers, context);
        self.moments.record(context);
        for (id, reason, message) in self.messages.drain(..) {
            // The process may have called exec during the reading. Then the message is not shown.
            if is_running(id, context) && self.noted.insert(reason) {
                observer.note(&message);
            }
        }
    }

    fn image_left(&mut self, left: &LeftImage<'_>, _: &mut Context) {
        self.remove(left.id);
        self.rechecks.remove(left.id);
        self.given_up.remove(&left.id);
        self.unfit.remove(&left.id);
        self.moments.end(left.id);
        // If the process has called exec, and the next image is a Go program too, the sampler of the process stays.
        let next = self.processes.range(left.id..).next();
        if next.is_none_or(|(next, _)| next.pid != left.id.pid) {
            self.samplers.end_image(left.id.pid, left.end);
        }
    }

    fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.executables.forget(closed);
    }

    fn close(&mut self, context: &mut Context) {
        follow(context);
        self.apply_arrived(context);
        self.is_closing = true;
        self.find_new(context);
        let now = Instant::now();
        for id in self.schedule.take_all().into_iter().chain(self.whole.take()) {
            if let Some(process) = self.processes.get_mut(&id) {
                process.read_again();
                self.schedule.add(now, process.rss, id);
            }
        }
        self.read_until(now + LAST, LAST, context);
        let (now, waiting) = (Instant::now(), usize::from(self.whole.take().is_some()));
        let mut unread = self.threads.pending() + waiting;
        while self.schedule.take_due(now).is_some() {
            unread += 1;
        }
        self.losses.add(LossReason::ProfileUnread, unread as u64);
        // An exec during a reading is known only after the mmap events are applied.
        follow(context);
        self.apply_arrived(context);
    }

    fn read_rest(&mut self, _: Tick, _: &mut Context, facts: &mut Facts) {
        facts.losses.merge(&self.losses);
    }

    fn finish(self: Box<Self>, _: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        facts.samplers.merge(&self.samplers);
        facts.go_profiles = self.moments.all();
    }
}
