//! RSS of the traced processes at the start and at the end of a run, for comparison with their traced blocks.

use std::collections::BTreeMap;

use memtrace_host::procfs;
use memtrace_model::{Bytes, EventClass, ImageId, ImageUsage, ResidentSet, StatusCounters};

use crate::run_kit::observer::Observer;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::Part;

/// Reads the RSS of each process twice.
pub(super) struct ResidentSets {
    first: BTreeMap<ImageId, Bytes>,
    last: BTreeMap<ImageId, StatusCounters>,
}

impl ResidentSets {
    /// Reads the RSS of the running processes. Returns `None` if blocks are not traced.
    pub(super) fn start(config: &Config, context: &Context) -> Option<Self> {
        config.follows(EventClass::probes_allocators).then(|| {
            // Before its exec, the process of a command is a copy of memtrace, so its RSS is not read.
            let first = if context.targets.ran_before() { read(context) } else { BTreeMap::new() };
            Self { first: first.into_iter().map(|(id, counted)| (id, counted.rss)).collect(), last: BTreeMap::new() }
        })
    }
}

impl Part for ResidentSets {
    fn stop(&mut self, context: &mut Context) {
        self.last = read(context);
    }

    fn finish(self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        let Some(snapshot) = facts.snapshots.0.get_mut(&EventClass::Heap) else { return };
        // The RSS of a process that shares its memory belongs to the other process.
        let has_own = |usage: &ImageUsage| usage.ended.is_none() && usage.shares_memory_of.is_none();
        for (id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| has_own(usage)) {
            let Some(StatusCounters { rss, shmem, .. }) = self.last.get(id).copied() else { continue };
            let start = self.first.get(id).copied();
            usage.rss = Some(ResidentSet { start, end: rss, shared: shmem, runtime: context.tracker.runtime(*id) });
        }
    }
}

/// Reads the RSS of the running processes. A process that exits during the reading has none.
fn read(context: &Context) -> BTreeMap<ImageId, StatusCounters> {
    let tracker = &context.tracker;
    let pids = tracker.running().into_iter();
    pids.filter_map(|pid| Some((tracker.latest_id(pid), procfs::counted(pid).ok()?))).collect()
}
