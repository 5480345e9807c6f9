//! Attach backends: the kernel interfaces that attach uprobes.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use memtrace_common::vocabulary::{RETURN_PROGRAM, RETURN_SITE_PROGRAM};
use memtrace_model::FUNCTIONS;

use super::attach_point::{AttachPoint, Scope, shown};
use super::bpf::Bpf;
use super::detach::AttachedProbes;
use super::error::KernelError;
use super::memory_locks::{self, MemoryLocks};
use super::perf_uprobe;
use super::probed_files::ProbedFile;
use super::sampled;
use super::uprobe_multi::UprobeMulti;

/// Program at instructions where a register holds the returned block.
pub(super) const RESULT_PROGRAM: &str = "alloc_result";

/// Program at instructions where a register holds the requested size.
pub(super) const RESULT_SIZE_PROGRAM: &str = "alloc_size_site";

/// Attaches uprobes. If `file` is set, all of them are in this file.
pub(super) struct AttachBackend<'kernel> {
    interface: Interface<'kernel>,
    file: Option<ProbedFile>,
    /// Locks that must be free; `None` if the kernel does not show them.
    locks: Option<Arc<MemoryLocks>>,
    /// Time for which all checks of the locks together may wait.
    lock_wait: Duration,
}

/// Interface that attaches uprobes.
pub(super) enum Interface<'kernel> {
    /// One link for all attach points of a program in a file (Linux 6.6).
    UprobeMulti(&'kernel mut UprobeMulti),
    /// One perf event per attach point.
    PerfEvent(&'kernel mut Bpf),
}

impl<'kernel> AttachBackend<'kernel> {
    pub(super) const fn new(
        interface: Interface<'kernel>,
        file: Option<ProbedFile>,
        locks: Option<Arc<MemoryLocks>>,
    ) -> Self {
        Self { interface, file, locks, lock_wait: memory_locks::ALL_CHECKS }
    }

    /// Loads the programs for the entries, returns and result sites of all hooked functions, and for samples.
    pub(super) fn load_all(&mut self) -> Result<(), KernelError> {
        let entries = FUNCTIONS.iter().map(|function| function.signature.entry_program().name);
        let others = [RETURN_PROGRAM, RETURN_SITE_PROGRAM, RESULT_PROGRAM, RESULT_SIZE_PROGRAM];
        entries.chain(others).chain(sampled::PROGRAMS).try_for_each(|name| match &mut self.interface {
            Interface::UprobeMulti(multi) => multi.load(name),
            Interface::PerfEvent(bpf) => load(bpf, name).map(drop),
        })
    }

    /// Attaches the program `name` to `points` in the file at `path`, unless a process holds the lock of its memory map. The
    /// links are appended to `links`, in the order of their points.
    pub(super) fn attach(
        &mut self,
        name: &str,
        scope: Scope,
        path: &Path,
        points: &[AttachPoint],
        links: &mut Vec<AttachedProbes>,
    ) -> Result<(), KernelError> {
        let file = self.file.as_ref().map(ProbedFile::path);
        let path = file.as_deref().unwrap_or(path);
        let locks = self.locks.as_ref();
        match &mut self.interface {
            Interface::UprobeMulti(multi) => {
                // The program is loaded first, so that little time passes between the check and the insertion.
                multi.load(name)?;
                require_free(locks, &mut self.lock_wait)?;
                let link = multi.attach(name, scope, path, points)?;
                links.push(AttachedProbes::by_multi_link(link, points.len(), locks.cloned()));
            }
            Interface::PerfEvent(bpf) => {
                let program = load(bpf, name)?;
                let scope_of_aya = match scope {
                    Scope::Process(pid) => {
                        UProbeScope::OneProcess(NonZeroU32::new(pid.0).ok_or(KernelError::TargetEnded)?)
                    }
                    Scope::AllProcesses => UProbeScope::AllProcesses,
                };
                for &AttachPoint { offset, cookie, semaphore } in points {
                    require_free(locks, &mut self.lock_wait)?;
                    let action = || format!("attach a probe to {} + {offset}", shown(path));
                    let probes = if let Some(semaphore) = semaphore {
                        let program = program.fd().map_err(|error| KernelError::from_attach(&action(), &error))?;
                        let places = (offset, semaphore);
                        let link = perf_uprobe::attach(program.as_fd(), path, scope, places, cookie.unwrap_or(0));
                        let link = link.map_err(|error| KernelError::from_attach(&action(), &error))?;
                        AttachedProbes::by_perf_event(link, locks.cloned())
                    } else {
                        let location = UProbeAttachLocation::AbsoluteOffset(offset.0);
                        let point = UProbeAttachPoint { location, cookie };
                        let link = program.attach(point, path, scope_of_aya).and_then(|id| program.take_link(id));
                        let link = link.map_err(|error| KernelError::from_attach(&action(), &error))?;
                        AttachedProbes::by_perf_event(link, locks.cloned())
                    };
                    links.push(probes);
                }
            }
        }
        Ok(())
    }
}

fn require_free(locks: Option<&Arc<MemoryLocks>>, wait: &mut Duration) -> Result<(), KernelError> {
    locks.map_or(Ok(()), |locks| locks.require_free(wait))
}

/// Loads the program `name` unless it is loaded.
fn load<'bpf>(bpf: &'bpf mut Bpf, name: &str) -> Result<&'bpf mut UProbe, KernelError> {
    let program: &mut UProbe = bpf.program(name)?;
    if program.fd().is_err() {
        program.load().map_err(|error| KernelError::from_load(&format!("load the program {name}"), &error))?;
    }
    Ok(program)
}
