//! What is known of the traced processes: what they run, what they have mapped, and which allocators they carry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::kernel::mappings::{FileIdentity, MappingEvents, MappingKind, MappingNotice};
use crate::model::{
    FileOffset, Image, ImageId, ImageUsage, LossReason, Losses, Mapping, Notice, NoticeKind, Object, Pid, Snapshot,
};
use crate::pipeline::registry::Registry;
use crate::target::{self, Allocator, Objects, Survey, TargetError, Wanted};

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
    lost: u64,
    /// What the user has named.
    wanted: Wanted,
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
    pub(super) fn new(wanted: Wanted) -> Self {
        let events = MappingEvents::open()
            .inspect_err(|error| log::warn!("the kernel does not tell of new mappings: {error}"))
            .ok();
        Self {
            events,
            objects: Objects::new(),
            registry: Registry::new(),
            traced: HashMap::new(),
            new_programs: HashSet::new(),
            lost: 0,
            wanted,
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
    pub(super) fn candidates(&mut self, command: &OsStr) -> Survey {
        target::candidate_allocators(command, &mut self.objects, &self.wanted)
    }

    /// Says that this allocator of `pid` is known; whether it was new.
    pub(super) fn is_new(&mut self, pid: Pid, allocator: &Allocator) -> bool {
        let Some(handle) = allocator.object.handle.clone() else { return false };
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
        let kind = match notice.kind {
            MappingKind::Mapped { start, end, offset, path, identity, .. } => {
                let object = self.object(pid, &path, identity);
                if let Some(object) = &object {
                    self.look_at(pid, object, &mut news.allocators);
                }
                NoticeKind::Mapped { mapping: Mapping { start, end, offset, object } }
            }
            MappingKind::Exec { comm } => {
                self.new_programs.insert(pid);
                NoticeKind::Exec { comm }
            }
            // Only the first thread's name is the process'.
            MappingKind::Comm { .. } if notice.tid.0 != pid.0 => return,
            MappingKind::Comm { comm } => NoticeKind::Comm { comm },
            MappingKind::Fork { parent } => NoticeKind::Forked { parent },
            MappingKind::Exit => NoticeKind::Exited,
        };
        self.registry.apply(Notice { pid, kind });
    }

    fn object(&mut self, pid: Pid, path: &Path, identity: FileIdentity) -> Option<Arc<Object>> {
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
        let survey = target::survey(&Image { mappings: vec![mapping], ..Image::default() }, &self.wanted);
        for allocator in survey.allocators {
            if allocator.is_supported() && self.is_new(pid, &allocator) {
                found.push((pid, allocator));
            }
        }
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

    /// What was lost in following.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.registry.losses().clone();
        losses.add(LossReason::MappingsLost, self.lost);
        losses
    }
}
