//! Probes of allocators that are mapped during the trace.

use memtrace_host::kernel::{Kernel, Probes};
use memtrace_model::{Pid, printable};
use memtrace_object::allocators::Allocator;

use super::probes::AllocatorProbes;
use super::targets::Targets;
use crate::targets::track::ProcessTracker;

/// Result of probing an allocator that was mapped during the trace.
pub(crate) struct LateProbes {
    /// True if all probes are placed.
    pub(crate) is_complete: bool,
    pub(crate) note: String,
}

impl LateProbes {
    /// Attaches probes to an allocator that `pid` has newly mapped. Returns `None` if allocators are not probed, or if
    /// the file of the allocator is not open.
    pub(crate) fn place(
        pid: Pid,
        allocator: &Allocator,
        targets: &Targets,
        tracker: &mut ProcessTracker,
        kernel: &mut Kernel,
        probes: &mut Probes,
    ) -> Option<Self> {
        let probe_site = targets.probe_site?;
        let id = tracker.allocators.id(allocator);
        let new = AllocatorProbes::new(pid, targets.scope(pid), allocator, id, probe_site)?;
        let result = new.place(kernel, probes);
        let is_refused = probes.refused_instructions().any(|(object, _)| object == new.object);
        let (are_placed, result) = match result {
            Ok(()) => match probes.refusal(&new.object) {
                Some(refusal) => (false, refusal.reason().to_owned()),
                None if is_refused => {
                    (true, String::from("probed from now on, except for instructions that the kernel refuses"))
                }
                None => (true, String::from("probed from now on")),
            },
            Err(error) => (false, error.to_string()),
        };
        if !are_placed {
            tracker.allocators.set_unattached(&new.object);
        }
        tracker.allocators.set_probed(allocator);
        let path = printable(&allocator.object.path);
        let is_complete = are_placed && !is_refused;
        Some(Self { is_complete, note: format!("process {pid} has mapped another allocator, {path}: {result}") })
    }
}
