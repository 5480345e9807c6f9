//! Selection of the monitored processes by the properties that the filter compares.

use memtrace_host::kernel::{ProcessFilter, ProcessStart};
use rustc_hash::FxHashMap;

use crate::targets::select::RunningSelection;

/// A decision is valid for this number of readings, because a process may change its name, user or cgroup.
const VALID_READINGS: u32 = 10;

struct Decision {
    is_selected: bool,
    /// Number of readings since the decision.
    age: u32,
    is_used: bool,
}

/// Selection of the monitored processes. If the filter has no conditions, the BPF programs have
/// selected them.
pub(super) struct ProcessSelection {
    selection: RunningSelection,
    decisions: FxHashMap<ProcessStart, Decision>,
}

impl ProcessSelection {
    pub(super) fn new(filter: ProcessFilter) -> Self {
        Self { selection: RunningSelection::new(filter), decisions: FxHashMap::default() }
    }

    /// Returns true if the process is selected.
    pub(super) fn contains(&mut self, process: ProcessStart) -> bool {
        if let Some(decision) = self.decisions.get_mut(&process).filter(|decision| decision.age < VALID_READINGS) {
            decision.is_used = true;
            return decision.is_selected;
        }
        let (pid, _) = process;
        let is_selected = self.selection.contains(pid);
        self.decisions.insert(process, Decision { is_selected, age: 0, is_used: true });
        is_selected
    }

    /// Returns true if the process was selected when it ran. If it was never seen running, the BPF programs have
    /// selected it.
    pub(super) fn has_selected(&mut self, process: ProcessStart) -> bool {
        self.decisions.get_mut(&process).is_none_or(|decision| {
            // The decision is kept, because later readings can still contain a process that is ending.
            decision.is_used = true;
            decision.is_selected
        })
    }

    /// Ends a reading: forgets the processes that the reading did not contain.
    pub(super) fn end_reading(&mut self) {
        self.decisions.retain(|_, decision| {
            decision.age += 1;
            std::mem::take(&mut decision.is_used)
        });
    }
}
