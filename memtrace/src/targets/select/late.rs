//! Probes of allocators that are mapped during the trace.

use memtrace_host::kernel::{Kernel, KernelError, Probes, WAIT_FOR_MEMORY};
use memtrace_model::{Pid, printable};
use memtrace_object::allocators::Allocator;

use super::postponed::PostponedProbes;
use super::probes::AllocatorProbes;
use super::targets::Targets;
use crate::targets::track::ProcessTracker;

/// Result of probing an allocator that was mapped during the trace.
pub(crate) struct LateProbes {
    /// True if all probes are placed.
    pub(crate) is_complete: bool,
    /// Note for the user; `None` if the user already has it.
    pub(crate) note: Option<String>,
}

impl LateProbes {
    /// Attaches probes to an allocator that `pid` has newly mapped. Returns `None` if allocators are not probed, or if
    /// the file of the allocator is not open. While a process holds the lock of its memory map, the allocator is added to
    /// `postponed`.
    pub(crate) fn place(
        (pid, allocator): (Pid, Allocator),
        targets: &mut Targets,
        tracker: &mut ProcessTracker,
        kernel: &mut Kernel,
        probes: &mut Probes,
        postponed: &mut PostponedProbes,
    ) -> Option<Self> {
        let probe_site = targets.probe_site?;
        let is_retry = postponed.is_retry(pid, &allocator);
        let id = tracker.allocators.id(&allocator);
        let Some(mut new) = AllocatorProbes::new(pid, targets.scope(pid), &allocator, id, probe_site) else {
            if is_retry {
                postponed.give_up();
            }
            return None;
        };
        targets.avoid_patched_code_late(&mut new, tracker);
        let result = new.place(kernel, probes);
        let is_refused = probes.refused_instructions().any(|(object, _)| object == new.object);
        let path = printable(&allocator.object.path).into_owned();
        let note = |result: &str| format!("process {pid} has mapped another allocator, {path}: {result}");
        if result.is_ok() && probes.is_waiting(new.scope, &new.object) {
            tracker.allocators.set_unattached(&new.object);
            if is_retry {
                postponed.give_up();
            }
            return Some(Self { is_complete: false, note: Some(note(WAIT_FOR_MEMORY)) });
        }
        let (are_placed, result) = match result {
            Ok(()) => match probes.refusal(&new.object) {
                Some(refusal) => (false, refusal.reason().to_owned()),
                None if is_refused => {
                    (true, String::from("probed from now on, except for instructions that the kernel refuses"))
                }
                None => (true, String::from("probed from now on")),
            },
            Err(KernelError::LockedMemory { holder }) => {
                tracker.allocators.set_unattached(&new.object);
                let note = postponed.postpone(pid, allocator, &holder).map(|result| note(&result));
                return Some(Self { is_complete: false, note });
            }
            Err(error) => (false, error.to_string()),
        };
        match (are_placed, is_retry) {
            (true, true) => tracker.allocators.set_attached(&new.object),
            (true, false) => {}
            (false, _) => {
                tracker.allocators.set_unattached(&new.object);
                if is_retry {
                    postponed.give_up();
                }
            }
        }
        tracker.allocators.set_probed(&allocator);
        let is_complete = are_placed && !is_refused;
        Some(Self { is_complete, note: Some(note(&result)) })
    }
}
