//! The allocators that the traced processes carry: which are known, and since when they are probed.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::late::Late;
use super::numbers::Numbers;
use crate::allocators;
use crate::allocators::{Allocator, Survey, UserHooks};
use crate::loader;
use crate::loader::Candidates;
use crate::model::{AllocatorId, FileOffset, Mapping, Object, Pid, ProcessImage};
use crate::procfs::Objects;
use crate::session::clock;

/// The allocators that were found.
pub(in crate::session) struct Allocators {
    /// What the user has named.
    wanted: UserHooks,
    /// Whether processes' allocators are told apart.
    tells_apart: bool,
    /// Whether probes are placed for everyone, so that each object matters once.
    shares_probes: bool,
    /// Those that are known, and in whom; `None`: in everyone.
    known: HashSet<(Option<Pid>, PathBuf)>,
    /// Objects that were looked at, where each matters once.
    looked_at: HashSet<PathBuf>,
    numbers: Numbers,
    late: Late,
    /// Whether events count, so that one that is found is probed too late for somebody.
    has_begun: bool,
}

impl Allocators {
    /// None is known yet.
    pub(super) fn new(wanted: UserHooks, tells_apart: bool) -> Self {
        Self {
            wanted,
            tells_apart,
            shares_probes: false,
            known: HashSet::new(),
            looked_at: HashSet::new(),
            numbers: Numbers::default(),
            late: Late::default(),
            has_begun: false,
        }
    }

    /// Events count from now on.
    pub(super) const fn begin(&mut self) {
        self.has_begun = true;
    }

    /// From now on probes are placed for everyone.
    pub(in crate::session) fn share_probes(&mut self) {
        self.shares_probes = true;
    }

    /// Whether probes are placed for everyone.
    pub(super) const fn shares_probes(&self) -> bool {
        self.shares_probes
    }

    /// Those in what a process has mapped.
    pub(super) fn survey(&self, image: &ProcessImage) -> Survey {
        allocators::survey(image, &self.wanted)
    }

    /// Those that a command may come to use.
    pub(super) fn candidates(&self, command: &OsStr, objects: &mut Objects) -> Candidates {
        loader::candidates(command, objects, &self.wanted)
    }

    /// Those in `object`, which `pid` has mapped, that are new.
    pub(super) fn find(&mut self, pid: Pid, object: &Arc<Object>) -> Vec<Allocator> {
        let Some(handle) = object.handle.clone() else { return Vec::new() };
        if self.shares_probes && !self.looked_at.insert(handle.clone()) {
            return Vec::new();
        }
        if self.known.contains(&(Some(pid), handle)) {
            return Vec::new();
        }
        let mapping = Mapping {
            start: Default::default(),
            end: Default::default(),
            offset: FileOffset(0),
            object: Some(object.clone()),
        };
        let mut allocators =
            self.survey(&ProcessImage { mappings: vec![mapping], ..ProcessImage::default() }).allocators;
        allocators.retain(|allocator| allocator.is_supported() && self.is_new(pid, allocator));
        for handle in allocators.iter().filter_map(|new| new.object.handle.as_deref()).filter(|_| self.has_begun) {
            self.late.found(handle);
        }
        allocators
    }

    /// Says that this allocator of `pid` is known; whether it was new.
    pub(in crate::session) fn is_new(&mut self, pid: Pid, allocator: &Allocator) -> bool {
        let Some(handle) = allocator.object.handle.clone() else { return false };
        self.numbers.number(&handle, &allocator.kinds.to_string(), &allocator.object.path);
        let whose = if self.shares_probes { None } else { Some(pid) };
        self.known.insert((whose, handle))
    }

    /// An allocator that was new is probed from now on.
    pub(in crate::session) fn placed(&mut self, allocator: &Allocator) {
        if let Some(handle) = &allocator.object.handle {
            self.late.placed(handle, clock::monotonic());
        }
    }

    /// The allocator's number, where processes' allocators are told apart.
    pub(in crate::session) fn number(&self, allocator: &Allocator) -> AllocatorId {
        let handle = allocator.object.handle.as_ref().filter(|_| self.tells_apart);
        handle.map_or(AllocatorId::UNKNOWN, |handle| self.numbers.known(handle))
    }

    /// Whether `pid`, which has mapped `object` at `time`, came before the probes in it; it is told once.
    pub(super) fn is_late(&mut self, pid: Pid, object: &Object, time: Duration) -> bool {
        object.handle.as_ref().is_some_and(|handle| self.late.is(pid, handle, time))
    }

    /// What they are called, by their numbers.
    pub(in crate::session) const fn names(&self) -> &BTreeMap<AllocatorId, String> {
        self.numbers.names()
    }
}
