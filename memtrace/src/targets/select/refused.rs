//! Notes about missing probes: in files that a user serves by FUSE, which could hold up the machine, and at instructions that
//! the kernel refuses.

use memtrace_host::kernel::{Probes, ProcessFilter};
use memtrace_model::printable;

use super::probes::AllocatorProbes;
use super::selection::Selection;
use super::targets::Targets;
use crate::targets::track::ProcessTracker;

/// Adds a note for each refused object before the trace begins. Returns true if a selected process lacks probes.
pub(crate) fn note_all(
    probes: &Probes,
    allocators: &[AllocatorProbes],
    targets: &mut Targets,
    tracker: &mut ProcessTracker,
    filter: &ProcessFilter,
) -> bool {
    let mut is_incomplete = false;
    let known: Vec<_> = tracker.objects_by_use().into_iter().chain(targets.objects.iter().cloned()).collect();
    for (object, refusal) in probes.refusals() {
        let pids: Vec<_> = allocators.iter().filter(|found| found.object == object).map(|found| found.pid).collect();
        if !pids.is_empty() {
            tracker.allocators.set_unattached(object);
        }
        // If the object has no allocator, its probes were requested for tags, spans or marks.
        let selection = Selection::of(filter);
        if pids.is_empty() || pids.into_iter().any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            // The handle of a mapped object is the path of a descriptor, so the note shows the path of the object.
            let found = known.iter().find(|known| known.handle.as_deref() == Some(object));
            let path = printable(found.map_or(object, |found| &found.path));
            targets.add_late_note(&format!("{path} has no probes: {}", refusal.reason()));
            is_incomplete = true;
        }
    }
    for (object, offset) in probes.refused_instructions() {
        let mut pids = allocators.iter().filter(|found| found.object == object).map(|found| found.pid).peekable();
        let selection = Selection::of(filter);
        if pids.peek().is_some() && !pids.any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            continue;
        }
        let found = known.iter().find(|known| known.handle.as_deref() == Some(object));
        let path = printable(found.map_or(object, |found| &found.path));
        targets.add_late_note(&format!(
            "{path} + {offset} has no probe: the kernel refuses one at this instruction, so that calls can be missing"
        ));
        is_incomplete = true;
    }
    is_incomplete
}
