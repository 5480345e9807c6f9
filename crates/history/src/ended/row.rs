//! Ended images with rows of their own.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    BuildId, Bytes, Cgroup, Comm, Demotion, EndedRun, EventClass, ImageEnd, ImageId, ImageRusage, ImageStart,
    ImageUsage, Pid, ProcessImage, Quantities, Quantity, StallKey, StallStats, Tick, Tid, User,
};

use crate::path_totals::{EncodedQuantities, PathTotals};

/// An ended image in one event class.
#[derive(Debug)]
pub(crate) struct Row {
    pub id: ImageId,
    /// Time of the end according to the ledgers.
    pub at: Tick,
    pub(super) facts: Arc<ImageFacts>,
    pub(super) start: ImageStart,
    /// Kind and time of the end, from the process events or, if they do not report the end, from the ledgers.
    pub(super) ended: (ImageEnd, Tick),
    threads: Option<u32>,
    thread_names: BTreeMap<Tid, String>,
    totals: RowTotals,
    pub stacks: PathTotals,
    /// True if a stack has an address outside of all files.
    pub(super) has_addresses: bool,
}

/// Totals of an ended image without stacks and pages.
#[derive(Debug)]
struct RowTotals {
    ended: Option<ImageEnd>,
    total: EncodedQuantities,
    unmatched_frees: u64,
    repeated_frees: u64,
    unmatched_samples: u64,
    shares_memory_of: Option<Pid>,
    demotion: Demotion,
    peak: Option<Bytes>,
    stalls: BTreeMap<StallKey, StallStats>,
    counts: ImageRusage,
}

/// Executable, name and owner of images. Most images share these facts with others.
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

/// Returns the sort key of images and groups of `class`: the time of stalls for reclaim, else the allocated bytes.
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
    /// Returns the row of an image. `usage`: its totals. `stacks`: its totals by stack.
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
            totals: RowTotals {
                ended: usage.ended,
                total: EncodedQuantities::new(&usage.total),
                unmatched_frees: usage.unmatched_frees,
                repeated_frees: usage.repeated_frees,
                unmatched_samples: usage.unmatched_samples,
                shares_memory_of: usage.shares_memory_of,
                demotion: usage.demotion,
                peak: usage.peak,
                stalls: usage.stalls,
                counts: usage.counts,
            },
            stacks,
            has_addresses: false,
        }
    }

    /// Sets whether a stack has an address outside of all files.
    pub(super) fn with_addresses(self, has_addresses: bool) -> Self {
        Self { has_addresses, ..self }
    }

    /// Returns the totals without stacks.
    pub(crate) fn usage(&self) -> ImageUsage {
        ImageUsage {
            ended: self.totals.ended,
            total: self.totals.total.decode(),
            unmatched_frees: self.totals.unmatched_frees,
            repeated_frees: self.totals.repeated_frees,
            unmatched_samples: self.totals.unmatched_samples,
            shares_memory_of: self.totals.shares_memory_of,
            demotion: self.totals.demotion,
            peak: self.totals.peak,
            stalls: self.totals.stalls.clone(),
            counts: self.totals.counts,
            ..ImageUsage::default()
        }
    }

    /// Returns the sum of all stacks.
    pub(super) fn total(&self) -> Quantities {
        self.totals.total.decode()
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

    /// Returns the entry of the image in the list of a group. `start`: start of tracing.
    pub(super) fn run(&self, start: Tick) -> EndedRun {
        EndedRun {
            pid: self.id.pid,
            start: self.start.tick().map_or(Duration::ZERO, |tick| since(start, tick)),
            end: since(start, self.at),
            ended: self.end(),
            total: self.total(),
        }
    }

    /// Returns the kind of the end.
    pub(super) fn end(&self) -> ImageEnd {
        self.totals.ended.unwrap_or(self.ended.0)
    }
}

/// Returns the time from `start` to `tick`.
pub(super) fn since(start: Tick, tick: Tick) -> Duration {
    tick.since_start().saturating_sub(start.since_start())
}
