//! Processor time of the targets.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use memtrace_host::kernel::ProcessFilter;
use memtrace_host::procfs;
use memtrace_model::{ImageEnd, ImageId, Pid};

use crate::targets::select::Selection;
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;

/// Reads the processor time of the targets.
#[derive(Default)]
pub(super) struct TargetTime {
    /// Images at the last reading: true if they are selected. To find that out takes several files of procfs.
    is_selected: HashMap<ImageId, bool>,
    /// Number of targets that have left the registry with an unknown time.
    missing: usize,
}

impl TargetTime {
    /// Adds targets that have ended and left the registry.
    pub(super) fn add_exits(&mut self, exits: Vec<Pid>, targets: &Targets, filter: &ProcessFilter) {
        if !exits.is_empty() {
            let is_kept = is_kept(targets, filter);
            self.missing += exits.into_iter().filter(|&pid| !is_kept(pid)).count();
        }
    }

    /// Returns the processor time of the targets, and the number of targets that have ended and are missing in it.
    pub(super) fn read(
        &mut self,
        targets: &Targets,
        filter: &ProcessFilter,
        tracker: &ProcessTracker,
    ) -> (Duration, usize) {
        let selection = Selection::of(filter);
        let is_family = *filter == ProcessFilter::Families;
        let is_kept = is_kept(targets, filter);
        let mut running: BTreeSet<_> = targets.command_pid().into_iter().collect();
        let mut missing = self.missing;
        let before = std::mem::take(&mut self.is_selected);
        for (&id, image) in tracker.images().iter().filter(|(id, _)| tracker.is_traced(id.pid)) {
            let is_selected = before.get(&id).copied().unwrap_or_else(|| selection.contains(tracker, id));
            self.is_selected.insert(id, is_selected);
            match image.ended {
                _ if !is_selected => {}
                Some((ImageEnd::Exec, _)) => {}
                Some(_) => missing += usize::from(!is_kept(id.pid)),
                None => _ = running.insert(id.pid),
            }
        }
        let time = |pid: &Pid| {
            let children = if is_family { procfs::processor_time_of_children(*pid) } else { None };
            Some(procfs::processor_time(*pid)? + children.unwrap_or_default())
        };
        (running.iter().filter_map(time).sum(), missing)
    }
}

/// Returns a function that is true for the processes whose time is not missing after their exit: a child's time passes to
/// the parent that waits for it, and memtrace waits for its command at the end of the run.
fn is_kept(targets: &Targets, filter: &ProcessFilter) -> impl Fn(Pid) -> bool {
    let is_family = *filter == ProcessFilter::Families;
    let command = targets.command_pid();
    let named: BTreeSet<_> = targets.pids().collect();
    move |pid| Some(pid) == command || is_family && !named.contains(&pid)
}
