//! Ended images with rows of their own.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::history::path_totals::PathTotals;
use crate::model::{
    BuildId, Cgroup, Comm, EndedRun, EventClass, ImageEnd, ImageId, ImageStart, ImageUsage, ProcessImage, Quantities,
    Quantity, Tick, Tid, User,
};

/// An ended image in one event class.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: ImageId,
    /// Time of the end in the records.
    pub(crate) at: Tick,
    pub(super) facts: Arc<ImageFacts>,
    pub(super) start: ImageStart,
    /// End in the process events.
    pub(super) ended: (ImageEnd, Tick),
    threads: Option<u32>,
    thread_names: BTreeMap<Tid, String>,
    /// Totals without stacks.
    pub(crate) usage: ImageUsage,
    pub(crate) stacks: PathTotals,
    /// A stack has an address outside of all files.
    pub(super) has_addresses: bool,
}

/// Executable, names and owner of images. Most images share them with others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ImageFacts {
    pub(super) comm: Comm,
    pub(super) exe: Option<PathBuf>,
    pub(super) build_id: Option<BuildId>,
    pub(super) user: Option<User>,
    pub(super) cgroup: Option<Arc<Cgroup>>,
}

/// Order of images by their size in an event class, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    size: u64,
    id: Reverse<ImageId>,
}

impl Rank {
    pub(super) fn new(class: EventClass, id: ImageId, total: &Quantities) -> Self {
        Self { size: size(class, total), id: Reverse(id) }
    }
}

/// Returns the number by which images and stacks of `class` are ordered: allocated bytes, or the time of stalls.
pub(super) const fn size(class: EventClass, total: &Quantities) -> u64 {
    if class.counts_stalls() { total.get(Quantity::StallTime) } else { total.get(Quantity::AllocBytes) }
}

impl ImageFacts {
    pub(crate) fn of(image: &ProcessImage) -> Self {
        let objects = image.objects().map(Arc::as_ref);
        let executable = image.exe.as_ref().and_then(|exe| objects.clone().find(|object| object.path == *exe));
        Self {
            comm: image.comm.clone(),
            exe: image.exe.clone(),
            build_id: executable.and_then(|object| object.build_id.clone()),
            user: image.user.clone(),
            cgroup: image.cgroup.clone(),
        }
    }
}

impl Row {
    /// Returns the row of an image. Its stacks are in `stacks`.
    pub(super) fn new(
        id: ImageId,
        (end, at): (ImageEnd, Tick),
        image: &ProcessImage,
        facts: Arc<ImageFacts>,
        usage: ImageUsage,
        stacks: PathTotals,
    ) -> Self {
        Self {
            id,
            at,
            facts,
            start: image.start,
            ended: image.ended.unwrap_or((end, at)),
            threads: image.threads,
            thread_names: image.thread_names.clone(),
            usage,
            stacks,
            has_addresses: false,
        }
    }

    /// Sets whether a stack has an address outside of all files.
    pub(super) fn with_addresses(self, has_addresses: bool) -> Self {
        Self { has_addresses, ..self }
    }

    /// Returns the image without its mappings.
    pub(crate) fn image(&self) -> ProcessImage {
        ProcessImage {
            comm: self.facts.comm.clone(),
            exe: self.facts.exe.clone(),
            user: self.facts.user.clone(),
            cgroup: self.facts.cgroup.clone(),
            threads: self.threads,
            thread_names: self.thread_names.clone(),
            start: self.start,
            ended: Some(self.ended),
            ..ProcessImage::default()
        }
    }

    /// Returns the image without its stacks, in a trace that began at `start`.
    pub(super) fn run(&self, start: Tick) -> EndedRun {
        EndedRun {
            pid: self.id.pid,
            start: self.start.tick().map_or(Duration::ZERO, |tick| since(start, tick)),
            end: since(start, self.at),
            ended: self.end(),
            total: self.usage.total,
        }
    }

    /// Returns the kind of the end.
    pub(super) fn end(&self) -> ImageEnd {
        self.usage.ended.unwrap_or(self.ended.0)
    }
}

/// Returns the time from `start` to `tick`.
pub(super) fn since(start: Tick, tick: Tick) -> Duration {
    tick.since_start().saturating_sub(start.since_start())
}
