//! Processes whose references were cleared.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::kernel::ProcessFilter;
use crate::model::{Bytes, MappingKind, Pid, ProcessWorkingSet, ReferencedMemory, WorkingSetMethod, WorkingSets};
use crate::procfs::{self, Hierarchies, Process, ProcessError, Tmpfs};
use crate::session::config::Target;
use crate::session::error::{Error, from_engines};
use crate::session::select::filter;

/// Selects processes.
pub(super) enum Selection {
    Pids(Vec<Pid>),
    Matching { filter: ProcessFilter, hierarchies: Option<Hierarchies> },
}

impl Selection {
    /// # Errors
    ///
    /// A user, an executable or a cgroup does not exist.
    pub(super) fn of(target: &Target) -> Result<Self, Error> {
        if let Target::Pids { pids, .. } = target {
            return Ok(Self::Pids(pids.clone()));
        }
        let filter = filter::resolve(target, false)?;
        let hierarchies = filter.is_by_cgroup().then(|| Hierarchies::read().unwrap_or_default());
        Ok(Self::Matching { filter, hierarchies })
    }

    /// Returns true if no other process can be selected later.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Pids(_))
    }

    fn pids(&self) -> Result<Vec<Pid>, Error> {
        match self {
            Self::Pids(pids) => Ok(pids.clone()),
            Self::Matching { filter, hierarchies } => {
                let failed = |error| Error::Failed(format!("cannot list the processes: {error}"));
                let own = Pid(std::process::id());
                let traits = |pid| procfs::traits(pid, hierarchies.as_ref()).unwrap_or_default();
                let all = procfs::all_processes().map_err(failed)?;
                Ok(all.into_iter().filter(|&pid| pid != own && filter.selects(pid, || traits(pid))).collect())
            }
        }
    }
}

/// A process whose references were cleared.
struct Cleared {
    process: Process,
    tmpfs: Tmpfs,
    during: Range<Duration>,
}

/// Processes whose references were cleared together.
pub(super) struct Measured {
    start: Instant,
    huge_page: Bytes,
    processes: Vec<Cleared>,
    exited: u64,
    not_permitted: u64,
}

impl Measured {
    /// Clears the references of all selected processes. Times are those since `start`.
    ///
    /// # Errors
    ///
    /// A process that was named by its pid cannot be read.
    pub(super) fn clear(selection: &Selection, start: Instant) -> Result<Self, Error> {
        let mut measured =
            Self { start, huge_page: procfs::huge_page_size(), processes: Vec::new(), exited: 0, not_permitted: 0 };
        let mut opened = Vec::new();
        for pid in selection.pids()? {
            match procfs::inspect(pid) {
                Ok(process) => opened.push((process, Tmpfs::of(pid))),
                Err(error) => measured.count(selection, pid, error)?,
            }
        }
        for (process, tmpfs) in opened {
            let begin = start.elapsed();
            match procfs::clear_references(process.pid) {
                Ok(()) => measured.processes.push(Cleared { process, tmpfs, during: begin..start.elapsed() }),
                Err(error) => measured.count(selection, process.pid, error)?,
            }
        }
        Ok(measured)
    }

    /// Counts a process that cannot be read, if it was selected by rules.
    fn count(&mut self, selection: &Selection, pid: Pid, error: ProcessError) -> Result<(), Error> {
        if let Selection::Pids(_) = selection {
            return Err(from_engines::process(pid, error));
        }
        match error {
            ProcessError::Permission { .. } => self.not_permitted += 1,
            _ => self.exited += 1,
        }
        Ok(())
    }

    /// Returns true if there is no process to read.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Reads the references of the processes that still run.
    pub(super) fn read(&mut self, requested: Duration) -> WorkingSets {
        let mut read = Vec::new();
        let (start, huge_page) = (self.start, self.huge_page);
        let before = self.processes.len();
        self.processes.retain(|cleared| {
            let begin = start.elapsed();
            let vmas = procfs::vmas(cleared.process.pid);
            let end = start.elapsed();
            // If it has exited, the pid may be that of another process.
            let vmas = vmas.ok().filter(|_| !cleared.process.has_exited());
            let Some(vmas) = vmas else { return false };
            read.push(ProcessWorkingSet {
                pid: cleared.process.pid,
                comm: cleared.process.comm.clone(),
                cleared: cleared.during.clone(),
                read: begin..end,
                kinds: kinds(&vmas, &cleared.tmpfs, huge_page),
                hugetlb: Bytes(vmas.iter().map(|vma| vma.sizes.hugetlb.0).sum()),
            });
            true
        });
        self.exited += (before - self.processes.len()) as u64;
        WorkingSets {
            method: WorkingSetMethod::Referenced,
            requested,
            processes: read,
            exited: self.exited,
            not_permitted: self.not_permitted,
        }
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
