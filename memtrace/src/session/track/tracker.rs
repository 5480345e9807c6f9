//! What is known of the traced processes: what they run, what they have mapped, and which allocators they carry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::allocators::Allocators;
use crate::allocators::{Allocator, Survey, UserHooks};
use crate::loader;
use crate::loader::Candidates;
use crate::mmap_events::MmapEvents;
use crate::model::{
    AbsAddr, ImageId, ImageUsage, LossReason, Losses, Object, PartitionBy, Pid, ProcessEvent, ProcessEventKind,
    ProcessImage, Snapshot,
};
use crate::procfs;
use crate::procfs::{MetadataReader, Objects, ProcessError, ProcessMetadata};
use crate::registry::Registry;
use crate::session::clock;

/// Follows the mappings of the traced processes.
pub(in crate::session) struct Followed {
    /// `None` where the kernel does not tell; then only what was mapped at the beginning is known.
    pub(super) events: Option<MmapEvents>,
    pub(super) objects: Objects,
    pub(super) registry: Registry,
    /// The processes that are traced; `None`: all.
    pub(super) traced: Option<HashSet<Pid>>,
    /// The allocators in what they have mapped.
    pub(in crate::session) allocators: Allocators,
    /// Processes whose new program is the next file that they map.
    pub(super) new_programs: HashSet<Pid>,
    pub(super) belongings: MetadataReader,
    /// The monotonic clock from which ticks are counted.
    pub(super) clock_start: Duration,
    /// Whether the names of threads are kept.
    pub(super) names_threads: bool,
    pub(super) lost: u64,
    /// The monotonic clock when events began to count; `None`: they do not yet. What was there before has no books.
    pub(super) begun: Option<Duration>,
}

/// What has happened to the traced processes.
#[derive(Default)]
pub(in crate::session) struct News {
    /// The allocators that they have newly mapped.
    pub(in crate::session) allocators: Vec<(Pid, Allocator)>,
    /// Those that had an allocator before it was probed, each as often as it had one.
    pub(in crate::session) late: Vec<Pid>,
    /// Those that have mapped something, or run another program.
    pub(in crate::session) changed: BTreeSet<Pid>,
}

impl Followed {
    /// Counts ticks from `clock_start` of the monotonic clock, and keeps what takes it to tell `parts` apart; `wanted` is
    /// what the user has named.
    pub(in crate::session) fn new(clock_start: Duration, parts: PartitionBy, wanted: UserHooks) -> Self {
        let events = procfs::online_cpus()
            .and_then(|cpus| MmapEvents::open(&cpus))
            .inspect_err(|error| log::warn!("the kernel does not tell of new mappings: {error}"))
            .ok();
        Self {
            events,
            objects: Objects::new(),
            registry: Registry::new(),
            traced: Some(HashSet::new()),
            allocators: Allocators::new(wanted, parts == PartitionBy::Allocators),
            new_programs: HashSet::new(),
            belongings: MetadataReader::new(),
            clock_start,
            names_threads: parts == PartitionBy::Threads,
            lost: 0,
            begun: None,
        }
    }

    /// Events count since `now`, by the monotonic clock.
    pub(in crate::session) fn begin_at(&mut self, now: Duration) {
        self.begun = Some(now);
        self.allocators.begin();
    }

    /// The store of the files that processes have mapped.
    pub(in crate::session) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// From now on hears of what `pid` maps.
    pub(in crate::session) fn follow(&mut self, pid: Pid) {
        if let Some(traced) = &mut self.traced {
            traced.insert(pid);
        }
        if let Some(events) = &mut self.events {
            events.follow(pid);
        }
    }

    /// From now on hears of what anybody maps; reads what these have mapped already, and returns the allocators in it, each
    /// with one of those who have it.
    pub(in crate::session) fn read_all(&mut self, pids: &[Pid]) -> Vec<(Pid, Allocator)> {
        self.traced = None;
        if let Some(events) = &mut self.events {
            events.follow_all();
        }
        let mut allocators = Vec::new();
        for &pid in pids {
            // Whoever has ended meanwhile is nobody's concern.
            if let Ok(image) = procfs::read_image(pid, &mut self.objects) {
                for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
                    self.look_at(pid, object, &mut allocators);
                }
                let at = self.now();
                self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
                self.look(pid);
            }
        }
        allocators
    }

    /// The objects that processes have mapped, those first that most have.
    pub(in crate::session) fn by_use(&self) -> Vec<Arc<Object>> {
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
    pub(in crate::session) fn running(&self) -> Vec<Pid> {
        let running = self.registry.images().iter().filter(|(_, image)| image.ended.is_none());
        running.map(|(id, _)| id.pid).filter(|&pid| self.is_traced(pid)).collect()
    }

    /// Since ticks began.
    pub(super) fn now(&self) -> Duration {
        clock::monotonic().saturating_sub(self.clock_start)
    }

    /// Whether `pid` is one of those whose mappings are followed.
    pub(in crate::session) fn is_traced(&self, pid: Pid) -> bool {
        self.traced.as_ref().is_none_or(|traced| traced.contains(&pid))
    }

    /// Reads what `pid` has mapped already.
    pub(in crate::session) fn read(&mut self, pid: Pid) -> Result<&ProcessImage, ProcessError> {
        let image = procfs::read_image(pid, &mut self.objects)?;
        let at = self.now();
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
        self.look(pid);
        self.registry
            .images()
            .range(ImageId { pid, ordinal: 0 }..)
            .next()
            .map(|(_, image)| image)
            .ok_or(ProcessError::Exited(pid))
    }

    /// The allocators in what `pid` has mapped, as far as that was read.
    pub(in crate::session) fn survey(&self, pid: Pid) -> Survey {
        self.image(pid).map_or_else(Survey::default, |image| self.allocators.survey(image))
    }

    /// The allocators that a command may come to use.
    pub(in crate::session) fn candidates(&mut self, command: &OsStr) -> Candidates {
        self.allocators.candidates(command, &mut self.objects)
    }

    /// Looks whose `pid` is, and what its threads are called.
    pub(super) fn look(&mut self, pid: Pid) {
        let belonging = self.belongings.of(pid);
        if belonging == ProcessMetadata::default() {
            return;
        }
        let ProcessMetadata { user, cgroup, threads } = belonging;
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Belongs { user, cgroup, threads } });
        if self.names_threads {
            for (tid, name) in procfs::thread_names(pid) {
                self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Thread { tid, name } });
            }
        }
    }

    /// Looks again at all of `snapshot`'s processes that still run: they may have moved, and have other threads.
    pub(in crate::session) fn look_again(&mut self, snapshot: &Snapshot) {
        let runs = |id: &&ImageId| self.image(id.pid).is_some_and(|image| image.ended.is_none());
        let pids: BTreeSet<_> = snapshot.images.keys().filter(runs).map(|id| id.pid).collect();
        for pid in pids {
            self.look(pid);
        }
    }

    /// Takes up what has happened since the last call.
    pub(in crate::session) fn poll(&mut self) -> News {
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

    /// Adds the allocators in `object`, which `pid` has mapped, that are new to `found`.
    pub(super) fn look_at(&mut self, pid: Pid, object: &Arc<Object>, found: &mut Vec<(Pid, Allocator)>) {
        if self.is_traced(pid) {
            found.extend(self.allocators.find(pid, object).into_iter().map(|allocator| (pid, allocator)));
        }
    }

    /// Notes whether `pid`, which has mapped `object` at `time`, came before the probes in it.
    pub(super) fn look_when(&mut self, pid: Pid, object: &Object, time: Duration, news: &mut News) {
        if self.is_traced(pid) && self.allocators.is_late(pid, object, time) {
            news.late.push(pid);
        }
    }

    /// The object that `pid` has mapped there, or the program that it runs.
    pub(in crate::session) fn object(&mut self, pid: Pid, range: Option<(AbsAddr, AbsAddr)>) -> Option<Arc<Object>> {
        let Some((start, end)) = range else { return procfs::program_of(pid, &mut self.objects) };
        let mapped = procfs::object_at(pid, start, end, &mut self.objects);
        // Where the process has ended, perhaps it was heard of in time.
        mapped.or_else(|| {
            let mappings = &self.image(pid)?.mappings;
            mappings.iter().find(|mapping| mapping.start <= start && start < mapping.end)?.object.clone()
        })
    }

    /// What a process that runs `program` could come to map as it begins.
    pub(in crate::session) fn libraries(&mut self, program: &Object) -> Vec<Arc<Object>> {
        loader::libraries(program, &mut self.objects)
    }

    /// Adds the traced processes that allocated nothing, so that a reader sees that they were looked at.
    pub(in crate::session) fn add_idle(&self, snapshot: &mut Snapshot) {
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
    pub(in crate::session) fn image(&self, pid: Pid) -> Option<&ProcessImage> {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        self.registry.images().range(all).next_back().map(|(_, image)| image)
    }

    /// Every image seen.
    pub(in crate::session) fn images(&self) -> &BTreeMap<ImageId, ProcessImage> {
        self.registry.images()
    }

    /// What was lost in following.
    pub(in crate::session) fn losses(&self) -> Losses {
        let mut losses = self.registry.losses().clone();
        losses.add(LossReason::MappingsLost, self.lost);
        losses
    }
}
