//! Patched processes (`--allow-patching`): changes the code of their allocators so that they take samples, attaches the probes
//! that report the samples, and restores the code at the end.

mod candidates;
mod changes;
mod compare;
mod coverage;
mod current_change;
mod images;
mod patcher_thread;
mod plan;
mod probes;
mod rate;
mod restore;
mod sites;
mod state;
mod stub_file;
mod watch;
mod watch_list;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memtrace_host::kernel::ThreadFilter;
use memtrace_host::patcher::Stops;
use memtrace_host::procfs::{self, ControlPage};
use memtrace_model::{
    AbsAddr, Bytes, EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, LossReason, Losses, PatchedProcess, Pid,
    ProcessImage, Tick, format, printable,
};

use self::candidates::{Activity, Candidates, LEAST_AGE, Verdict};
use self::compare::{IndependentCounts, compare};
use self::coverage::{Coverage, Source};
use self::current_change::CurrentChange;
use self::images::{age, copied_code, has_copied_stub, has_own_source, maps_libc, running};
use self::patcher_thread::PatcherThread;
use self::state::{State, source_in};
use self::watch::{MOST_LOST, Watched};
use self::watch_list::{WatchList, read_last};
use super::lock_waits::{LastLockWaits, note_of_unread};
use super::recorded_samplers::RecordedSamplers;
use super::samplers::has_samples;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::forced_end;
use crate::run_kit::observer::Observer;
use crate::targets::select::{Selection, Target};
use crate::targets::track::generated_code;
use crate::trace::config::Config;
use crate::trace::context::{Context, PatchRequest};
use crate::trace::facts::Facts;
use crate::trace::part::{LeftImage, Part};

/// Time between two checks of a process that another source covers, or that is not selected.
const RECHECK: Duration = Duration::from_secs(10);

/// Age at which a child with a copy of a stub is watched. Most children call exec before.
const FOLLOW_AGE: Duration = Duration::from_millis(200);

/// Time between two checks of a process that maps its libraries.
const SOON: Duration = Duration::from_millis(20);

/// Time for the changes of the targets before the trace begins. Later ones follow during the trace.
const BEFORE: Duration = Duration::from_secs(30);

/// Time for a target to call one of its patched functions before the trace begins.
const FIRST_CALL: Duration = Duration::from_millis(250);

/// Time to restore the code of all processes at the end.
const RESTORE: Duration = Duration::from_secs(45);

/// Time to restore the code of children that are not traced, and for further attempts.
const RESTORE_OTHERS: Duration = Duration::from_secs(15);

/// Longest wait for an answer of the patcher before the trace begins.
const WAIT: Duration = Duration::from_millis(50);

/// Maximum number of processes in the report, of processes in it that end during the trace, and of processes in a note.
/// Processes that run until the end get the other places, because they have run the longest.
const MAX_LISTED: usize = 5000;
const MOST_ENDED: usize = 1000;
const MAX_NAMED: usize = 8;

/// Maximum number of notes about samples that contradict other counts.
const MAX_COMPARED: usize = 20;

/// Settings of a run.
#[derive(Debug)]
struct Settings {
    /// True if processes are selected by their properties.
    is_selection: bool,
    /// Processes that were selected by their pids, and the command.
    roots: BTreeSet<Pid>,
    /// True if no filter leaves out blocks, so that the samples of a process stand for all of its blocks.
    is_unfiltered: bool,
    /// Maximum number of patched processes.
    most: usize,
    /// Pid and start time of this memtrace.
    owner: (u32, u64),
}

/// Patched processes of a run, and those that may be patched.
pub(super) struct RunPatches {
    settings: Settings,
    /// True if all processes in scope are sampled, false if only those that another part names.
    is_active: bool,
    /// `None` if no code may be changed.
    thread: Option<PatcherThread>,
    states: BTreeMap<ImageId, State>,
    candidates: Candidates,
    /// Processes that are patched next.
    ready: VecDeque<ImageId>,
    change: CurrentChange,
    /// Number of failed attempts.
    attempts: BTreeMap<ImageId, u32>,
    /// Processes whose calls were traced, and whose blocks are sampled instead.
    replaced: BTreeSet<ImageId>,
    /// Earliest time of the next change of a process.
    next_change: Instant,
    list: WatchList,
    /// Anonymous memory of each patched process at its change.
    anonymous: BTreeMap<ImageId, Bytes>,
    /// True if the code of a process was ever changed, perhaps without an answer of the patcher.
    has_patched: bool,
    coverage: Coverage,
    finished: Vec<PatchedProcess>,
    /// Number of patched processes that the report does not list.
    left_out: u64,
    /// Counts of the processes that were patched at the end.
    at_end: BTreeMap<ImageId, IndependentCounts>,
    recorded: RecordedSamplers,
    losses: Losses,
    /// Notes that were not shown yet.
    notes: Vec<String>,
    has_noted_limit: bool,
    is_closing: bool,
}

impl RunPatches {
    /// Patches the processes that were selected by their pids. Returns `None` if the run neither samples nor may patch processes.
    /// `most`: maximum number of patched processes.
    ///
    /// # Errors
    ///
    /// The only target cannot be sampled.
    pub(super) fn start(config: &Config, most: usize, context: &mut Context) -> Result<Option<Self>, Error> {
        let is_active = context.sampling.is_some();
        if !config.follows(EventClass::probes_allocators) || !(is_active || config.allow_patching) {
            return Ok(None);
        }
        let failed = |error| Error::Failed(format!("cannot start the thread that patches processes: {error}"));
        let thread = config.allow_patching.then(PatcherThread::start).transpose().map_err(failed)?;
        let (own, now) = (std::process::id(), Instant::now());
        let has_size_filter = config.heap.min_size.or(config.heap.max_size).is_some();
        let mut patches = Self {
            settings: Settings {
                is_selection: matches!(config.target, Target::Selected { .. }),
                roots: context.targets.pids().collect(),
                is_unfiltered: !has_size_filter && config.threads == ThreadFilter::default(),
                most,
                owner: (own, procfs::start_time(Pid(own)).unwrap_or_default()),
            },
            is_active,
            thread,
            states: BTreeMap::new(),
            candidates: Candidates::default(),
            ready: VecDeque::new(),
            change: CurrentChange::default(),
            attempts: BTreeMap::new(),
            replaced: BTreeSet::new(),
            next_change: now,
            list: WatchList::new(context.sampling.unwrap_or_default()),
            anonymous: BTreeMap::new(),
            has_patched: false,
            coverage: Coverage::default(),
            finished: Vec::new(),
            left_out: 0,
            at_end: BTreeMap::new(),
            recorded: RecordedSamplers::default(),
            losses: Losses::default(),
            notes: Vec::new(),
            has_noted_limit: false,
            is_closing: false,
        };
        if is_active {
            patches.find_new(context);
            patches.patch_targets(config, context)?;
        }
        context.targets.notes.append(&mut patches.notes);
        Ok(Some(patches))
    }

    /// Patches the targets that were selected by their pids, before the trace begins.
    fn patch_targets(&mut self, config: &Config, context: &mut Context) -> Result<(), Error> {
        if self.thread.is_none() {
            self.notes.extend(self.note_of_missing_option(context));
            return Ok(());
        }
        // A command has not mapped its allocator yet, so it is patched later.
        if self.settings.is_selection || !context.targets.ran_before() {
            return Ok(());
        }
        let targets: Vec<_> = context.targets.family().map(|pid| context.tracker.latest_id(pid)).collect();
        for &id in &targets {
            if has_own_source(id, context) {
                self.set_own(id);
            } else {
                self.set_ready(id);
            }
        }
        let deadline = Instant::now() + BEFORE;
        // A signal ends the wait.
        let is_over = || Instant::now() >= deadline || forced_end::skips_files();
        while (self.change.is_busy() || !self.ready.is_empty()) && !is_over() {
            self.next_change = Instant::now();
            self.work(WAIT, context);
            self.list.poll(&context.shards);
        }
        if let [id] = *targets
            && config.events.iter().all(|class| class.probes_allocators())
            && let Some(refusal) = self.coverage.refusal(id)
        {
            return Err(from_engines::patching(id.pid, refusal));
        }
        let idle = self.list.await_calls(Instant::now() + FIRST_CALL, SOON, &context.shards);
        if !idle.is_empty() {
            let pids = format::limited_list(idle.iter().map(Pid::to_string), MAX_NAMED);
            let time = format::duration(FIRST_CALL);
            self.notes.push(format!("no call of a patched function in the first {time}: process {pids}"));
        }
        Ok(())
    }

    /// Returns a note if processes are not sampled because the option is missing.
    fn note_of_missing_option(&self, context: &Context) -> Option<String> {
        let others = self.states.keys().filter(|&&id| !has_own_source(id, context)).count() as u64;
        let processes = format::counted(others, "process has", "processes have");
        (others > 0).then(|| {
            format!(
                "{processes} no samples of their own; --allow-patching samples malloc, for which it changes code of the \
                 processes"
            )
        })
    }

    fn set_own(&mut self, id: ImageId) {
        self.states.insert(id, State::Own);
        self.candidates.set(id, Instant::now() + RECHECK);
    }

    fn set_ready(&mut self, id: ImageId) {
        if self.states.insert(id, State::Ready) != Some(State::Ready) {
            self.candidates.remove(id);
            self.ready.push_back(id);
        }
    }

    /// Adds the images that have started since the last call.
    fn find_new(&mut self, context: &Context) {
        let (now, own) = (Instant::now(), std::process::id());
        // A look-up for each of thousands of images would take ten times as long.
        let mut known = self.states.keys().peekable();
        let mut is_known = |id: &ImageId| {
            while known.next_if(|known| *known < id).is_some() {}
            known.peek() == Some(&id)
        };
        let images = context.tracker.images().iter().filter(|(id, _)| !is_known(id));
        let new: Vec<_> = images.filter(|(_, image)| image.ended.is_none()).collect();
        for (&id, image) in new {
            // Kernel threads, and processes that could not be read, have no mappings.
            if image.mappings.is_empty() || id.pid.0 == own || !context.tracker.is_traced(id.pid) {
                continue;
            }
            if self.thread.is_none() {
                self.states.insert(id, State::NotAllowed);
                continue;
            }
            let least = match self.inherited_stub(id, image) {
                _ if self.settings.roots.contains(&id.pid) => Duration::ZERO,
                Some(_) => FOLLOW_AGE,
                None => LEAST_AGE,
            };
            let wait = least.saturating_sub(age(image, context));
            self.states.insert(id, State::Waiting);
            self.candidates.set(id, now + wait);
        }
    }

    /// Examines the images that are due, and reads or examines the slow ones after all others.
    fn examine_due(&mut self, context: &mut Context) {
        let now = Instant::now();
        for id in self.candidates.take_due(now) {
            match self.list.waits.begin() {
                Some(begin) => self.examine_timed(id, begin, context),
                None => self.candidates.set(id, now),
            }
        }
        self.list.read_slow(&context.shards);
        if let Some(begin) = self.list.waits.begin()
            && let Some(id) = self.candidates.take_slow(begin)
        {
            self.examine_timed(id, begin, context);
        }
    }

    /// Examines an image. `begin`: the present time.
    fn examine_timed(&mut self, id: ImageId, begin: Instant, context: &mut Context) {
        let next = self.examine(id, begin, context);
        match (next, self.list.waits.end(begin)) {
            (Some(at), false) => self.candidates.set(id, at),
            (Some(at), true) => self.candidates.set_slow(id, at),
            (None, _) => {}
        }
    }

    /// Examines an image. Returns the time of the next examination; `None` if none is needed.
    fn examine(&mut self, id: ImageId, now: Instant, context: &mut Context) -> Option<Instant> {
        let image = running(id, context)?;
        if !matches!(self.states.get(&id), Some(State::Waiting | State::Own)) {
            return None;
        }
        if has_own_source(id, context) {
            self.states.insert(id, State::Own);
            return Some(now + RECHECK);
        }
        self.states.insert(id, State::Waiting);
        // After vfork(2), the memory belongs to the parent, and not all threads of the parent can be stopped. So try again later.
        if context.kernel.is_memory_sharer(id.pid) || context.kernel.is_memory_shared(id.pid) {
            return Some(now + LEAST_AGE);
        }
        let has_room = self.list.processes.len() < self.settings.most;
        if let Some(base) = self.inherited_stub(id, image)
            && has_room
            && self.follow(id, base, now, context)
        {
            return None;
        }
        // If the image is a child with the stub of an earlier session, this stub is used again.
        let image = running(id, context)?;
        let is_root = self.settings.roots.contains(&id.pid);
        if !is_root && age(image, context) < LEAST_AGE {
            return Some(now + LEAST_AGE.saturating_sub(age(image, context)));
        }
        if is_root && !maps_libc(image) && age(image, context) < LEAST_AGE {
            return Some(now + SOON);
        }
        let is_known = self.attempts.contains_key(&id) || self.change.relatives.contains(&id);
        let needs_activity = self.settings.is_selection && !is_known;
        if needs_activity {
            // A process that holds a lock of its memory cannot be measured.
            let Some(activity) = Activity::of(id.pid) else { return Some(now + RECHECK) };
            if let Verdict::Waits(time) = self.candidates.judge(id, activity) {
                return Some(now + time);
            }
        }
        let is_selected = self.may_patch(id.pid) && Selection::of(&context.filter).contains(&context.tracker, id);
        if !is_selected || !self.has_room() {
            return Some(now + RECHECK);
        }
        self.set_ready(id);
        None
    }

    /// Returns false for the init process, unless the user has named it: if the init process crashes, the kernel panics.
    fn may_patch(&self, pid: Pid) -> bool {
        pid != Pid(1) || self.settings.roots.contains(&pid)
    }

    /// Returns true if another process can be patched. Else, a note says so.
    fn has_room(&mut self) -> bool {
        let most = self.settings.most;
        let has_room = self.list.processes.len() + self.ready.len() < most;
        if !has_room && !std::mem::replace(&mut self.has_noted_limit, true) {
            self.notes.push(format!("{most} processes are patched, and no more fit in the memory of memtrace"));
        }
        has_room
    }

    /// Returns the address of the stub that a fork has copied to an image; `None` without one.
    fn inherited_stub(&self, id: ImageId, image: &ProcessImage) -> Option<AbsAddr> {
        let starts: BTreeSet<_> = copied_code(image).collect();
        if starts.is_empty() || self.list.processes.contains_key(&id) {
            return None;
        }
        let mut bases = self.list.processes.values().map(|watched| watched.session.base);
        bases.find(|base| starts.contains(base))
    }

    /// Records that a child is patched if it has a copy of a stub and is not watched, and names its sampler if `has_samples` is
    /// true.
    fn set_child(&mut self, id: ImageId, has_samples: bool, context: &mut Context) {
        let image = context.tracker.images().get(&id);
        let Some(base) = image.and_then(|image| self.inherited_stub(id, image)) else { return };
        // The child counts as sampled since the fork, even if it has taken no samples, and its page faults are left out
        // since then.
        self.states.insert(id, State::Patched);
        context.tracker.own_profiles.set_patched(id);
        if has_samples {
            self.list.name_child(id.pid, base);
        }
    }

    /// Watches a child with a copy of the stub at `base`. Its control page shows which process is its parent. Returns false if the
    /// child has no such stub any more.
    fn follow(&mut self, id: ImageId, base: AbsAddr, now: Instant, context: &mut Context) -> bool {
        // The page is read once, even if many processes have a stub at this address.
        let Ok(values) = ControlPage::read_once(id.pid, base) else { return false };
        let parent = self.list.with_stub_at(base).find(|parent| parent.has_session_of(values));
        let comm = procfs::comm(id.pid).unwrap_or_default();
        let child = parent.and_then(|parent| parent.child(id, comm.into(), now, self.list.keeps_page()).ok());
        let Some(child) = child else { return false };
        self.add_child(child, now, context);
        true
    }

    /// Watches the running children of a process that has ended, if they have copies of its stub, and were not examined yet.
    /// Otherwise, the probes in the stub would be removed with their parent, and the frees of their samples would be missing.
    fn follow_children(&mut self, parent: &Watched, context: &mut Context) {
        if !self.is_active {
            // The calls of the children are traced, which reports these frees too. Samples would count their blocks once more.
            return;
        }
        let (now, base) = (Instant::now(), parent.session.base);
        let is_new = |id: &ImageId| matches!(self.states.get(id), None | Some(State::Waiting));
        let images = context.tracker.images().iter().filter(|(id, image)| is_new(id) && has_copied_stub(image, base));
        let children: Vec<_> = images.map(|(&id, _)| id).filter(|id| context.tracker.is_traced(id.pid)).collect();
        // There is no later chance to read them, so a pause of other readings does not count.
        let (mut unread, mut waits) = (Vec::new(), LastLockWaits::of_process());
        for id in children {
            if context.kernel.is_memory_sharer(id.pid) {
                continue;
            }
            if !self.has_room() {
                context.complete = false;
                break;
            }
            let comm = procfs::comm(id.pid).unwrap_or_default();
            match waits.read(|| parent.child(id, comm.into(), now, self.list.keeps_page())) {
                None => unread.push(id.pid),
                Some(Ok(child)) => self.add_child(child, now, context),
                Some(Err(error)) => log::debug!("process {}: it has no stub of its parent any more: {error}", id.pid),
            }
        }
        if !unread.is_empty() {
            context.complete = false;
        }
        let parent = parent.id.pid;
        let consequence = format!("frees are missing of children of process {parent}, which has ended");
        self.notes.extend(note_of_unread(&consequence, &unread));
    }

    /// Adds a child with a copy of the stub of its parent.
    fn add_child(&mut self, child: Watched, now: Instant, context: &mut Context) {
        // Samples that the child has taken since the fork can have lower levels.
        for level in [0, child.level()] {
            context.shards.thin(child.id, level, child.session.salt);
        }
        self.add(child, now, context);
    }

    /// Adds a process that is patched since `now`.
    fn add(&mut self, watched: Watched, now: Instant, context: &mut Context) {
        let id = watched.id;
        self.candidates.remove(id);
        self.states.insert(id, State::Patched);
        let anonymous = procfs::counted(id.pid).map(|counted| counted.anonymous).unwrap_or_default();
        self.anonymous.insert(id, anonymous);
        context.tracker.own_profiles.set_patched(id);
        generated_code::set_stub(&mut context.tracker, id.pid, watched.session.base);
        self.list.add(watched, now);
    }

    /// Adds a process to the report. `stops`: stops that restored its code; `None` if it has ended. `is_read`: true if
    /// its control page was read after these stops.
    fn finish_process(&mut self, watched: Watched, stops: Option<&Stops>, is_read: bool, context: &mut Context) {
        let (id, file) = (watched.id, Rc::clone(&watched.file));
        let process = watched.finish(stops, is_read);
        let most = if self.is_closing { MAX_LISTED } else { MOST_ENDED };
        // The process can state any number, so the losses get a limited number. The facts about the process have the
        // stated number.
        self.losses.add(LossReason::PatchedTableFull, process.not_inserted.min(MOST_LOST));
        let before = self.anonymous.remove(&id).unwrap_or_default();
        if self.is_closing {
            let now = procfs::counted(id.pid).map(|counted| counted.anonymous).unwrap_or_default();
            let allocated = process.allocated.filter(|_| process.exact);
            let growth = Bytes(now.0.saturating_sub(before.0));
            // Without some of its samples, the estimate is too low for a comparison.
            if process.not_inserted == 0 {
                self.at_end.insert(id, IndependentCounts { allocated, growth });
            }
        } else {
            probes::release(&file, context);
        }
        if self.finished.len() < most {
            self.finished.push(process);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds all patched processes to the report, after a last reading. `restored`: stops of the processes whose code was restored.
    fn finish_all(&mut self, restored: &BTreeMap<ImageId, Stops>, context: &mut Context) {
        let (mut waits, mut unread) = (LastLockWaits::new(), Vec::new());
        // The processes whose last reading was slow come last.
        let mut processes: Vec<_> = std::mem::take(&mut self.list.processes).into_iter().collect();
        processes.sort_by_key(|(_, watched)| watched.is_slow);
        for (id, mut watched) in processes {
            let last = waits.read(|| read_last(&mut watched, &context.shards));
            let is_read = last == Some(true) && watched.has_trace_end();
            unread.extend((last != Some(false) && !is_read).then_some(id.pid));
            self.finish_process(watched, restored.get(&id), is_read, context);
        }
        self.notes.extend(note_of_unread("the allocated bytes of these processes are not known", &unread));
    }

    /// Handles the requests to sample processes whose calls are traced, and notes allocators that patched processes have loaded
    /// later.
    fn take_requests(&mut self, context: &mut Context) {
        for request in std::mem::take(&mut context.patch_requests) {
            let ids: Vec<_> = match request {
                PatchRequest::Process(pid) => vec![context.tracker.latest_id(pid)],
                PatchRequest::Targets => {
                    self.is_active = true;
                    probes::remove_exact(context);
                    context.targets.family().map(|pid| context.tracker.latest_id(pid)).collect()
                }
            };
            for id in ids {
                let is_new = !self.states.contains_key(&id) && self.may_patch(id.pid);
                if self.thread.is_some() && is_new && self.has_room() {
                    self.replaced.insert(id);
                    self.set_ready(id);
                }
            }
        }
        for (pid, path) in std::mem::take(&mut context.late_allocators) {
            let watched = self.list.processes.get(&context.tracker.latest_id(pid));
            if watched.is_some_and(|watched| watched.summary.object.path != path) {
                let path = printable(&path);
                self.notes.push(format!("the allocator {path}, which process {pid} has loaded later, is not sampled"));
            }
        }
    }

    /// Restores the code of all patched processes. Returns the stops of those that were restored.
    fn restore(&mut self, deadline: Instant) -> BTreeMap<ImageId, Stops> {
        self.ready.clear();
        self.change.ending = None;
        let processes = self.list.processes.values().map(Watched::restore_request);
        self.thread.as_mut().map(|thread| restore::restore(thread, processes, deadline)).unwrap_or_default()
    }

    /// Restores the code of the other processes whose code this memtrace has changed. Returns the number of processes
    /// that stay patched.
    fn restore_others(&mut self) -> u64 {
        let (owner, deadline) = (self.settings.owner, Instant::now() + RESTORE_OTHERS);
        let thread = self.thread.as_mut().filter(|_| self.has_patched);
        thread.map_or(0, |thread| restore::restore_children(thread, owner, deadline))
    }

    /// Returns the sources of the samples of the images that run and are selected.
    fn sources(&self, context: &Context) -> Vec<Source> {
        let selection = Selection::of(&context.filter);
        let is_running = |id: ImageId| running(id, context).is_some() && selection.contains(&context.tracker, id);
        let source = |(&id, &state): (&ImageId, &State)| match state {
            State::Waiting | State::NotAllowed if has_own_source(id, context) => Source::Own,
            state => source_in(Some(state)),
        };
        self.states.iter().filter(|(id, _)| is_running(**id)).map(source).collect()
    }

    /// Returns a note if the samples of a process contradict other counts.
    fn compare(&self, id: ImageId, usage: &ImageUsage) -> Option<String> {
        let is_comparable = self.settings.is_unfiltered && !self.replaced.contains(&id);
        let counts = self.at_end.get(&id).filter(|_| is_comparable)?;
        compare(id.pid, &usage.total, *counts)
    }
}

impl Part for RunPatches {
    fn is_frequent(&self) -> bool {
        self.thread.is_some()
    }

    fn poll(&mut self, context: &mut Context) {
        self.work(Duration::ZERO, context);
        self.list.poll(&context.shards);
        self.list.limit(|| context.kernel.other_hits(), &context.shards);
    }

    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.take_requests(context);
        if self.is_active {
            self.find_new(context);
        }
        if self.list.tick(&context.shards) {
            self.list.end_doubled(|id| context.tracker.own_profiles.is_read(id));
        }
        self.list.take_called().into_iter().for_each(|id| context.tracker.own_profiles.add_called(id));
        for pid in self.list.take_lost(|id| running(id, context).is_some()) {
            self.notes.push(format!("process {pid}: its control page has changed, so its numbers are wrong"));
            context.complete = false;
        }
        self.notes.extend(self.list.check_code());
        // Processes are examined after the patched processes were read, because a wait would delay these readings.
        self.examine_due(context);
        self.recorded.update(&self.list.samplers, context);
        for note in self.notes.drain(..) {
            if context.targets.add_late_note(&note) {
                observer.note(&note);
            }
        }
    }

    fn image_ended(&mut self, ended: &mut EndedImage, context: &mut Context) {
        self.set_child(ended.id, ended.heap().is_some_and(has_samples), context);
    }

    fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        let id = left.id;
        if let Some(watched) = self.list.processes.remove(&id) {
            self.follow_children(&watched, context);
            self.finish_process(watched, None, false, context);
        }
        self.list.samplers.end_image(id.pid, left.end);
        self.ready.retain(|ready| *ready != id);
        self.candidates.remove(id);
        self.attempts.remove(&id);
        self.change.relatives.remove(&id);
        if self.replaced.remove(&id) && left.end == ImageEnd::Exec && !self.is_active {
            // The calls of the new image are still left out, so it is patched too.
            context.patch_requests.push(PatchRequest::Process(id.pid));
        }
        let state = self.states.remove(&id);
        if left.end == ImageEnd::Exec || !left.is_listed_exit || !self.is_active {
            self.coverage.forget(id);
            return;
        }
        let lived = left.image.start.tick().zip(left.image.ended);
        let lived = lived.map(|(start, (_, end))| end.since_start().saturating_sub(start.since_start()));
        let source = match source_in(state) {
            Source::Idle if lived.is_some_and(|lived| lived < LEAST_AGE) => Source::ShortLived,
            source => source,
        };
        self.coverage.end(id, source);
    }

    fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        if let Some(thread) = self.thread.as_ref().filter(|_| !closed.is_empty()) {
            thread.forget(closed);
        }
    }

    fn close(&mut self, context: &mut Context) {
        self.is_closing = true;
        let waiting = self.states.iter().filter(|(_, state)| **state == State::Waiting).map(|(id, _)| *id);
        for id in waiting.collect::<Vec<_>>() {
            self.set_child(id, true, context);
        }
        // The control pages are read now, because the code is restored after the end of the trace, one process after the other.
        self.list.end_trace(&context.shards);
        let restored = self.restore(Instant::now() + RESTORE);
        self.finish_all(&restored, context);
        let left = self.restore_others();
        let processes = format::counted(left, "process stays", "processes stay");
        let note = || format!("{processes} patched, at a low cost; `memtrace detach --all` restores the code");
        self.notes.extend((left > 0).then(note));
        let others = format::counted(self.left_out, "other process was", "other processes were");
        self.notes.extend((self.left_out > 0).then(|| format!("{others} patched")));
        context.targets.notes.append(&mut self.notes);
    }

    fn read_rest(&mut self, _: Tick, _: &mut Context, facts: &mut Facts) {
        facts.losses.merge(&self.losses);
    }

    fn finish(mut self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        let images = facts.snapshots.0.get(&EventClass::Heap).into_iter().flat_map(|heap| &heap.images);
        let notes = images.filter_map(|(&id, usage)| self.compare(id, usage));
        context.targets.notes.extend(notes.take(MAX_COMPARED));
        if self.is_active {
            let sources = self.sources(context);
            context.targets.notes.extend(self.coverage.notes(sources));
        }
        facts.samplers.merge(&self.list.samplers);
        facts.patched = std::mem::take(&mut self.finished);
    }
}

impl Drop for RunPatches {
    /// Restores the code if the run ends with an error.
    fn drop(&mut self) {
        if !self.is_closing {
            self.restore(Instant::now() + RESTORE);
            self.restore_others();
        }
    }
}
