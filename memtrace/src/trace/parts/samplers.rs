//! Samplers of the targets: attaches the probes that report samples which allocators and libraries take.

mod turns;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use memtrace_host::kernel::{KernelError, SampledSite, Scope};
use memtrace_host::procfs;
use memtrace_host::target_files::open_target_file;
use memtrace_model::{
    EndedImage, EventClass, ImageEnd, ImageId, ImageUsage, Mapping, Object, Pid, Quantity, Sampler, Samplers, plain,
    printable,
};
use memtrace_object::allocators::AllocatorSampler;

use self::turns::{ChangedTurns, MAX_WATCHED, Turns};
use self::watch::{State, WatchedSampler};
use super::lock_waits::{LastLockWaits, LockWaits, note_of_unread};
use super::recorded_samplers::RecordedSamplers;
use crate::options::BlockSizes;
use crate::options::source::AllocationSource;
use crate::run_kit::error::Error;
use crate::run_kit::observer::Observer;
use crate::targets::sample_sites::{self, SampleProbes};
use crate::targets::select::Selection;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::{LeftImage, Part};

/// Number of ticks between two readings of the variables of samplers, and between two attempts to attach: about a second.
const WATCH_EVERY: u32 = 10;

/// Number of readings after which a sampler that is off is named. An allocator reads its options after the start of the process.
const READINGS: u32 = 2;

/// Maximum number of different notes.
const MAX_NOTES: usize = 200;

/// Functions and USDT probes of an object that report samples.
#[derive(Debug, Default)]
struct ObjectSamples {
    /// Samplers of allocators; none if the run uses USDT probes only.
    samplers: Vec<AllocatorSampler>,
    probes: Vec<SampleProbes>,
    /// Reasons why the allocator or the USDT probes of the object are not used.
    refusals: Vec<String>,
}

impl ObjectSamples {
    /// Returns true if the object has functions or USDT probes that report samples.
    fn has_sites(&self) -> bool {
        !self.samplers.is_empty() || !self.probes.is_empty()
    }

    /// Returns true if the USDT probes are used. If the object has a sampler, and the sampler is on, the probes would
    /// report the same blocks a second time.
    fn uses_probes(&self, is_off: bool) -> bool {
        !self.probes.is_empty() && (self.samplers.is_empty() || is_off)
    }
}

/// State of an image at the last update.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Examined {
    /// Number of mappings.
    mappings: usize,
    /// True if the objects of these mappings have their probes.
    is_done: bool,
}

/// Reason why an image must be examined again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// A process held the lock of its memory map.
    LockedMemory,
    /// Too many functions and USDT probes of other objects report samples.
    NoRoom,
}

/// Samplers of the processes of a run.
pub(super) struct RunSamplers {
    /// True if the samplers of allocators are used, false if USDT probes are used in processes without a traced allocator only.
    uses_samplers: bool,
    usable_sizes: bool,
    /// Examined objects, by their handles.
    objects: HashMap<PathBuf, Arc<ObjectSamples>>,
    examined: BTreeMap<ImageId, Examined>,
    /// Reason why the image examined last must be examined again.
    delay: Option<Delay>,
    /// Images to be examined again.
    blocked: BTreeSet<ImageId>,
    /// Images to be examined again once an object with probes is closed.
    crowded: BTreeSet<ImageId>,
    /// Objects with attached probes. The value is true if these include the USDT probes.
    attached: HashMap<(Scope, PathBuf), bool>,
    /// Processes that have got USDT probes of their own, in a run without samplers of allocators.
    probed: BTreeSet<Pid>,
    watched: BTreeMap<ImageId, Vec<WatchedSampler>>,
    /// Turns of the images in `watched`, and of the images that wait.
    turns: Turns,
    /// Images in `watched` that are read next, and images whose last reading was slow.
    due: VecDeque<ImageId>,
    slow: BTreeSet<ImageId>,
    waits: LockWaits,
    /// Images whose allocators do not sample.
    off: BTreeSet<ImageId>,
    /// Objects whose samplers stay off until the image ends, or until the allocator of a patched image is called.
    disabled: BTreeMap<ImageId, Vec<Arc<Object>>>,
    samplers: Samplers,
    recorded: RecordedSamplers,
    notes: HashSet<String>,
    /// Notes that were not shown yet.
    new_notes: Vec<String>,
    ticks: u32,
}

impl RunSamplers {
    /// Attaches probes to the running processes, and to the objects that the command may load. Returns `None` if the run uses no
    /// samples of its targets.
    pub(super) fn attach(config: &Config, context: &mut Context) -> Result<Option<Self>, Error> {
        if !config.reads_own_profiles() {
            return Ok(None);
        }
        let mut samplers = Self {
            uses_samplers: config.heap.source == AllocationSource::Own || config.sampling.is_some(),
            usable_sizes: config.heap.size.unwrap_or_default() == BlockSizes::Usable,
            objects: HashMap::new(),
            examined: BTreeMap::new(),
            delay: None,
            blocked: BTreeSet::new(),
            crowded: BTreeSet::new(),
            attached: HashMap::new(),
            probed: BTreeSet::new(),
            watched: BTreeMap::new(),
            turns: Turns::default(),
            due: VecDeque::new(),
            slow: BTreeSet::new(),
            waits: LockWaits::new(),
            off: BTreeSet::new(),
            disabled: BTreeMap::new(),
            samplers: Samplers::default(),
            recorded: RecordedSamplers::default(),
            notes: HashSet::new(),
            new_notes: Vec::new(),
            ticks: 0,
        };
        if samplers.uses_samplers
            && let Some(pid) = context.targets.command_pid()
        {
            let scope = context.targets.scope(pid);
            for object in context.targets.objects.clone() {
                samplers.attach_object(scope, &object, None, context);
            }
        }
        samplers.update(true, context);
        context.targets.notes.append(&mut samplers.new_notes);
        Ok(Some(samplers))
    }

    /// Attaches probes to the objects that processes have newly mapped. `ran_before`: the processes have mapped their libraries.
    fn update(&mut self, ran_before: bool, context: &mut Context) {
        self.remove_replaced(context);
        let mut due = Vec::new();
        for (&id, image) in context.tracker.images() {
            let mappings = image.mappings.len();
            let known = self.examined.get(&id).copied().filter(|known| known.mappings == mappings);
            if image.ended.is_some() || known.is_some_and(|known| known.is_done) || !context.tracker.is_traced(id.pid) {
                continue;
            }
            // A process that starts has not mapped its allocator yet, and the allocator decides whether samples of the
            // process are used.
            let is_done = self.uses_samplers || ran_before || known.is_some();
            self.examined.insert(id, Examined { mappings, is_done });
            if is_done {
                due.push(id);
            }
        }
        for id in due {
            // At the start, waits are not limited, because they delay no running process.
            if !ran_before && self.uses_samplers && self.waits.begin().is_none() {
                self.examined.remove(&id);
                continue;
            }
            self.delay = None;
            self.examine(id, context);
            let waiting = match self.delay {
                Some(Delay::LockedMemory) => &mut self.blocked,
                Some(Delay::NoRoom) => &mut self.crowded,
                None => continue,
            };
            waiting.insert(id);
        }
    }

    /// Removes the USDT probes of processes whose allocator has got probes later, so that no block counts twice.
    fn remove_replaced(&mut self, context: &mut Context) {
        let replaced: Vec<_> = self.probed.iter().copied().filter(|&pid| context.tracker.has_probes(pid)).collect();
        for pid in replaced {
            self.remove_probes(pid, context);
            self.note(format!("process {pid}: the samples of its USDT probes count until its allocator was traced"));
        }
    }

    /// Removes the USDT probes that belong to a single process.
    fn remove_probes(&mut self, pid: Pid, context: &mut Context) {
        if self.probed.remove(&pid) {
            context.probes.remove_sampled(pid);
        }
        self.attached.retain(|(scope, _), _| *scope != Scope::Process(pid));
    }

    /// Attaches probes to the objects of an image.
    fn examine(&mut self, id: ImageId, context: &mut Context) {
        let Some(image) = context.tracker.images().get(&id) else { return };
        // Each call of the allocator is traced, so samples would count its blocks twice.
        if !self.uses_samplers && context.tracker.has_probes(id.pid) {
            return;
        }
        let mut handles = HashSet::new();
        let is_first = |mapping: &&Mapping| {
            let object = mapping.object.as_ref().filter(|object| !Object::is_kernel_code(&object.path));
            object.and_then(|object| object.handle.clone()).is_some_and(|handle| handles.insert(handle))
        };
        let mappings: Vec<_> = image.mappings.iter().filter(is_first).cloned().collect();
        let is_selected = Selection::of(&context.filter).contains(&context.tracker, id);
        for mapping in mappings {
            let Some(object) = &mapping.object else { continue };
            // In other processes with the object, each call of the allocator may be traced, so the probes are for this
            // process only.
            let scope = if self.uses_samplers { context.targets.scope(id.pid) } else { Scope::Process(id.pid) };
            let samples = self.attach_object(scope, object, Some(id), context);
            let Some(samples) = samples.filter(|_| is_selected) else { continue };
            for refusal in &samples.refusals {
                self.note(format!("{}: {refusal}", printable(&object.path)));
            }
            self.add_sources(id, &mapping, object, &samples, context);
        }
    }

    /// Attaches probes to an object that the image `id` has mapped, or that a command may map. Returns its functions and USDT
    /// probes that report samples; `None` if they have no probes.
    fn attach_object(
        &mut self,
        scope: Scope,
        object: &Object,
        id: Option<ImageId>,
        context: &mut Context,
    ) -> Option<Arc<ObjectSamples>> {
        let handle = object.handle.as_deref()?;
        let samples = self.samples_of(handle);
        let uses_probes = samples.uses_probes(id.is_some_and(|id| self.off.contains(&id)));
        let has_sites = uses_probes || !samples.samplers.is_empty();
        let place = (scope, handle.to_owned());
        let is_attached = self.attached.get(&place).is_some_and(|&has_probes| has_probes || !uses_probes);
        if has_sites && !is_attached {
            if let (Scope::Process(pid), false) = (scope, self.uses_samplers) {
                self.probed.insert(pid);
            }
            let sites = self.sites(object, &samples, uses_probes, context);
            self.place(scope, handle, object, &sites, context).then_some(())?;
            self.attached.insert(place, uses_probes);
        }
        Some(samples)
    }

    /// Returns the functions and USDT probes of an object that report samples.
    fn samples_of(&mut self, handle: &Path) -> Arc<ObjectSamples> {
        if let Some(known) = self.objects.get(handle) {
            return Arc::clone(known);
        }
        let mut samples = ObjectSamples::default();
        match open_target_file(handle) {
            Ok(file) => {
                for probes in sample_sites::find_probes(&file) {
                    match probes {
                        Ok(probes) => samples.probes.push(probes),
                        Err(refusal) => samples.refusals.push(refusal),
                    }
                }
                if self.uses_samplers {
                    match sample_sites::find_allocator_samplers(&file) {
                        Ok(samplers) => samples.samplers = samplers,
                        Err(refusal) => samples.refusals.push(refusal.to_string()),
                    }
                }
            }
            Err(error) => log::debug!("samples of {}: {error}", printable(handle)),
        }
        let samples = Arc::new(samples);
        self.objects.insert(handle.to_owned(), Arc::clone(&samples));
        samples
    }

    /// Returns the sites of the probes of an object: sites of its samplers, and with `uses_probes` its USDT probes.
    fn sites(
        &self,
        object: &Object,
        samples: &ObjectSamples,
        uses_probes: bool,
        context: &mut Context,
    ) -> Vec<SampledSite> {
        let allocators = &mut context.tracker.allocators;
        let mut sites = Vec::new();
        for sampler in &samples.samplers {
            let id = allocators.id_of_samples(object, sampler.source.name());
            sites.extend(sample_sites::sites_of_sampler(sampler, self.usable_sizes, id));
        }
        for probes in samples.probes.iter().filter(|_| uses_probes) {
            let allocator = allocators.id_of_samples(object, probes.source.name());
            sites.extend(probes.sites.iter().map(|site| SampledSite { allocator, ..*site }));
        }
        sites
    }

    /// Attaches the probes of an object. Returns true if they are in place.
    fn place(
        &mut self,
        scope: Scope,
        handle: &Path,
        object: &Object,
        sites: &[SampledSite],
        context: &mut Context,
    ) -> bool {
        let result = context.kernel.attach_sampled(&mut context.probes, scope, handle, sites);
        let failure = match result {
            Ok(true) => match context.probes.refusal(handle) {
                None => return true,
                Some(refusal) => refusal.reason().to_owned(),
            },
            Ok(false) => {
                self.delay = self.delay.or(Some(Delay::NoRoom));
                String::from("too many functions and USDT probes report samples, of all files or of those of one user")
            }
            Err(KernelError::TargetEnded) => return false,
            Err(KernelError::LockedMemory { .. }) => {
                self.delay = Some(Delay::LockedMemory);
                context.complete = false;
                return false;
            }
            Err(error) => error.to_string(),
        };
        context.complete = false;
        self.note(format!("the samples of {} are not recorded: {failure}", printable(&object.path)));
        false
    }

    /// Adds the sources of the samples of an image. `mapping`: a mapping of the object.
    fn add_sources(
        &mut self,
        id: ImageId,
        mapping: &Mapping,
        object: &Object,
        samples: &ObjectSamples,
        context: &mut Context,
    ) {
        let uses_probes = samples.uses_probes(self.off.contains(&id));
        for SampleProbes { source, reports_frees, .. } in samples.probes.iter().filter(|_| uses_probes) {
            context.tracker.own_profiles.set_read(id);
            self.samplers.add(id.pid, Sampler { source: *source, interval: None });
            if !reports_frees {
                let (source, path) = (source.name(), printable(&object.path));
                self.note(format!(
                    "{path} has no {source}:free probe: its blocks count as live until the end of the process"
                ));
            }
        }
        let is_watched = self.watched.get(&id).is_some_and(|watched| watched.iter().any(|one| one.is_of(mapping)));
        let is_object = |known: &Arc<Object>| **known == *object;
        let is_disabled = self.disabled.get(&id).is_some_and(|objects| objects.iter().any(is_object));
        if samples.samplers.is_empty() || is_watched || is_disabled {
            return;
        }
        if !self.turns.begin(id) {
            let note = format!(
                "more than {MAX_WATCHED} processes have allocators that may sample, so memtrace examines them in turn; the blocks \
                 of a process that it patches before count twice until then, if its allocator samples"
            );
            self.set_unknown(id, note, context);
            return;
        }
        let begin = Instant::now();
        let watched = WatchedSampler::all(id.pid, mapping, &samples.samplers);
        self.waits.end(begin);
        if watched.is_empty() {
            if !self.watched.contains_key(&id) {
                self.turns.forget(id);
            }
            let path = printable(&object.path);
            let note = format!(
                "process {}: it is not known if the allocator in {path} samples; if it does and memtrace patches the process, \
                 its blocks count twice",
                id.pid
            );
            self.set_unknown(id, note, context);
            return;
        }
        self.watched.entry(id).or_default().extend(watched);
        self.read_timed(id, Instant::now(), context);
    }

    /// Handles an image if it is not known whether its allocator samples. `note`: consequence for a run that covers processes
    /// without samples of their own in another way.
    fn set_unknown(&mut self, id: ImageId, note: String, context: &mut Context) {
        if context.sampling.is_some() {
            // A process that has ended cannot be patched, and there can be thousands of such processes, so they get no note.
            if !procfs::has_ended(id.pid) {
                self.note(note);
            }
        } else {
            // Its samples are recorded, and no other source counts its blocks.
            context.tracker.own_profiles.set_read(id);
        }
    }

    /// Reads the variables of the samplers of an image. The program can change these variables.
    fn read(&mut self, id: ImageId, context: &mut Context) {
        let Some(watched) = self.watched.get_mut(&id) else { return };
        let (mut notes, mut is_on, mut disabled) = (Vec::new(), false, Vec::new());
        watched.retain_mut(|sampler| {
            let state = sampler.read();
            match state {
                State::On(interval) => {
                    is_on = true;
                    context.tracker.own_profiles.set_read(id);
                    self.samplers.add(id.pid, Sampler { source: sampler.source, interval: Some(interval) });
                }
                State::Off(reason) | State::Disabled(reason) if sampler.readings == READINGS => notes.push(reason),
                State::Off(_) | State::Disabled(_) | State::Unread => {}
            }
            let stays_off = matches!(state, State::Disabled(_)) && sampler.is_settled();
            if stays_off {
                disabled.extend(sampler.object());
            }
            !stays_off
        });
        // An object is not disabled if another sampler of it is on.
        disabled.retain(|object| !watched.iter().any(|one| one.object().as_ref() == Some(object)));
        if watched.is_empty() {
            self.watched.remove(&id);
            self.turns.forget(id);
        }
        if !disabled.is_empty() {
            self.disabled.entry(id).or_default().append(&mut disabled);
        }
        if is_on {
            self.note_double(id, context);
        } else if !notes.is_empty() && self.off.insert(id) {
            // Its USDT probes are used instead.
            self.examined.remove(&id);
        }
        let comm = if notes.is_empty() { None } else { procfs::comm(id.pid) }.unwrap_or_default();
        for reason in notes {
            self.note(format!("process {} ({}): {reason}", id.pid, plain(&comm)));
        }
    }

    /// Reads the variables of an image. `begin`: the present time.
    fn read_timed(&mut self, id: ImageId, begin: Instant, context: &mut Context) {
        self.read(id, context);
        if self.waits.end(begin) {
            self.slow.insert(id);
        } else {
            self.slow.remove(&id);
        }
    }

    /// Reads the variables of the images that are due, until the readings have waited for too long.
    fn read_due(&mut self, context: &mut Context) {
        while let Some(begin) = self.waits.begin()
            && let Some(id) = self.due.pop_front()
        {
            self.read_timed(id, begin, context);
        }
    }

    /// Returns the images in `watched`. The images whose last reading was slow come last.
    fn in_reading_order(&self) -> VecDeque<ImageId> {
        let (slow, prompt): (Vec<_>, Vec<_>) = self.watched.keys().copied().partition(|id| self.slow.contains(id));
        prompt.into_iter().chain(slow).collect()
    }

    /// Reads the variables of all images for the last time.
    fn read_last(&mut self, context: &mut Context) {
        let (mut waits, mut unread) = (LastLockWaits::new(), Vec::new());
        for id in self.in_reading_order() {
            if waits.read(|| self.read(id, context)).is_none() {
                unread.push(id.pid);
            }
        }
        let consequence = "it is not known if the allocators of these processes sampled at the end";
        if let Some(note) = note_of_unread(consequence, &unread) {
            self.note(note);
        }
    }

    /// Lets other images have their turn.
    fn change_turns(&mut self) {
        let ChangedTurns { ended, due } = self.turns.change();
        for id in ended {
            self.watched.remove(&id);
            self.slow.remove(&id);
        }
        for id in due {
            self.examined.remove(&id);
        }
    }

    /// Notes that the samples of an allocator and of USDT probes count the blocks of an image twice, if both are used.
    fn note_double(&mut self, id: ImageId, context: &Context) {
        let scope = context.targets.scope(id.pid);
        let has_probes = |handle: &PathBuf| {
            self.objects.get(handle).is_some_and(|samples| !samples.probes.is_empty())
                && self.attached.get(&(scope, handle.clone())) == Some(&true)
        };
        let Some(image) = context.tracker.images().get(&id) else { return };
        if image.objects().filter_map(|object| object.handle.as_ref()).any(has_probes) {
            self.note(format!(
                "process {}: the samples of its allocator and of its USDT probes stand for the same blocks, so sums can be \
                 twice the true ones; --by allocator separates them",
                id.pid
            ));
        }
    }

    /// Names the sources of the samples of an image that ended before its variables were read.
    fn name_sources(&mut self, id: ImageId, context: &Context) {
        let is_named = self.samplers.of(id.pid).next().is_some();
        let Some(image) = context.tracker.images().get(&id).filter(|_| !is_named) else { return };
        for object in image.objects() {
            let Some(samples) = object.handle.as_ref().and_then(|handle| self.objects.get(handle)) else { continue };
            let uses_probes = samples.uses_probes(self.off.contains(&id));
            let of_allocators = samples.samplers.iter().map(|sampler| sampler.source);
            let of_probes = samples.probes.iter().filter(|_| uses_probes).map(|probes| probes.source);
            let sources = of_allocators.chain(of_probes);
            sources.for_each(|source| self.samplers.add(id.pid, Sampler { source, interval: None }));
        }
    }

    /// Adds a note for the user, unless the user has it already.
    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES && self.notes.insert(note.clone()) {
            self.new_notes.push(note);
        }
    }
}

impl Part for RunSamplers {
    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        for id in context.tracker.own_profiles.take_called() {
            // A process can have stopped before its allocator has read its options. Its first call shows that they are
            // read now, so the image is examined again.
            if self.disabled.remove(&id).is_some() {
                self.examined.remove(&id);
            }
        }
        self.update(false, context);
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(WATCH_EVERY) {
            for id in std::mem::take(&mut self.blocked) {
                self.examined.remove(&id);
            }
            // No turn ends before the variables were read.
            if self.due.is_empty() {
                self.change_turns();
                self.due = self.in_reading_order();
            }
        }
        self.read_due(context);
        self.recorded.update(&self.samplers, context);
        for note in self.new_notes.drain(..) {
            if context.targets.add_late_note(&note) {
                observer.note(&note);
            }
        }
    }

    fn image_ended(&mut self, ended: &mut EndedImage, context: &mut Context) {
        if ended.heap().is_some_and(has_samples) {
            self.name_sources(ended.id, context);
        }
    }

    fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        let pid = left.id.pid;
        self.watched.remove(&left.id);
        self.slow.remove(&left.id);
        self.turns.forget(left.id);
        self.off.remove(&left.id);
        self.disabled.remove(&left.id);
        self.blocked.remove(&left.id);
        self.crowded.remove(&left.id);
        // Probes stay over an exec.
        if left.end != ImageEnd::Exec {
            self.remove_probes(pid, context);
        }
        self.samplers.end_image(pid, left.end);
        // The next image of the process, or a new process with this PID, may have been taken for an image with probes. It
        // is examined again, so that its samplers are named.
        let of_process = |ordinal| ImageId { pid, ordinal };
        let examined: Vec<_> = self.examined.range(of_process(0)..=of_process(u32::MAX)).map(|(&id, _)| id).collect();
        for id in examined {
            self.examined.remove(&id);
        }
    }

    fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        if self.objects.iter().any(|(handle, samples)| closed.contains(handle) && samples.has_sites()) {
            self.blocked.append(&mut self.crowded);
        }
        self.objects.retain(|handle, _| !closed.contains(handle));
        self.attached.retain(|(_, handle), _| !closed.contains(handle));
    }

    fn close(&mut self, context: &mut Context) {
        self.read_last(context);
        context.targets.notes.append(&mut self.new_notes);
    }

    fn finish(mut self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        let images = facts.snapshots.0.get(&EventClass::Heap).into_iter().flat_map(|heap| &heap.images);
        for (&id, _) in images.filter(|(_, usage)| has_samples(usage)) {
            self.name_sources(id, context);
        }
        facts.samplers.merge(&self.samplers);
    }
}

/// Returns true if an image has allocated sampled blocks.
pub(super) fn has_samples(usage: &ImageUsage) -> bool {
    usage.total[Quantity::AllocSamples] > 0
}
