//! What is known of the traced processes: what they run, what they have mapped, and which allocators they carry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::numbers::Numbers;
use crate::kernel::mappings::{FileIdentity, MappingEvents, MappingKind, MappingNotice};
use crate::model::{
    AbsAddr, AllocatorId, FileOffset, Image, ImageId, ImageUsage, LossReason, Losses, Mapping, Notice, NoticeKind,
    Object, Parts, Pid, Snapshot, Tick,
};
use crate::pipeline::registry::Registry;
use crate::target::{self, Allocator, Belonging, Belongings, Objects, TargetError};

/// Follows the mappings of the traced processes.
pub(super) struct Followed {
    /// `None` where the kernel does not tell; then only what was mapped at the beginning is known.
    events: Option<MappingEvents>,
    objects: Objects,
    registry: Registry,
    /// The processes that are traced, and those of their allocators that are known.
    traced: HashMap<Pid, HashSet<PathBuf>>,
    /// Processes whose new program is the next file that they map.
    new_programs: HashSet<Pid>,
    belongings: Belongings,
    numbers: Numbers,
    /// The monotonic clock from which ticks are counted.
    clock_start: Duration,
    /// Whether the names of threads are kept.
    names_threads: bool,
    lost: u64,
}

/// What has happened to the traced processes.
#[derive(Default)]
pub(super) struct News {
    /// The allocators that they have newly mapped.
    pub(super) allocators: Vec<(Pid, Allocator)>,
    /// Those that have mapped something, or run another program.
    pub(super) changed: BTreeSet<Pid>,
}

impl Followed {
    /// Counts ticks from `clock_start` of the monotonic clock, and keeps what takes it to tell `parts` apart.
    pub(super) fn new(clock_start: Duration, parts: Parts) -> Self {
        let events = MappingEvents::open()
            .inspect_err(|error| log::warn!("the kernel does not tell of new mappings: {error}"))
            .ok();
        Self {
            events,
            objects: Objects::new(),
            registry: Registry::new(),
            traced: HashMap::new(),
            new_programs: HashSet::new(),
            belongings: Belongings::new(),
            numbers: Numbers::default(),
            clock_start,
            names_threads: parts == Parts::Threads,
            lost: 0,
        }
    }

    /// The store of the files that processes have mapped.
    pub(super) fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// From now on hears of what `pid` maps.
    pub(super) fn follow(&mut self, pid: Pid) {
        self.traced.entry(pid).or_default();
        if let Some(events) = &mut self.events {
            events.follow(pid);
        }
    }

    /// Reads what `pid` has mapped already.
    pub(super) fn read(&mut self, pid: Pid) -> Result<&Image, TargetError> {
        let image = target::read_image(pid, &mut self.objects)?;
        self.registry.apply(Notice { pid, kind: NoticeKind::Seen { image } });
        self.look(pid);
        self.registry
            .images()
            .range(ImageId { pid, ordinal: 0 }..)
            .next()
            .map(|(_, image)| image)
            .ok_or(TargetError::Ended(pid))
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
        self.numbers.number(&handle, &allocator.kind.to_string(), &allocator.object.path);
        self.traced.get_mut(&pid).is_some_and(|known| known.insert(handle))
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
        let pids: Vec<_> = self.traced.keys().copied().collect();
        for pid in pids {
            let Ok(image) = target::read_image(pid, &mut self.objects) else {
                self.lost += lost;
                continue;
            };
            for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
                self.look_at(pid, object, &mut news.allocators);
            }
            news.changed.insert(pid);
            self.registry.apply(Notice { pid, kind: NoticeKind::Seen { image } });
        }
    }

    fn take(&mut self, notice: MappingNotice, news: &mut News) {
        let pid = notice.pid;
        let changes = matches!(notice.kind, MappingKind::Mapped { .. } | MappingKind::Exec { .. });
        if changes && self.traced.contains_key(&pid) {
            news.changed.insert(pid);
        }
        let at = Tick::at(Duration::from_nanos(notice.time_ns).saturating_sub(self.clock_start));
        let mut runs_another = false;
        let kind = match notice.kind {
            MappingKind::Mapped { start, end, offset, path, identity, .. } => {
                let object = self.resolve(pid, &path, identity);
                if let Some(object) = &object {
                    self.look_at(pid, object, &mut news.allocators);
                }
                NoticeKind::Mapped { mapping: Mapping { start, end, offset, object } }
            }
            MappingKind::Exec { comm } => {
                self.new_programs.insert(pid);
                // Whoever starts it gives it its user and its control group before.
                runs_another = true;
                NoticeKind::Exec { comm, at }
            }
            // Only the first thread's name is the process'.
            MappingKind::Comm { .. } if notice.tid.0 != pid.0 && !self.names_threads => return,
            MappingKind::Comm { comm } if notice.tid.0 != pid.0 => NoticeKind::Thread { tid: notice.tid, name: comm },
            MappingKind::Comm { comm } => NoticeKind::Comm { comm },
            MappingKind::Fork { parent } => NoticeKind::Forked { parent, at },
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
        let known = |known: &HashSet<PathBuf>| object.handle.as_ref().is_none_or(|handle| known.contains(handle));
        if self.traced.get(&pid).is_none_or(known) {
            return;
        }
        let mapping = Mapping {
            start: Default::default(),
            end: Default::default(),
            offset: FileOffset(0),
            object: Some(object.clone()),
        };
        let survey = target::survey(&Image { mappings: vec![mapping], ..Image::default() });
        for allocator in survey.allocators {
            if allocator.is_supported() && self.is_new(pid, &allocator) {
                found.push((pid, allocator));
            }
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

    /// Adds the traced processes that allocated nothing, so that a reader sees that they were looked at.
    pub(super) fn add_idle(&self, snapshot: &mut Snapshot) {
        for &pid in self.traced.keys() {
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
