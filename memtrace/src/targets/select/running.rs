//! Selection of running processes by their present properties.

use memtrace_host::kernel::ProcessFilter;
use memtrace_host::procfs::{self, Hierarchies};
use memtrace_model::Pid;

/// Decides which running processes a filter selects, by the same properties as the BPF programs.
pub(crate) struct RunningSelection {
    filter: ProcessFilter,
    /// Present only if the filter compares cgroups.
    hierarchies: Option<Hierarchies>,
    own: Pid,
}

impl RunningSelection {
    pub(crate) fn new(filter: ProcessFilter) -> Self {
        let hierarchies = || Hierarchies::read().unwrap_or_default();
        let hierarchies = filter.is_by_cgroup().then(hierarchies);
        Self { filter, hierarchies, own: Pid(std::process::id()) }
    }

    /// Returns true if the filter selects a process now. memtrace itself is never selected.
    pub(crate) fn contains(&self, pid: Pid) -> bool {
        let traits = || procfs::traits(pid, self.hierarchies.as_ref()).unwrap_or_default();
        pid != self.own && self.filter.selects(pid, traits)
    }
}
