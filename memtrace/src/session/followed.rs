//! What is known of the traced processes: what they run, what they have mapped, and which allocators they carry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::cost;
use super::late::Late;
use super::numbers::Numbers;
use crate::kernel::mappings::{FileIdentity, MappingEvents, MappingKind, MappingNotice};
use crate::model::{
    AbsAddr, AllocatorId, FileOffset, Image, ImageId, ImageUsage, LossReason, Losses, Mapping, Notice, NoticeKind,
    Object, Parts, Pid, Snapshot, Tick,
};
use crate::pipeline::registry::Registry;
use crate::target::{self, Allocator, Belonging, Belongings, Candidates, Objects, Survey, TargetError, Wanted};

/// Follows the mappings of the traced processes.
pub(super) struct Followed {
    /// `None` where the kernel does not tell; then only what was mapped at the beginning is known.
    events: Option<MappingEvents>,
    objects: Objects,
    registry: Registry,
    /// The processes that are traced; `None`: all.
    traced: Option<HashSet<Pid>>,
    /// Whether probes are placed for everyone, so that each object matters once.
    shares_probes: bool,
    /// The allocators that are known, and in whom; `None`: in everyone.
    known: HashSet<(Option<Pid>, PathBuf)>,
    /// Objects that were looked at for allocators, where each matters once.
    looked_at: HashSet<PathBuf>,
    late: Late,
    /// Processes whose new program is the next file that they map.
    new_programs: HashSet<Pid>,
    belongings: Belongings,
    numbers: Numbers,
    /// The monotonic clock from which ticks are counted.
    clock_start: Duration,
    /// Whether the names of threads are kept.
    names_threads: bool,
    /// Whether processes' allocators are told apart.
    tells_allocators: bool,
    lost: u64,
    /// The monotonic clock when events began to count; `None`: they do not yet. What was there before has no books.
    begun: Option<Duration>,
    /// What the user has named.
    wanted: Wanted,
}

/// What has happened to the traced processes.
#[derive(Default)]
pub(super) struct News {
    /// The allocators that they have newly mapped.
    pub(super) allocators: Vec<(Pid, Allocator)>,
    /// Those that had an allocator before it was probed, each as often as it had one.
    pub(super) late: Vec<Pid>,
    /// Those that have mapped something, or run another program.
    pub(super) changed: BTreeSet<Pid>,
}

impl Followed {
    /// Counts ticks from `clock_start` of the monotonic clock, and keeps what takes it to tell `parts` apart; `wanted` is
    /// what the user has named.
    pub(super) fn new(clock_start: Duration, parts: Parts, wanted: Wanted) -> Self {
        let events = MappingEvents::open()
            .inspect_err(|error| log::warn!("the kernel does not tell of new mappings: {error}"))
            .ok();
        Self {
            events,
            objects: Objects::new(),
            registry: Registry::new(),
            traced: Some(HashSet::new()),
            shares_probes: false,
            known: HashSet::new(),
            looked_at: HashSet::new(),
            late: Late::default(),
            new_programs: HashSet::new(),
            belongings: Belongings::new(),
            numbers: Numbers::default(),
            clock_start,
            names_threads: parts == Parts::Threads,
            tells_allocators: parts == Parts::Allocators,
            lost: 0,
            begun: None,
            wanted,
        }
    }

    /// Events count since `now`, by the monotonic clock.
    pub(super) fn begin_at(&mut self, now: Duration) {
        self.begun = Some(now);
    }

    /// The store of the files that processes have mapped.
    pub(super) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// From now on hears of what `pid` maps.
    pub(super) fn follow(&mut self, pid: Pid) {
        if let Some(traced) = &mut self.traced {
            traced.insert(pid);
        }
        if let Some(events) = &mut self.events {
            events.follow(pid);
        }
    }

    /// From now on probes are placed for everyone.
    pub(super) fn share_probes(&mut self) {
        self.shares_probes = true;
    }

    /// From now on hears of what anybody maps; reads what these have mapped already, and returns the allocators in it, each
    /// with one of those who have it.
    pub(super) fn read_all(&mut self, pids: &[Pid]) -> Vec<(Pid, Allocator)> {
        self.traced = None;
        if let Some(events) = &mut self.events {
            events.follow_all();
        }
        let mut allocators = Vec::new();
        for &pid in pids {
            // Whoever has ended meanwhile is nobody's concern.
            if let Ok(image) = target::read_image(pid, &mut self.objects) {
                for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
                    self.look_at(pid, object, &mut allocators);
                }
                let at = self.now();
                self.registry.apply(Notice { pid, kind: NoticeKind::Seen { image, at } });
                self.look(pid);
            }
        }
        allocators
    }

    /// The objects that processes have mapped, those first that most have.
    pub(super) fn by_use(&self) -> Vec<Arc<Object>> {
        let mut users: HashMap<&Path, (usize, &Arc<Object>)> = HashMap::new();
        let mappings = self.registry.images().values().flat_map(|image| &image.mappings);
        for object in mappings.filter_map(|mapping| mapping.object.as_ref()) {
            if let Some(handle) = &object.handle {
                users.entry(handle).or_insert((0, object)).0 += 1;
            }
        }
        let mut users: Vec<_> = users.into_values().collect();
        users.sort_by(|(more, one), (less, other)| less.cmp(more).then_with(|| one.path.cmp(&other.path)));
        users.into_iter().map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The processes that are traced and run, as far as that was read.
    pub(super) fn running(&self) -> Vec<Pid> {
        let running = self.registry.images().iter().filter(|(_, image)| image.ended.is_none());
        running.map(|(id, _)| id.pid).filter(|&pid| self.is_traced(pid)).collect()
    }

    /// Since ticks began.
    fn now(&self) -> Duration {
        cost::monotonic_clock().saturating_sub(self.clock_start)
    }

    /// Whether `pid` is one of those whose mappings are followed.
    pub(super) fn is_traced(&self, pid: Pid) -> bool {
        self.traced.as_ref().is_none_or(|traced| traced.contains(&pid))
    }

    /// Reads what `pid` has mapped already.
    pub(super) fn read(&mut self, pid: Pid) -> Result<&Image, TargetError> {
        let image = target::read_image(pid, &mut self.objects)?;
        let at = self.now();
        self.registry.apply(Notice { pid, kind: NoticeKind::Seen { image, at } });
        self.look(pid);
        self.registry
            .images()
            .range(ImageId { pid, ordinal: 0 }..)
            .next()
            .map(|(_, image)| image)
            .ok_or(TargetError::Ended(pid))
    }

    /// The allocators in what `pid` has mapped, as far as that was read.
    pub(super) fn survey(&self, pid: Pid) -> Survey {
        self.image(pid).map_or_else(Survey::default, |image| target::survey(image, &self.wanted))
    }

    /// The allocators that a command may come to use.
    pub(super) fn candidates(&mut self, command: &OsStr) -> Candidates {
        target::candidates(command, &mut self.objects, &self.wanted)
    }

    /// Looks whose `pid` is, and what its threads are called.
    fn look(&mut self, pid: Pid) {
        let belonging = self.belongings.of(pid);
        if belonging == Belonging::default() {
            return;
        }
        let Belonging { user, cgroup, threads } = belonging;
        self.registry.apply(Notice { pid, kind: NoticeKind::Belongs { user, cgroup, threads } });
        if self.names_threads {
            for (tid, name) in target::thread_names(pid) {
                self.registry.apply(Notice { pid, kind: NoticeKind::Thread { tid, name } });
            }
        }
    }

    /// Looks again at all of `snapshot`'s processes that still run: they may have moved, and have other threads.
    pub(super) fn look_again(&mut self, snapshot: &Snapshot) {
        let runs = |id: &&ImageId| self.image(id.pid).is_some_and(|image| image.ended.is_none());
        let pids: BTreeSet<_> = snapshot.images.keys().filter(runs).map(|id| id.pid).collect();
        for pid in pids {
            self.look(pid);
        }
    }

    /// Says that this allocator of `pid` is known; whether it was new.
    pub(super) fn is_new(&mut self, pid: Pid, allocator: &Allocator) -> bool {
        let Some(handle) = allocator.object.handle.clone() else { return false };
        self.numbers.number(&handle, &allocator.kinds.to_string(), &allocator.object.path);
        let whose = if self.shares_probes { None } else { Some(pid) };
        self.known.insert((whose, handle))
    }

    /// An allocator that was new is probed from now on.
    pub(super) fn placed(&mut self, allocator: &Allocator) {
        if let Some(handle) = &allocator.object.handle {
            self.late.placed(handle, cost::monotonic_clock());
        }
    }

    /// The allocator's number, where processes' allocators are told apart.
    pub(super) fn number(&self, allocator: &Allocator) -> AllocatorId {
        let handle = allocator.object.handle.as_ref().filter(|_| self.tells_allocators);
        handle.map_or(AllocatorId::UNKNOWN, |handle| self.numbers.known(handle))
    }

    /// Takes up what has happened since the last call.
    pub(super) fn poll(&mut self) -> News {
        let mut notices = Vec::new();
        let drained = match &mut self.events {
            Some(events) => events.drain(|notice| notices.push(notice)),
            None => Ok(0),
        };
        let mut news = News::default();
        for notice in notices {
            self.take(notice, &mut news);
        }
        match drained {
            Ok(0) => {}
            Ok(lost) => self.make_up_for(lost, &mut news),
            Err(error) => log::warn!("notices of new mappings cannot be read: {error}"),
        }
        news
    }

    /// Lost notices may have been anybody's. What the traced processes have mapped is read again; only where one has
    /// ended is something missing for good.
    fn make_up_for(&mut self, lost: u64, news: &mut News) {
        let pids: Vec<_> = match &self.traced {
            Some(traced) => traced.iter().copied().collect(),
            None => target::all_processes().unwrap_or_default(),
        };
        for pid in pids {
            let Ok(image) = target::read_image(pid, &mut self.objects) else {
                self.lost += lost;
                continue;
            };
            let now = cost::monotonic_clock();
            for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
                self.look_at(pid, object, &mut news.allocators);
                self.look_when(pid, object, now, news);
            }
            news.changed.insert(pid);
            let at = self.now();
            self.registry.apply(Notice { pid, kind: NoticeKind::Seen { image, at } });
        }
    }

    fn take(&mut self, notice: MappingNotice, news: &mut News) {
        let pid = notice.pid;
        let has_books = self.begun.is_some_and(|begun| Duration::from_nanos(notice.time_ns) >= begun);
        let changes = matches!(notice.kind, MappingKind::Mapped { .. } | MappingKind::Exec { .. });
        if changes && self.is_traced(pid) {
            news.changed.insert(pid);
        }
        let time = Duration::from_nanos(notice.time_ns).saturating_sub(self.clock_start);
        let at = Tick::at(time);
        let mut runs_another = false;
        let kind = match notice.kind {
            MappingKind::Mapped { start, end, offset, path, identity, .. } => {
                let object = self.resolve(pid, &path, identity);
                if let Some(object) = &object {
                    self.look_at(pid, object, &mut news.allocators);
                    self.look_when(pid, object, Duration::from_nanos(notice.time_ns), news);
                }
                NoticeKind::Mapped { mapping: Mapping { start, end, offset, object }, at: time }
            }
            MappingKind::Exec { comm } => {
                self.new_programs.insert(pid);
                // Whoever starts it gives it its user and its control group before.
                runs_another = true;
                if has_books {
                    NoticeKind::Exec { comm, at }
                } else {
                    self.registry.forget(pid);
                    NoticeKind::Comm { comm }
                }
            }
            // Only the first thread's name is the process'.
            MappingKind::Comm { .. } if notice.tid.0 != pid.0 && !self.names_threads => return,
            MappingKind::Comm { comm } if notice.tid.0 != pid.0 => NoticeKind::Thread { tid: notice.tid, name: comm },
            MappingKind::Comm { comm } => NoticeKind::Comm { comm },
            MappingKind::Fork { parent } => {
                if let Some(traced) =
                    self.traced.as_mut().filter(|traced| self.shares_probes && traced.contains(&parent))
                {
                    traced.insert(pid);
                }
                NoticeKind::Forked { parent, at }
            }
            MappingKind::Exit if !has_books => return self.registry.forget(pid),
            MappingKind::Exit => NoticeKind::Exited { at },
        };
        self.registry.apply(Notice { pid, kind });
        if runs_another {
            self.look(pid);
        }
    }

    fn resolve(&mut self, pid: Pid, path: &Path, identity: FileIdentity) -> Option<Arc<Object>> {
        // `//anon` and its like are memory without a file.
        if path.as_os_str().as_encoded_bytes().starts_with(b"//") {
            return None;
        }
        if self.new_programs.remove(&pid) {
            self.registry.apply(Notice { pid, kind: NoticeKind::Exe { exe: path.to_owned() } });
        }
        let (build_id, inode) = match identity {
            FileIdentity::BuildId(build_id) => (Some(build_id), None),
            FileIdentity::Inode { major, minor, inode } => (None, Some((libc::makedev(major, minor), inode))),
        };
        Some(self.objects.resolve(pid, path, build_id, inode))
    }

    fn look_at(&mut self, pid: Pid, object: &Arc<Object>, found: &mut Vec<(Pid, Allocator)>) {
        let Some(handle) = object.handle.clone() else { return };
        if !self.is_traced(pid) || self.shares_probes && !self.looked_at.insert(handle.clone()) {
            return;
        }
        if self.known.contains(&(Some(pid), handle)) {
            return;
        }
        let mapping = Mapping {
            start: Default::default(),
            end: Default::default(),
            offset: FileOffset(0),
            object: Some(object.clone()),
        };
        let survey = target::survey(&Image { mappings: vec![mapping], ..Image::default() }, &self.wanted);
        for allocator in survey.allocators {
            if allocator.is_supported() && self.is_new(pid, &allocator) {
                if let Some(handle) = allocator.object.handle.as_deref().filter(|_| self.begun.is_some()) {
                    self.late.found(handle);
                }
                found.push((pid, allocator));
            }
        }
    }

    /// Notes whether `pid`, which has mapped `object` at `time`, came before the probes in it.
    fn look_when(&mut self, pid: Pid, object: &Object, time: Duration, news: &mut News) {
        if let Some(handle) = &object.handle
            && self.is_traced(pid)
            && self.late.is(pid, handle, time)
        {
            news.late.push(pid);
        }
    }

    /// The object that `pid` has mapped there, or the program that it runs.
    pub(super) fn object(&mut self, pid: Pid, range: Option<(AbsAddr, AbsAddr)>) -> Option<Arc<Object>> {
        let Some((start, end)) = range else { return target::program_of(pid, &mut self.objects) };
        let mapped = target::object_at(pid, start, end, &mut self.objects);
        // Where the process has ended, perhaps it was heard of in time.
        mapped.or_else(|| {
            let mappings = &self.image(pid)?.mappings;
            mappings.iter().find(|mapping| mapping.start <= start && start < mapping.end)?.object.clone()
        })
    }

    /// What a process that runs `program` could come to map as it begins.
    pub(super) fn libraries(&mut self, program: &Object) -> Vec<Arc<Object>> {
        target::libraries(program, &mut self.objects)
    }

    /// Adds the traced processes that allocated nothing, so that a reader sees that they were looked at.
    pub(super) fn add_idle(&self, snapshot: &mut Snapshot) {
        for &pid in self.traced.iter().flatten() {
            let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
            if snapshot.images.range(all.clone()).next().is_none()
                && let Some((&id, _)) = self.registry.images().range(all).next_back()
            {
                snapshot.images.insert(id, ImageUsage::default());
            }
        }
    }

    /// What `pid` runs now, as far as that is known.
    pub(super) fn image(&self, pid: Pid) -> Option<&Image> {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        self.registry.images().range(all).next_back().map(|(_, image)| image)
    }

    /// Every image seen.
    pub(super) fn images(&self) -> &BTreeMap<ImageId, Image> {
        self.registry.images()
    }

    /// What allocators are called, by their numbers.
    pub(super) const fn allocators(&self) -> &BTreeMap<AllocatorId, String> {
        self.numbers.names()
    }

    /// What was lost in following.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.registry.losses().clone();
        losses.add(LossReason::MappingsLost, self.lost);
        losses
    }
}
