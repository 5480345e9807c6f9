//! Objects that get no probes, because users serve their files and could hold up the machine.

use std::path::{Path, PathBuf};

use memtrace_host::kernel::{Probes, ProcessFilter};
use memtrace_model::printable;

use super::probes::AllocatorProbes;
use super::selection::Selection;
use super::targets::Targets;
use crate::targets::track::ProcessTracker;

/// Reason for which an object has no probes.
pub(super) const REASON: &str = "a user serves the file, and could hold up the whole machine while a probe is inserted";

/// Adds a note for each refused object before the trace begins. Returns true if a selected process lacks probes.
pub(crate) fn note_all(
    probes: &Probes,
    allocators: &[AllocatorProbes],
    targets: &mut Targets,
    tracker: &mut ProcessTracker,
    filter: &ProcessFilter,
) -> bool {
    let mut is_incomplete = false;
    for object in probes.refused() {
        let pids: Vec<_> = allocators.iter().filter(|found| found.object == object).map(|found| found.pid).collect();
        if !pids.is_empty() {
            tracker.allocators.set_unattached(object);
        }
        // An object without an allocator has requested tags, spans or marks.
        let selection = Selection::of(filter);
        if pids.is_empty() || pids.into_iter().any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            let note = format!("{} has no probes: {REASON}", printable(&path_of(object, targets, tracker)));
            targets.add_late_note(&note);
            is_incomplete = true;
        }
    }
    is_incomplete
}

/// Returns the path of an object in its process. The handle of an object that a process has mapped is a descriptor.
fn path_of(handle: &Path, targets: &Targets, tracker: &ProcessTracker) -> PathBuf {
    let mapped = tracker.objects_by_use();
    let found = mapped.iter().chain(&targets.objects).find(|object| object.handle.as_deref() == Some(handle));
    found.map_or(handle, |object| &object.path).to_owned()
}
