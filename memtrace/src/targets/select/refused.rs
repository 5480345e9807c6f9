//! Notes about missing probes: in files that a user serves by FUSE, which could hold up the machine, at instructions that the
//! kernel refuses, and in processes without memory for them.

use std::path::Path;

use memtrace_host::kernel::{Probes, ProcessFilter, Scope, WAIT_FOR_MEMORY};
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
    // The handle of a mapped object is the path of a descriptor, so the note shows the path of the object.
    let shown = |object: &Path| {
        let found = known.iter().find(|known| known.handle.as_deref() == Some(object));
        printable(found.map_or(object, |found| &found.path)).into_owned()
    };
    for (object, refusal) in probes.refusals() {
        let pids: Vec<_> = allocators.iter().filter(|found| found.object == object).map(|found| found.pid).collect();
        if !pids.is_empty() {
            tracker.allocators.set_unattached(object);
        }
        // If the object has no allocator, its probes were requested for tags, spans or marks.
        let selection = Selection::of(filter);
        if pids.is_empty() || pids.into_iter().any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            targets.add_late_note(&format!("{} has no probes: {}", shown(object), refusal.reason()));
            is_incomplete = true;
        }
    }
    for (scope, object) in probes.waiting() {
        let users: Vec<_> = allocators.iter().filter(|found| found.object == object).collect();
        if !users.is_empty() && users.iter().all(|found| probes.is_waiting(found.scope, object)) {
            tracker.allocators.set_unattached(object);
        }
        let selection = Selection::of(filter);
        let mut pids = users.iter().filter(|found| found.scope == scope).map(|found| found.pid);
        if users.is_empty() || pids.any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            let process = match scope {
                Scope::Process(pid) => format!("process {pid}: "),
                Scope::AllProcesses => String::new(),
            };
            targets.add_late_note(&format!("{process}{}: {WAIT_FOR_MEMORY}", shown(object)));
            is_incomplete = true;
        }
    }
    for (object, offset) in probes.refused_instructions() {
        let mut pids = allocators.iter().filter(|found| found.object == object).map(|found| found.pid).peekable();
        let selection = Selection::of(filter);
        if pids.peek().is_some() && !pids.any(|pid| selection.contains(tracker, tracker.latest_id(pid))) {
            continue;
        }
        targets.add_late_note(&format!(
            "{} + {offset} has no probe: the kernel refuses one at this instruction, so that calls can be missing",
            shown(object)
        ));
        is_incomplete = true;
    }
    is_incomplete
}
