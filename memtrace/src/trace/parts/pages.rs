//! Reads the resident pages of the traced processes at the start and at the end of a run, and completes the totals of
//! pages and mappings with them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use memtrace_history::reconcile::residency;
use memtrace_history::reconcile::residency::Pages;
use memtrace_history::reconcile::rusage;
use memtrace_history::reconcile::rusage::Baselines;
use memtrace_host::procfs::{self, ProcessError};
use memtrace_model::{
    EndedImage, EventClass, ImageId, ImageStart, ImageUsage, PartKeys, Pid, ResidentRange, Rusage, Snapshot, Snapshots,
    Tick,
};

use crate::run_kit::observer::Observer;
use crate::targets::select::Selection;
use crate::targets::track::ProcessTracker;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::Part;

/// Resident pages and rusage of the processes that ran at the start, and the sampling of pages.
#[derive(Debug)]
pub(super) struct PageReader {
    first: BTreeMap<Pid, Vec<ResidentRange>>,
    rusage: BTreeMap<Pid, Rusage>,
    one_in: NonZeroU32,
    follows_pages: bool,
    /// True if huge pages are recorded at their faults.
    counts_huge: bool,
    by_kind: bool,
}

/// Note on a report of page faults without records of huge pages.
const HUGE_PAGES_NOTE: &str = "huge pages were not counted at their faults, because this kernel cannot run programs at \
                               the functions that map them: each counts as one touched page, or is estimated from the \
                               page tables at the end, which the error of a sample does not cover";

impl PageReader {
    /// Reads the resident pages of the running processes. Page faults are already traced at this time. Returns `None`
    /// if neither page faults nor mappings are traced.
    pub(super) fn start(config: &Config, context: &Context) -> Option<Self> {
        let follows_pages = config.follows(EventClass::counts_pages);
        // Before its exec, the pages of a command belong to memtrace, so they are not read.
        let running = (follows_pages && context.targets.ran_before()).then(|| context.tracker.running());
        let pids: Vec<Pid> = running.into_iter().flatten().collect();
        // Read the rusage first, because this takes the least time. Later faults are traced.
        let rusage = pids.iter().filter_map(|&pid| Some((pid, procfs::kernel_counts(pid)?))).collect();
        // A process that has exited has no resident pages.
        let first = pids.iter().filter_map(|&pid| Some((pid, procfs::resident(pid).ok()?))).collect();
        (follows_pages || config.follows(EventClass::holds_mappings)).then(|| Self {
            first,
            rusage,
            one_in: config.pages.one_in(),
            follows_pages,
            counts_huge: context.kernel.records_huge_pages(),
            by_kind: config.parts().contains(PartKeys::MEMORY),
        })
    }

    /// Returns the pages of a process that were resident at the start. If the process was forked later, returns the pages of
    /// its ancestor that ran at the start.
    fn first(&self, mut pid: Pid, parents: &BTreeMap<Pid, Pid>) -> &[ResidentRange] {
        for _ in 0..=parents.len() {
            match (self.first.get(&pid), parents.get(&pid)) {
                (Some(first), _) => return first,
                (None, Some(&parent)) => pid = parent,
                (None, None) => break,
            }
        }
        &[]
    }

    /// Reconciles the page and mapping totals with the page tables, and with the rusage since `start`. `is_selected`:
    /// returns true for the images that the filter selects.
    fn reconcile(
        &self,
        snapshots: &mut Snapshots,
        tracker: &ProcessTracker,
        start: Tick,
        is_selected: &dyn Fn(ImageId) -> bool,
    ) {
        let mut resident = BTreeMap::new();
        if let Some(snapshot) = snapshots.0.get_mut(&EventClass::Fault) {
            let is_traced = |id: ImageId| {
                tracker.is_traced(id.pid) && is_selected(id) && !tracker.own_profiles.pages_are_left_out(id)
            };
            let now = |pid| procfs::kernel_counts(pid);
            let baselines =
                Baselines { images: tracker.images(), before: &self.rusage, start, now: &now, is_traced: &is_traced };
            rusage::reconcile_rusage(snapshot, &baselines);
            self.reconcile_pages(snapshot, &mut resident);
        }
        if let Some(snapshot) = snapshots.0.get_mut(&EventClass::Map) {
            for (id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| usage.ended.is_none()) {
                residency::set_resident_bytes(usage, read_once(id.pid, &mut resident));
            }
        }
    }

    /// Completes the page totals of an image that has ended. `start`: start of tracing. `began`: start of the image.
    /// Returns false if the image has neither totals nor page faults.
    fn complete_ended(&self, usage: &mut ImageUsage, id: ImageId, began: ImageStart, start: Tick) -> bool {
        let is_reported = rusage::complete_ended(usage, (id, began), self.rusage.get(&id.pid).copied(), start);
        residency::reconcile_pages(usage, None, self.one_in.get());
        is_reported
    }

    fn reconcile_pages(&self, snapshot: &mut Snapshot, resident: &mut Resident) {
        let parents: BTreeMap<Pid, Pid> =
            snapshot.images.iter().filter_map(|(id, usage)| Some((id.pid, usage.copy_of?))).collect();
        for (id, usage) in &mut snapshot.images {
            // The resident pages of a process that shares its memory belong to the other process.
            let has_own = usage.ended.is_none() && usage.shares_memory_of.is_none();
            let now = if has_own { read_once(id.pid, resident) } else { None };
            usage.resident_is_unknown = has_own && now.is_none();
            let before = if id.ordinal == 0 { self.first(id.pid, &parents) } else { &[] };
            let one_in = self.one_in.get();
            let (counts_huge, by_kind) = (self.counts_huge, self.by_kind);
            let pages = now.map(|now| Pages { pid: id.pid, now, before, one_in, counts_huge, by_kind });
            residency::reconcile_pages(usage, pages, one_in);
        }
    }
}

impl Part for PageReader {
    fn image_ended(&mut self, ended: &mut EndedImage, context: &mut Context) {
        let id = ended.id;
        let began = context.tracker.images().get(&id).map_or(ImageStart::Unseen, |image| image.start);
        let mut added = None;
        let mut complete = |usage: &mut ImageUsage| {
            let was_known = usage.counts.faults().is_some();
            let is_reported = self.complete_ended(usage, id, began, context.clock.start_tick);
            added = usage.counts.faults().filter(|_| !was_known && is_reported);
            is_reported
        };
        ended.usage.retain_mut(|(class, usage)| *class != EventClass::Fault || complete(usage));
        if let (Some(recorder), Some(faults)) = (&mut context.recorder, added) {
            recorder.add_faults(id, faults);
        }
    }

    fn finish(self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        if self.follows_pages && !self.counts_huge {
            context.targets.notes.push(String::from(HUGE_PAGES_NOTE));
        }
        let selection = Selection::of(&context.filter);
        let tracker = &context.tracker;
        let start = facts.measured.window.start;
        self.reconcile(&mut facts.snapshots, tracker, start, &|id| selection.contains(tracker, id));
    }
}

/// Resident pages of processes; `None` for a process that holds the lock of its memory map.
type Resident = BTreeMap<Pid, Option<Vec<ResidentRange>>>;

/// Returns the resident pages of `pid`; `None` if they cannot be read in time, and the touched pages must be reported instead.
/// They are read once. A process that has exited has none.
fn read_once(pid: Pid, resident: &mut Resident) -> Option<&[ResidentRange]> {
    let read = || match procfs::resident(pid) {
        Err(ProcessError::Locked(_)) => None,
        read => Some(read.unwrap_or_default()),
    };
    resident.entry(pid).or_insert_with(read).as_deref()
}
