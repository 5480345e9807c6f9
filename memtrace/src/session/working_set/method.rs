//! Methods: how touched pages are found.

use std::time::{Duration, Instant};

use crate::model::{Bytes, CgroupId, MappingKind, PagePart, Pid, ReferencedMemory, WorkingSetMethod};
use crate::procfs::{
    self, ClearedPages, Damon, DamonError, PageReading, PageTracker, ProcessError, Tmpfs, UnmappedCache, Vma,
};
use crate::session::error::Error;
use crate::session::page_tracker;

/// A method, ready for use.
pub(super) struct Method {
    kind: WorkingSetMethod,
    /// For methods that examine single pages.
    tracker: Option<PageTracker>,
}

/// Processes of a measurement, and the monitors of those that DAMON measures.
pub(super) struct Prepared {
    damon: Option<Damon>,
}

/// A process with cleared references.
pub(super) enum Cleared {
    Pages(ClearedPages),
    /// Its monitor started at this time.
    Monitored(Instant),
}

/// Reading of a process.
pub(super) struct Reading {
    pub(super) kinds: Vec<(MappingKind, ReferencedMemory)>,
    pub(super) hugetlb: Bytes,
    pub(super) locked: Option<Bytes>,
    /// End of reading the references; that of reading the sizes may be later.
    pub(super) references_end: Instant,
}

impl Method {
    /// Prepares a method.
    ///
    /// # Errors
    ///
    /// The kernel does not have the method, or permission is missing.
    pub(super) fn open(requested: Option<WorkingSetMethod>) -> Result<Self, Error> {
        // The other methods need the files of this option too.
        if !procfs::has_clear_refs() {
            return Err(page_tracker::lacks(
                "accessed bits for user space (CONFIG_PROC_PAGE_MONITOR)",
                "use a kernel with this option",
            ));
        }
        let kind = requested.unwrap_or_default();
        let tracker = match kind {
            WorkingSetMethod::Referenced => None,
            WorkingSetMethod::Damon => Damon::find().map(|()| None).map_err(|error| without_damon(&error))?,
            WorkingSetMethod::Idle => Some(page_tracker::idle()?),
            WorkingSetMethod::Written => Some(page_tracker::written()?),
        };
        Ok(Self { kind, tracker })
    }

    pub(super) const fn kind(&self) -> WorkingSetMethod {
        self.kind
    }

    /// Prepares a measurement of processes for this time.
    ///
    /// # Errors
    ///
    /// DAMON cannot be used any more, or for too few processes.
    pub(super) fn prepare(&self, pids: &[Pid], time: Duration) -> Result<Prepared, Error> {
        let uses_damon = self.kind == WorkingSetMethod::Damon;
        let damon = uses_damon.then(|| Damon::prepare(pids, time)).transpose();
        Ok(Prepared { damon: damon.map_err(|error| without_damon(&error))? })
    }

    /// Finds the page cache of control groups that no process has mapped; `None` if the method cannot, or without groups.
    ///
    /// # Errors
    ///
    /// The kernel does not know the groups of pages, or permission is missing.
    pub(super) fn unmapped_cache(&self, groups: &[CgroupId]) -> Result<Option<UnmappedCache<'_>>, Error> {
        let Some(tracker) = self.tracker.as_ref().filter(|_| !groups.is_empty()) else { return Ok(None) };
        let failed = |error| Error::Failed(format!("cannot read the control groups of pages: {error}"));
        tracker.unmapped_cache(groups).map_err(failed)
    }

    /// Clears the references of a process.
    pub(super) fn clear(&self, prepared: &Prepared, pid: Pid) -> Result<Cleared, ProcessError> {
        match (&prepared.damon, &self.tracker) {
            (Some(damon), _) => damon.start(pid).map(Cleared::Monitored),
            (None, Some(tracker)) => tracker.clear(pid).map(Cleared::Pages),
            (None, None) => procfs::clear_references(pid).map(|()| Cleared::Pages(ClearedPages::default())),
        }
    }

    /// Reads the references of a process.
    pub(super) fn read(
        &self,
        prepared: &Prepared,
        pid: Pid,
        cleared: &Cleared,
        tmpfs: &Tmpfs,
        huge_page: Bytes,
    ) -> Result<Reading, ProcessError> {
        let touched = match (cleared, &prepared.damon, &self.tracker) {
            (Cleared::Monitored(started), Some(damon), _) => {
                Some(PageReading { pages: damon.read(pid, *started)?, locked: None })
            }
            (Cleared::Pages(cleared), _, Some(tracker)) => Some(tracker.read(pid, cleared)?),
            _ => None,
        };
        let Some(PageReading { pages, locked }) = touched else {
            let vmas = procfs::vmas(pid)?;
            let references_end = Instant::now();
            let kinds = kinds(&vmas, tmpfs, |vma| {
                let sizes = vma.sizes;
                ReferencedMemory::of_mapping(sizes.resident, sizes.pss, sizes.referenced, sizes.huge, huge_page)
            });
            return Ok(Reading { kinds, hugetlb: hugetlb(&vmas), locked: None, references_end });
        };
        let references_end = Instant::now();
        let vmas = procfs::vmas(pid)?;
        let is_all_written = |vma: &Vma| self.kind == WorkingSetMethod::Written && vma.soft_dirty;
        let kinds = kinds(&vmas, tmpfs, |vma| {
            let bytes = |part| pages.bytes(part, vma.entry.start, vma.entry.end);
            ReferencedMemory {
                resident: vma.sizes.resident,
                pss: vma.sizes.pss,
                referenced: bytes(PagePart::Touched),
                least_referenced: if is_all_written(vma) { Bytes(0) } else { bytes(PagePart::CertainlyTouched) },
                huge: vma.sizes.huge,
            }
        });
        Ok(Reading { kinds, hugetlb: hugetlb(&vmas), locked, references_end })
    }
}

/// Returns the error if DAMON cannot be used.
fn without_damon(error: &DamonError) -> Error {
    const OTHER_METHOD: &str = "use --method referenced, or a kernel with these options";
    match error {
        DamonError::Missing => page_tracker::lacks("DAMON in sysfs (CONFIG_DAMON, CONFIG_DAMON_SYSFS)", OTHER_METHOD),
        DamonError::NoVirtualAddresses => {
            page_tracker::lacks("DAMON for virtual addresses (CONFIG_DAMON_VADDR)", OTHER_METHOD)
        }
        DamonError::InUse | DamonError::TooMany(_) => {
            Error::CannotMeasure { message: error.to_string(), remedy: String::from("use --method referenced") }
        }
        DamonError::Failed(_) => Error::Failed(error.to_string()),
    }
}

fn hugetlb(vmas: &[Vma]) -> Bytes {
    Bytes(vmas.iter().map(|vma| vma.sizes.hugetlb.0).sum())
}

/// Returns the sums of the VMAs of each kind.
fn kinds(
    vmas: &[Vma],
    tmpfs: &Tmpfs,
    memory: impl Fn(&Vma) -> ReferencedMemory,
) -> Vec<(MappingKind, ReferencedMemory)> {
    let mut kinds = MappingKind::ALL.map(|kind| (kind, ReferencedMemory::default()));
    for vma in vmas {
        let kind = tmpfs.kind(vma);
        if let Some((_, sum)) = kinds.iter_mut().find(|(other, _)| *other == kind) {
            *sum += memory(vma);
        }
    }
    kinds.into_iter().filter(|(_, memory)| memory.resident.0 > 0).collect()
}
