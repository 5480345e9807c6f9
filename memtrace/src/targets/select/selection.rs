//! Processes that the filter of a run selects.

use std::process;

use memtrace_host::kernel::ProcessFilter;
use memtrace_host::procfs::Hierarchies;
use memtrace_model::{ImageId, Pid};

use crate::targets::track::{ProcessTracker, traits};

/// Decides which images a filter selects, by the same properties as the BPF programs.
pub(crate) struct Selection<'run> {
    filter: &'run ProcessFilter,
    /// Present only if the filter compares cgroups.
    hierarchies: Option<Hierarchies>,
}

impl<'run> Selection<'run> {
    pub(crate) fn of(filter: &'run ProcessFilter) -> Self {
        let hierarchies = || Hierarchies::read().unwrap_or_default();
        Self { filter, hierarchies: filter.is_by_cgroup().then(hierarchies) }
    }

    /// Returns true if the filter selects an image. Compares the present properties of a running image, or the last properties
    /// of an ended image.
    pub(crate) fn contains(&self, tracker: &ProcessTracker, id: ImageId) -> bool {
        self.filter.selects(id.pid, || traits::of(tracker, id, self.hierarchies.as_ref()))
    }

    /// Returns true if the filter selects an image, or could select it because its executable is unknown.
    pub(super) fn can_contain(&self, tracker: &ProcessTracker, id: ImageId) -> bool {
        self.filter.can_select(id.pid, || traits::of(tracker, id, self.hierarchies.as_ref()))
    }
}

/// Returns the running processes that the filter selects, except for memtrace.
pub(crate) fn running_processes(filter: &ProcessFilter, tracker: &ProcessTracker) -> Vec<Pid> {
    let own = Pid(process::id());
    let selection = Selection::of(filter);
    let is_selected = |pid| selection.contains(tracker, tracker.latest_id(pid));
    tracker.running().into_iter().filter(|&pid| pid != own && is_selected(pid)).collect()
}
