//! Processes with cleared references.

use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::selection::{Selection, count};
use crate::model::{Bytes, MappingKind, ProcessWorkingSet, ReferencedMemory, UnmeasuredProcesses, WorkingSets};
use crate::procfs::{self, Process, ProcessError, Tmpfs};
use crate::session::error::Error;

/// A process with cleared references.
struct ClearedProcess {
    process: Rc<Process>,
    tmpfs: Tmpfs,
    during: Range<Duration>,
}

/// Processes with references that were cleared one after the other.
pub(super) struct ClearedProcesses {
    start: Instant,
    huge_page: Bytes,
    processes: Vec<ClearedProcess>,
    unmeasured: UnmeasuredProcesses,
}

impl ClearedProcesses {
    /// Clears the references of all selected processes. Times are those since `start`.
    ///
    /// # Errors
    ///
    /// The references of a named process cannot be cleared.
    pub(super) fn clear(selection: &Selection, start: Instant) -> Result<Self, Error> {
        let (opened, mut unmeasured) = selection.processes()?;
        let opened: Vec<_> = opened.into_iter().map(|process| (Tmpfs::of(process.pid), process)).collect();
        let mut processes = Vec::new();
        for (tmpfs, process) in opened {
            let begin = start.elapsed();
            // If it has exited, the pid may be that of another process.
            let cleared = match process.has_exited() {
                true => Err(ProcessError::Exited(process.pid)),
                false => procfs::clear_references(process.pid),
            };
            match cleared {
                Ok(()) => processes.push(ClearedProcess { process, tmpfs, during: begin..start.elapsed() }),
                Err(error) => selection.refuse(process.pid, error, &mut unmeasured)?,
            }
        }
        Ok(Self { start, huge_page: procfs::huge_page_size(), processes, unmeasured })
    }

    /// Returns true if there is no process to read.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the number of processes that could not be measured so far.
    pub(super) const fn unmeasured(&self) -> UnmeasuredProcesses {
        self.unmeasured
    }

    /// Reads the references of the processes that still run, `requested` after they were cleared.
    pub(super) fn read(&mut self, requested: Duration) -> WorkingSets {
        let mut read = Vec::new();
        let Self { start, huge_page, processes, unmeasured } = self;
        processes.retain(|cleared| match cleared.read(*start, *huge_page) {
            Ok(process) => {
                read.push(process);
                true
            }
            Err(error) => {
                count(unmeasured, &error);
                false
            }
        });
        WorkingSets { requested, processes: read, unmeasured: *unmeasured, ..WorkingSets::default() }
    }
}

impl ClearedProcess {
    fn read(&self, start: Instant, huge_page: Bytes) -> Result<ProcessWorkingSet, ProcessError> {
        let begin = start.elapsed();
        let vmas = procfs::vmas(self.process.pid);
        let end = start.elapsed();
        if self.process.has_exited() {
            return Err(ProcessError::Exited(self.process.pid));
        }
        let vmas = vmas?;
        Ok(ProcessWorkingSet {
            pid: self.process.pid,
            comm: self.process.comm.clone(),
            cleared: self.during.clone(),
            read: begin..end,
            kinds: kinds(&vmas, &self.tmpfs, huge_page),
            hugetlb: Bytes(vmas.iter().map(|vma| vma.sizes.hugetlb.0).sum()),
        })
    }
}

/// Returns the sums of the VMAs of each kind.
fn kinds(vmas: &[procfs::Vma], tmpfs: &Tmpfs, huge_page: Bytes) -> Vec<(MappingKind, ReferencedMemory)> {
    let mut kinds = MappingKind::ALL.map(|kind| (kind, ReferencedMemory::default()));
    for vma in vmas {
        let kind = tmpfs.kind(vma);
        let sizes = vma.sizes;
        let memory = ReferencedMemory::of_mapping(sizes.resident, sizes.pss, sizes.referenced, sizes.huge, huge_page);
        if let Some((_, sum)) = kinds.iter_mut().find(|(other, _)| *other == kind) {
            *sum += memory;
        }
    }
    kinds.into_iter().filter(|(_, memory)| memory.resident.0 > 0).collect()
}
