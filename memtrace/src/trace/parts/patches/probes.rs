//! Probes in the stubs of patched processes.

use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

use memtrace_host::kernel::{KernelError, Scope};
use memtrace_host::patcher::PatchRefusal;
use memtrace_model::{Bytes, ImageId, UntracedReason};

use super::patcher_thread::Mapped;
use super::stub_file::StubFile;
use crate::targets::patched::sites_of_stub;
use crate::trace::context::Context;

/// Attaches the probes in the stub of a process. Call it before the code of the process is changed. `path`: path of an
/// open descriptor of the stub's file.
///
/// # Errors
///
/// Reason why probes are missing. Some may be attached.
pub(super) fn attach(mapped: &Mapped, path: &Path, id: ImageId, context: &mut Context) -> Result<(), PatchRefusal> {
    let Mapped { summary, attached, .. } = mapped;
    let allocator = context.tracker.allocators.id_of_samples(&summary.object, &summary.kinds);
    let sites = sites_of_stub(&attached.header, allocator).ok_or(PatchRefusal::OtherVersion)?;
    // If children are traced, the children of the process have the same file, so that their samples are reported from
    // the fork on.
    let scope = context.targets.scope(id.pid);
    match context.kernel.attach_sampled(&mut context.probes, scope, path, &sites) {
        Ok(true) => require_all(path, scope, context),
        Ok(false) => Err(PatchRefusal::Patcher(String::from("too many functions of all files report samples"))),
        Err(KernelError::TargetEnded) => Err(PatchRefusal::Exiting),
        Err(KernelError::LockedMemory { .. }) => Err(PatchRefusal::Busy),
        Err(error) => Err(PatchRefusal::Patcher(error.to_string())),
    }
}

/// Announces the samples of a process. Call it before the code of the process is changed. `is_replaced`: true if the calls of
/// the process were traced. These calls are dropped from now on, if other processes still need the probes of each call.
///
/// # Errors
///
/// Reason why the calls still count.
pub(super) fn announce(
    mapped: &Mapped,
    id: ImageId,
    is_replaced: bool,
    context: &mut Context,
) -> Result<(), PatchRefusal> {
    if is_replaced && context.targets.probe_site.is_some() {
        let dropped = context.kernel.demote(id.pid, Bytes(u64::MAX));
        dropped.map_err(|error| PatchRefusal::Patcher(error.to_string()))?;
    }
    // The ledger needs the salt with the first samples. The minimum size of the recorded blocks does not apply to samples.
    context.shards.thin(id, 0, mapped.attached.salt);
    Ok(())
}

/// Returns an error if probes in a stub are missing.
fn require_all(path: &Path, scope: Scope, context: &Context) -> Result<(), PatchRefusal> {
    if let Some(refusal) = context.probes.refusal(path) {
        return Err(PatchRefusal::Patcher(refusal.reason().to_owned()));
    }
    // Probes wait if the memory cgroup of the process is at its limit.
    if context.probes.is_waiting(scope, path) { Err(PatchRefusal::Busy) } else { Ok(()) }
}

/// Removes the probes in a stub that no other process has.
pub(super) fn release(file: &Rc<StubFile>, context: &mut Context) {
    if Rc::strong_count(file) == 1 {
        remove(&file.path, context);
    }
}

/// Removes the probes in a stub. `path`: path of the open descriptor of its file.
pub(super) fn remove(path: &Path, context: &mut Context) {
    let paths = HashSet::from([path.to_owned()]);
    context.probes.remove_objects(&paths);
    context.kernel.forget_sampled(&paths);
}

/// Removes the probes of each call from the allocators of the targets, because the blocks are sampled from now on.
pub(super) fn remove_exact(context: &mut Context) {
    let mut handles = HashSet::new();
    let Context { targets, tracker, .. } = context;
    for pid in targets.family() {
        let survey = tracker.survey(pid);
        let supported = survey.allocators.iter().filter(|allocator| allocator.is_supported());
        handles.extend(supported.filter_map(|allocator| allocator.object.handle.clone()));
    }
    context.probes.remove_objects(&handles);
    // Events of the removed probes would count in addition to the samples.
    context.probes.complete_removals();
    context.targets.probe_site = None;
    context.tracker.allocators.attach_none(UntracedReason::NotPatched);
}
