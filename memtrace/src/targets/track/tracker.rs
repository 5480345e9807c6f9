//! State of the traced processes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memtrace_history::registry;
use memtrace_history::registry::Registry;
use memtrace_host::loader;
use memtrace_host::loader::Candidates;
use memtrace_host::mmap_events::MmapEvents;
use memtrace_host::procfs;
use memtrace_host::procfs::{MetadataReader, Objects, ProcessError, ProcessMetadata};
use memtrace_model::{
    AbsAddr, Bytes, ImageEnd, ImageId, LossReason, Losses, Mapping, Object, Owner, PartKeys, Pid, ProcessEvent,
    ProcessEventKind, ProcessImage, Runtime, Snapshot, Tick, Tid,
};
use memtrace_object::allocators::{Allocator, Survey, UserHooks};

use super::allocators::Allocators;
use super::code_generators::CodeGenerators;
use super::own_profiles::OwnProfiles;
use super::owners::Owners;
use crate::run_kit::clock;

/// Tracks the mappings and the metadata of the traced processes.
pub(crate) struct ProcessTracker {
    /// `None` if the kernel refuses perf mmap events. Then only mappings from before the run are known.
    pub(super) events: Option<MmapEvents>,
    pub(super) objects: Objects,
    pub(super) registry: Registry,
    /// The traced processes; `None` for all. There is at most one entry for each pid of the system.
    pub(super) traced: Option<HashSet<Pid>>,
    pub(crate) allocators: Allocators,
    pub(super) metadata: MetadataReader,
    pub(crate) owners: Owners,
    pub(crate) own_profiles: OwnProfiles,
    /// Processes that have called exec, and have not mapped their executable yet. The next file that such a process
    /// maps is its executable.
    pub(super) awaiting_exe: HashSet<Pid>,
    pub(super) clock: TrackerClock,
    pub(super) records_thread_names: bool,
    /// Number of mmap events that were lost, and could not be replaced by reading the mappings again, because a process
    /// had exited.
    pub(super) lost: u64,
    /// Number of files that were not read in time.
    unread: u64,
    pub(crate) code_generators: CodeGenerators,
    /// Processes that could not be read at the start, because they held a lock. They are read as soon as they can be.
    pub(super) locked: VecDeque<Pid>,
    /// Allocators that the next poll returns again.
    pub(super) unprobed: Vec<(Pid, Allocator)>,
}

/// Times of a tracker, on the monotonic clock.
pub(super) struct TrackerClock {
    /// Time of tick 0.
    pub(super) origin: Duration,
    /// Time when events began to count; `None` before.
    pub(super) start: Option<Duration>,
}

impl ProcessTracker {
    /// Opens the perf mmap events. `clock_start`: time of tick 0 on the monotonic clock. `mmap_ring`: size of the ring
    /// buffer for each processor.
    pub(crate) fn new(
        clock_start: Duration,
        parts: PartKeys,
        user_hooks: UserHooks,
        mmap_ring: Bytes,
        limits: registry::Limits,
    ) -> Self {
        let mut events = procfs::online_cpus()
            .and_then(|cpus| MmapEvents::open(&cpus, mmap_ring.0 as usize))
            .inspect_err(|error| log::warn!("perf mmap events are not available, new mappings are missed: {error}"))
            .ok();
        let records_thread_names = parts.contains(PartKeys::THREAD);
        if let Some(events) = events.as_mut().filter(|_| records_thread_names) {
            events.follow_threads();
        }
        Self {
            events,
            objects: Objects::new(),
            registry: Registry::new(limits),
            traced: Some(HashSet::new()),
            allocators: Allocators::new(user_hooks, parts.contains(PartKeys::ALLOCATOR)),
            metadata: MetadataReader::new(),
            owners: Owners::default(),
            own_profiles: OwnProfiles::default(),
            awaiting_exe: HashSet::new(),
            clock: TrackerClock { origin: clock_start, start: None },
            records_thread_names,
            lost: 0,
            unread: 0,
            code_generators: CodeGenerators::default(),
            locked: VecDeque::new(),
            unprobed: Vec::new(),
        }
    }

    /// Records that events count since `now` on the monotonic clock.
    pub(crate) fn start_at(&mut self, now: Duration) {
        self.clock.start = Some(now);
        self.allocators.start();
    }

    pub(crate) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// Closes unused files. [`Objects::close_unused`] describes `deleted` and `named`. Returns the handles of the closed files.
    /// These handles can belong to other files afterwards.
    pub(crate) fn close_unused_files<'a>(
        &mut self,
        deleted: bool,
        named: impl Iterator<Item = &'a Arc<Object>>,
    ) -> HashSet<PathBuf> {
        let closed: HashSet<_> = self.objects.close_unused(deleted, named).into_iter().collect();
        if !closed.is_empty() {
            log::debug!("{} unused files are closed", closed.len());
            self.allocators.forget(&closed);
        }
        closed
    }

    /// Returns the handles of the open files that no running process has mapped, least recently used first.
    pub(crate) fn idle_files(&self) -> Vec<PathBuf> {
        let running = self.registry.images().values().filter(|image| image.ended.is_none());
        let objects = running.flat_map(ProcessImage::objects);
        let mapped: HashSet<&Path> = objects.filter_map(|object| object.handle.as_deref()).collect();
        self.objects.handles().into_iter().filter(|handle| !mapped.contains(handle.as_path())).collect()
    }

    /// Adds `pid` to the traced processes.
    pub(crate) fn track(&mut self, pid: Pid) {
        if let Some(traced) = &mut self.traced {
            traced.insert(pid);
        }
        if let Some(events) = &mut self.events {
            events.follow(pid);
        }
    }

    /// Tracks all processes from now on, and reads the mappings of `pids`. Calls `on_read` with the number of processes so far.
    /// Returns the allocators in these mappings, each with one process that maps it.
    pub(crate) fn track_all(&mut self, pids: &[Pid], on_read: impl Fn(usize)) -> Vec<(Pid, Allocator)> {
        self.traced = None;
        if let Some(events) = &mut self.events {
            events.follow_all();
        }
        let mut allocators = Vec::new();
        for (number, &pid) in (1..).zip(pids) {
            self.see(pid, &mut allocators);
            on_read(number);
        }
        allocators
    }

    /// Adds `pid` to the traced processes, and reads its mappings. Returns the new allocators in them.
    pub(crate) fn track_running(&mut self, pid: Pid) -> Vec<Allocator> {
        self.track(pid);
        let mut allocators = Vec::new();
        self.see(pid, &mut allocators);
        allocators.into_iter().map(|(_, allocator)| allocator).collect()
    }

    /// Reads the mappings of a running process. Appends the new allocators in them to `allocators`.
    fn see(&mut self, pid: Pid, allocators: &mut Vec<(Pid, Allocator)>) {
        let image = match procfs::read_image(pid, &mut self.objects) {
            Ok(image) => image,
            Err(error @ (ProcessError::Permission { .. } | ProcessError::Locked(_))) => {
                if matches!(error, ProcessError::Locked(_)) {
                    self.locked.push_back(pid);
                }
                ProcessImage { comm: procfs::comm(pid).unwrap_or_default().into(), ..ProcessImage::default() }
            }
            // The process has exited.
            Err(_) => return,
        };
        for object in image.objects() {
            self.add_new_allocators(pid, object, allocators);
        }
        let at = self.now();
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
        self.own_profiles.add_new(pid);
        self.read_metadata(pid);
    }

    /// Returns the open objects that processes have mapped, the objects with the most mappings
    /// first.
    pub(crate) fn objects_by_use(&self) -> Vec<Arc<Object>> {
        let mut users: HashMap<&Path, (usize, &Arc<Object>)> = HashMap::new();
        for object in self.registry.images().values().flat_map(ProcessImage::objects) {
            if let Some(handle) = &object.handle {
                users.entry(handle).or_insert((0, object)).0 += 1;
            }
        }
        let mut users: Vec<_> = users.into_values().collect();
        users.sort_by(|(more, one), (less, other)| less.cmp(more).then_with(|| one.path.cmp(&other.path)));
        users.into_iter().map(|(_, object)| Arc::clone(object)).collect()
    }

    /// Returns the traced processes that have not exited.
    pub(crate) fn running(&self) -> Vec<Pid> {
        let running = self.registry.images().iter().filter(|(_, image)| image.ended.is_none());
        running.map(|(id, _)| id.pid).filter(|&pid| self.is_traced(pid)).collect()
    }

    /// Returns true if the registry has the image, and the image is not a kernel thread. Kernel threads have no
    /// mappings.
    pub(super) fn is_program(&self, id: ImageId) -> bool {
        let image = self.registry.images().get(&id);
        image.is_some_and(|image| self.traced.is_some() || !image.mappings.is_empty())
    }

    /// Returns the time since tick 0.
    pub(super) fn now(&self) -> Duration {
        clock::monotonic().saturating_sub(self.clock.origin)
    }

    pub(crate) fn is_traced(&self, pid: Pid) -> bool {
        self.traced.as_ref().is_none_or(|traced| traced.contains(&pid))
    }

    /// Reads the mappings and the metadata of `pid`.
    pub(crate) fn read_image(&mut self, pid: Pid) -> Result<(), ProcessError> {
        let image = procfs::read_image(pid, &mut self.objects)?;
        let at = self.now();
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
        self.own_profiles.add_new(pid);
        self.read_metadata(pid);
        Ok(())
    }

    /// Surveys the objects that `pid` has mapped, as far as its mappings were read, and remembers the verdicts.
    pub(crate) fn survey(&mut self, pid: Pid) -> Survey {
        let Some(image) = self.image(pid) else { return Survey::default() };
        let survey = self.allocators.survey(image);
        let object = |path: &Path| image.objects().find(|object| object.path == path).cloned();
        let examined = survey.examined.iter();
        let objects: Vec<_> = examined.filter_map(|found| Some((object(&found.path)?, &found.verdict))).collect();
        for (object, verdict) in objects {
            self.allocators.set_verdict(&object, verdict);
        }
        survey
    }

    /// Returns the allocators that a command may load.
    pub(crate) fn candidates(&mut self, command: &OsStr) -> Candidates {
        self.allocators.candidates(command, &mut self.objects)
    }

    /// Returns allocators that the images of a command may map later.
    pub(crate) fn possible_allocators(&mut self, argv: &[OsString]) -> Candidates {
        self.allocators.possible(argv, &mut self.objects)
    }

    /// Returns true if `pid` has mapped an allocator with probes.
    pub(crate) fn has_probes(&self, pid: Pid) -> bool {
        self.image(pid).is_some_and(|image| self.allocators.has_probes(pid, image))
    }

    /// Returns the number of allocators that an image mapped before the allocators had probes, and forgets the image.
    pub(crate) fn take_late(&mut self, id: ImageId) -> u64 {
        self.allocators.late().take(id)
    }

    /// Records that the latest image of `pid`, which was stopped at its exec, runs from now on. Allocators of the image that
    /// have probes are not late.
    pub(crate) fn set_running(&mut self, pid: Pid) {
        let id = self.latest_id(pid);
        self.allocators.late().set_running(id, clock::monotonic());
    }

    /// Sets the user and the cgroup of ended images to the ones that the kernel reported at their
    /// end.
    pub(crate) fn set_owners(&mut self, owners: BTreeMap<ImageId, Owner>) {
        self.owners.add(owners, &mut self.registry, &self.metadata);
    }

    /// Reads the user, the cgroup and the number of threads of `pid`. Reads the names of its threads too, if they are
    /// recorded.
    pub(crate) fn read_metadata(&mut self, pid: Pid) {
        let metadata = self.metadata.of(pid);
        if metadata == ProcessMetadata::default() {
            return;
        }
        let ProcessMetadata { user, cgroup, threads } = metadata;
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Belongs { user, cgroup, threads } });
        if self.records_thread_names {
            for (tid, name) in procfs::thread_names(pid) {
                self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Thread { tid, name } });
            }
        }
    }

    /// Removes the names of the `ended` threads of an image. No recorded event may refer to these threads.
    pub(crate) fn forget_threads(&mut self, id: ImageId, ended: impl IntoIterator<Item = Tid>) {
        self.registry.forget_threads(id, ended);
    }

    /// Reads the metadata of the running processes of `snapshot` again, because their cgroups or threads may have
    /// changed.
    pub(crate) fn refresh_metadata(&mut self, snapshot: &Snapshot) {
        let runs = |id: &&ImageId| self.image(id.pid).is_some_and(|image| image.ended.is_none());
        let pids: BTreeSet<_> = snapshot.images.keys().filter(runs).map(|id| id.pid).collect();
        for pid in pids {
            self.read_metadata(pid);
        }
    }

    /// Appends the new allocators in `object`, which `pid` has mapped, to `new`.
    pub(super) fn add_new_allocators(&mut self, pid: Pid, object: &Arc<Object>, new: &mut Vec<(Pid, Allocator)>) {
        if self.is_traced(pid) {
            new.extend(self.allocators.find_new(pid, object).into_iter().map(|allocator| (pid, allocator)));
        }
    }

    /// Returns the object that `pid` maps at the address range `range`. Without a range, returns the executable of
    /// `pid`.
    pub(crate) fn mapped_object(&mut self, pid: Pid, range: Option<(AbsAddr, AbsAddr)>) -> Option<Arc<Object>> {
        let Some((start, end)) = range else { return procfs::program_of(pid, &mut self.objects) };
        let mapped = procfs::object_at(pid, start, end, &mut self.objects);
        // If the process has exited, earlier mmap events may have reported its mappings.
        mapped.ok().flatten().or_else(|| {
            let mappings = &self.image(pid)?.mappings;
            mappings.iter().find(|mapping| mapping.start <= start && start < mapping.end)?.object.clone()
        })
    }

    /// Opens the objects at these paths that exist in memtrace's mount namespace.
    pub(crate) fn open_objects(&mut self, paths: &[PathBuf]) -> Vec<Arc<Object>> {
        let open = |path: &PathBuf| Some(self.objects.opened(Path::new("/"), path, procfs::Opened::at(path).ok()?));
        paths.iter().filter_map(open).collect()
    }

    /// Returns the libraries that `executable` may load at its start.
    pub(crate) fn libraries(&mut self, executable: &Object) -> Vec<Arc<Object>> {
        loader::libraries(executable, &mut self.objects)
    }

    /// Returns the latest image of `pid`.
    pub(crate) fn image(&self, pid: Pid) -> Option<&ProcessImage> {
        self.registry.images().get(&self.latest_id(pid))
    }

    /// Returns a mapping of the executable of an image, if Go's linker made the executable.
    pub(crate) fn go_program(&self, id: ImageId) -> Option<&Mapping> {
        let image = self.registry.images().get(&id)?;
        // A Go library does not make its executable a Go program.
        let is_program = |object: &Object| image.exe.as_ref() == Some(&object.path) && self.allocators.is_go(object);
        image.mappings.iter().find(|mapping| mapping.object.as_deref().is_some_and(is_program))
    }

    /// Returns the runtime of the program in an image, if it is known.
    pub(crate) fn runtime(&self, id: ImageId) -> Option<Runtime> {
        let image = self.registry.images().get(&id)?;
        let is_go = || image.objects().any(|object| self.allocators.is_go(object));
        Runtime::of_program(image.exe.as_deref(), image.objects().map(|object| object.path.as_path()), is_go)
    }

    /// Returns the id of the latest image of `pid`.
    pub(crate) fn latest_id(&self, pid: Pid) -> ImageId {
        let first = ImageId { pid, ordinal: 0 };
        let all = first..=ImageId { pid, ordinal: u32::MAX };
        self.registry.images().range(all).next_back().map_or(first, |(id, _)| *id)
    }

    /// Returns the image that `pid` ran at `at`, a time since tick 0.
    pub(crate) fn image_at(&self, pid: Pid, at: Duration) -> Option<&ProcessImage> {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        let mut images = self.registry.images().range(all).rev().map(|(_, image)| image);
        images.find(|image| image.start.tick().is_none_or(|start| start <= Tick::at(at)))
    }

    /// Returns true if mmap events are available, and have not reported the end of the image yet.
    pub(crate) fn awaits_end(&self, id: ImageId) -> bool {
        self.events.is_some() && self.registry.runs(id)
    }

    /// Returns the images that ended before `before`, according to the mmap events.
    pub(crate) fn ended_before(&self, before: Tick) -> impl Iterator<Item = (ImageId, ImageEnd, Tick)> + '_ {
        self.registry.images().iter().filter_map(move |(&id, image)| {
            let (end, at) = image.ended.filter(|(_, at)| *at < before)?;
            Some((id, end, at))
        })
    }

    /// Removes an image that has ended at `at` from the registry, and returns it.
    pub(crate) fn take_ended(&mut self, id: ImageId, end: ImageEnd, at: Tick) -> Option<ProcessImage> {
        self.owners.remove(id);
        if self.registry.runs(id) {
            // The mmap events of the image's end were lost, or mmap events are not available. After an exec that the registry
            // does not know, the image stays in the registry as the running image.
            let kind = match end {
                ImageEnd::Exec => return self.registry.images().get(&id).cloned(),
                ImageEnd::Exit | ImageEnd::OomKill => ProcessEventKind::Exited { at },
            };
            self.registry.apply(ProcessEvent { pid: id.pid, kind });
        }
        self.own_profiles.remove(id);
        self.registry.take(id)
    }

    pub(crate) fn images(&self) -> &BTreeMap<ImageId, ProcessImage> {
        self.registry.images()
    }

    /// Counts `count` files of traced processes that were not read in time.
    pub(crate) const fn add_unread(&mut self, count: u64) {
        self.unread += count;
    }

    /// Returns the losses: lost mmap events, files that were not read in time, and images and mappings beyond the limits
    /// of the registry.
    pub(crate) fn losses(&self) -> Losses {
        let mut losses = self.registry.losses().clone();
        losses.add(LossReason::MappingsLost, self.lost);
        losses.add(LossReason::FileTimeout, self.unread);
        losses
    }
}
