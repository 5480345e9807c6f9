//! Methods: how touched pages are found.

use std::time::Instant;

use crate::model::{Bytes, MappingKind, PagePart, Pid, ReferencedMemory, WorkingSetMethod};
use crate::procfs::{self, ClearedPages, PageReading, PageTracker, ProcessError, Tmpfs, Vma};
use crate::session::error::Error;
use crate::session::page_tracker;

/// A method, ready for use.
pub(super) struct Method {
    kind: WorkingSetMethod,
    /// For methods that examine single pages.
    tracker: Option<PageTracker>,
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
            WorkingSetMethod::Idle => Some(page_tracker::idle()?),
            WorkingSetMethod::Written => Some(page_tracker::written()?),
        };
        Ok(Self { kind, tracker })
    }

    pub(super) const fn kind(&self) -> WorkingSetMethod {
        self.kind
    }

    /// Clears the references of a process.
    pub(super) fn clear(&self, pid: Pid) -> Result<ClearedPages, ProcessError> {
        match &self.tracker {
            Some(tracker) => tracker.clear(pid),
            None => procfs::clear_references(pid).map(|()| ClearedPages::default()),
        }
    }

    /// Reads the references of a process.
    pub(super) fn read(
        &self,
        pid: Pid,
        cleared: &ClearedPages,
        tmpfs: &Tmpfs,
        huge_page: Bytes,
    ) -> Result<Reading, ProcessError> {
        let Some(tracker) = &self.tracker else {
            let vmas = procfs::vmas(pid)?;
            let references_end = Instant::now();
            let kinds = kinds(&vmas, tmpfs, |vma| {
                let sizes = vma.sizes;
                ReferencedMemory::of_mapping(sizes.resident, sizes.pss, sizes.referenced, sizes.huge, huge_page)
            });
            return Ok(Reading { kinds, hugetlb: hugetlb(&vmas), locked: None, references_end });
        };
        let PageReading { pages, locked } = tracker.read(pid, cleared)?;
        let references_end = Instant::now();
        let vmas = procfs::vmas(pid)?;
        let kinds = kinds(&vmas, tmpfs, |vma| {
            let bytes = |part| pages.bytes(part, vma.entry.start, vma.entry.end);
            ReferencedMemory {
                resident: vma.sizes.resident,
                pss: vma.sizes.pss,
                referenced: bytes(PagePart::Touched),
                least_referenced: bytes(PagePart::CertainlyTouched),
                huge: vma.sizes.huge,
            }
        });
        Ok(Reading { kinds, hugetlb: hugetlb(&vmas), locked, references_end })
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
