//! The allocators in the objects that traced processes map.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_host::loader;
use memtrace_host::loader::Candidates;
use memtrace_host::procfs::Objects;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{AllocatorId, FileOffset, ImageId, Mapping, Object, Pid, ProcessImage, UntracedReason};
use memtrace_object::allocators;
use memtrace_object::allocators::{Allocator, Survey, UserHooks, Verdict};

use super::allocator_ids::AllocatorIds;
use super::late_probes::LateProbes;
use super::verdicts::{self, Verdicts};
use crate::run_kit::clock;
use crate::targets::bounded_set::BoundedSet;

/// Maximum number of remembered allocators, and of remembered surveyed objects. A forgotten allocator is found again
/// when a process maps it, but its probes are not attached twice.
const MAX_REMEMBERED: usize = 1 << 16;

/// The allocators found so far.
pub(crate) struct Allocators {
    user_hooks: UserHooks,
    /// True if allocation events have the ID of the allocator.
    records_allocators: bool,
    /// Reason why no allocator gets probes; `None` if allocators get probes.
    without_probes: Option<UntracedReason>,
    /// True if probes are placed for all processes. Each object is then surveyed once.
    shares_probes: bool,
    /// Handles of the allocators found. If probes are attached for single processes, there is one entry for each
    /// process and allocator.
    found: BoundedSet<(Option<Pid>, PathBuf)>,
    /// Handles of the surveyed objects, if probes are shared.
    surveyed: BoundedSet<PathBuf>,
    verdicts: Verdicts,
    ids: AllocatorIds,
    late: LateProbes,
    /// True after events have begun to count. Allocators that are found later are late: images may have mapped them
    /// before they have probes.
    has_started: bool,
}

impl Allocators {
    pub(super) fn new(user_hooks: UserHooks, records_allocators: bool) -> Self {
        Self {
            user_hooks,
            records_allocators,
            without_probes: None,
            shares_probes: false,
            found: BoundedSet::new(MAX_REMEMBERED),
            surveyed: BoundedSet::new(MAX_REMEMBERED),
            verdicts: Verdicts::default(),
            ids: AllocatorIds::default(),
            late: LateProbes::default(),
            has_started: false,
        }
    }

    /// Records that events are counted from now on. Allocators that are found later are late.
    pub(super) const fn start(&mut self) {
        self.has_started = true;
    }

    /// Records that no allocator gets probes, for this reason.
    pub(crate) const fn attach_none(&mut self, reason: UntracedReason) {
        self.without_probes = Some(reason);
    }

    /// Records that probes are attached for all processes, not for single ones.
    pub(crate) fn share_probes(&mut self) {
        self.shares_probes = true;
    }

    pub(super) const fn shares_probes(&self) -> bool {
        self.shares_probes
    }

    /// Forgets objects with closed files. Their handles can belong to other files afterwards.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.found.retain(|(_, handle)| !closed.contains(handle));
        self.surveyed.retain(|handle| !closed.contains(handle));
        self.verdicts.forget(closed);
        self.ids.forget(closed);
        self.late.forget(closed);
    }

    /// Surveys the objects that a process has mapped.
    pub(super) fn survey(&self, image: &ProcessImage) -> Survey {
        allocators::survey(image, &self.user_hooks, &TargetFiles)
    }

    /// Returns the allocators that a command may load.
    pub(super) fn candidates(&self, command: &OsStr, objects: &mut Objects) -> Candidates {
        loader::candidates(command, objects, &self.user_hooks)
    }

    /// Returns allocators that the images of a command may map later.
    pub(super) fn possible(&self, argv: &[OsString], objects: &mut Objects) -> Candidates {
        loader::possible_allocators(argv, objects, &self.user_hooks)
    }

    /// Returns the new supported allocators in `object`, which `pid` has mapped.
    pub(super) fn find_new(&mut self, pid: Pid, object: &Arc<Object>) -> Vec<Allocator> {
        let Some(handle) = object.handle.clone() else { return Vec::new() };
        if self.shares_probes && !self.surveyed.insert(handle.clone()) {
            return Vec::new();
        }
        if self.found.contains(&(Some(pid), handle)) {
            return Vec::new();
        }
        let mut allocators = self.survey_object(object).allocators;
        allocators.retain(|allocator| allocator.is_supported() && self.insert(pid, allocator));
        for handle in allocators.iter().filter_map(|new| new.object.handle.as_deref()).filter(|_| self.has_started) {
            self.late.add(handle);
        }
        allocators
    }

    /// Surveys one object, and remembers the verdict.
    fn survey_object(&mut self, object: &Arc<Object>) -> Survey {
        let mapping = Mapping {
            start: Default::default(),
            end: Default::default(),
            offset: FileOffset(0),
            object: Some(Arc::clone(object)),
        };
        let survey = self.survey(&ProcessImage { mappings: vec![mapping], ..ProcessImage::default() });
        if let Some(examined) = survey.examined.first() {
            self.set_verdict(object, &examined.verdict);
        }
        survey
    }

    /// Remembers the verdict on an object.
    pub(super) fn set_verdict(&mut self, object: &Object, verdict: &Verdict) {
        if let Some(handle) = &object.handle {
            self.verdicts.insert(handle.clone(), verdicts::obstacle(verdict));
        }
    }

    /// Returns true if `image`, an image of `pid`, maps an allocator that is known to have probes.
    pub(super) fn has_probes(&self, pid: Pid, image: &ProcessImage) -> bool {
        let owner = self.owner(pid);
        let handles = image.objects().filter_map(|object| object.handle.as_ref());
        let mut found = handles.filter(|handle| self.found.contains(&(owner, (*handle).clone())));
        let is_attached = |handle: &PathBuf| self.verdicts.get(handle) != Some(Some(UntracedReason::NotAttached));
        self.without_probes.is_none() && found.any(is_attached)
    }

    /// Returns true if an object is known to be made by Go.
    pub(super) fn is_go(&self, object: &Object) -> bool {
        let verdict = object.handle.as_ref().and_then(|handle| self.verdicts.get(handle));
        verdict == Some(Some(UntracedReason::Go))
    }

    /// Returns the reason why `object` has no allocator with probes; `None` if it has one.
    pub(super) fn obstacle(&mut self, pid: Pid, object: &Arc<Object>) -> Option<UntracedReason> {
        let Some(handle) = &object.handle else { return Some(UntracedReason::Unreadable) };
        if self.verdicts.get(handle).is_none() {
            self.survey_object(object);
        }
        match self.verdicts.get(handle)? {
            Some(reason) => Some(reason),
            None if self.without_probes.is_some() => self.without_probes,
            None if self.found.contains(&(self.owner(pid), handle.clone())) => None,
            None => Some(UntracedReason::NotAttached),
        }
    }

    /// Records that the probes of an allocator could not be attached.
    pub(crate) fn set_unattached(&mut self, handle: &Path) {
        self.verdicts.insert(handle.to_owned(), Some(UntracedReason::NotAttached));
    }

    /// Records that the probes of an object are attached after all. Has no effect if the object has no allocator.
    pub(crate) fn set_attached(&mut self, handle: &Path) {
        if self.verdicts.get(handle) == Some(Some(UntracedReason::NotAttached)) {
            self.verdicts.insert(handle.to_owned(), None);
            self.late.set_probed(handle, clock::monotonic());
        }
    }

    /// Returns `pid` if its allocators have probes of their own; `None` if probes are shared.
    fn owner(&self, pid: Pid) -> Option<Pid> {
        if self.shares_probes { None } else { Some(pid) }
    }

    /// Adds an allocator of `pid`. Returns true if it is new.
    pub(crate) fn insert(&mut self, pid: Pid, allocator: &Allocator) -> bool {
        let Some(handle) = allocator.object.handle.clone() else { return false };
        self.ids.assign(&handle, &allocator.kinds.to_string(), &allocator.object.path);
        self.found.insert((self.owner(pid), handle))
    }

    /// Records that memtrace has attached, or tried to attach, the probes of an allocator. Images that map it from now
    /// on do not count as late.
    pub(crate) fn set_probed(&mut self, allocator: &Allocator) {
        if let Some(handle) = &allocator.object.handle {
            self.late.set_probed(handle, clock::monotonic());
        }
    }

    /// Returns the allocator's ID, or [`AllocatorId::UNKNOWN`] if events do not have IDs of allocators.
    pub(crate) fn id(&self, allocator: &Allocator) -> AllocatorId {
        let handle = allocator.object.handle.as_ref().filter(|_| self.records_allocators);
        handle.map_or(AllocatorId::UNKNOWN, |handle| self.ids.get(handle))
    }

    /// Counts allocators that images mapped before the allocators had probes. Counts only images that `is_selected` accepts.
    pub(super) fn count_late(&self, is_selected: impl Fn(ImageId) -> bool) -> u64 {
        self.late.count(is_selected)
    }

    /// Returns the images that mapped an allocator before it had probes.
    pub(super) const fn late(&mut self) -> &mut LateProbes {
        &mut self.late
    }

    /// Returns the ID of Go's allocator, whose blocks are in Go's own heap profile.
    pub(crate) fn go_id(&mut self) -> AllocatorId {
        if self.records_allocators { self.ids.go() } else { AllocatorId::UNKNOWN }
    }

    /// Returns the ID of the samples that an object reports. If the object has an allocator, both have the same ID. `source`:
    /// name of the samples otherwise.
    pub(crate) fn id_of_samples(&mut self, object: &Object, source: &str) -> AllocatorId {
        match &object.handle {
            Some(handle) if self.records_allocators => self.ids.assign(handle, source, &object.path),
            _ => AllocatorId::UNKNOWN,
        }
    }

    pub(crate) const fn names(&self) -> &BTreeMap<AllocatorId, String> {
        self.ids.names()
    }
}
