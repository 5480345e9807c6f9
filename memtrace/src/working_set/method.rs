//! Methods to find touched pages.

use std::time::{Duration, Instant};

use memtrace_host::procfs::{
    self, ClearedPages, Damon, DamonError, PageReading, PageTracker, ProcessError, Tmpfs, UnmappedCache, Vma,
};
use memtrace_model::format::{counted, grouped, short};
use memtrace_model::{
    Bytes, CgroupId, MappingKind, MeasuredMapping, PagePart, Pid, ReferencedMemory, TouchedPages, WorkingSetMethod,
};

use super::fault_tracer::FaultTracer;
use crate::run_kit::error::Error;
use crate::run_kit::page_tracker;
use crate::targets::select::{LeftOut, Target};

/// A method, ready for use.
pub(super) struct Method {
    kind: WorkingSetMethod,
    source: Source,
}

/// Source of the references.
enum Source {
    /// `/proc/PID/smaps`.
    Mappings,
    Pages(PageTracker),
    Damon,
    Faults(Box<FaultTracer>),
}

/// State of a measurement: the monitors of DAMON, and the lost page faults.
pub(super) struct Prepared {
    damon: Option<Damon>,
    /// Number of page faults that were lost before the measurement.
    lost_faults: u64,
}

/// A process with cleared references.
pub(super) enum Cleared {
    Mappings,
    Pages(ClearedPages),
    Faults,
    /// Start time of the DAMON monitor of the process.
    Monitored(Instant),
}

/// Reading of a process.
pub(super) struct Reading {
    pub(super) mappings: Vec<MeasuredMapping>,
    /// Touched pages, if the method finds single pages.
    pub(super) touched: Option<TouchedPages>,
    pub(super) hugetlb: Bytes,
    pub(super) locked: Option<Bytes>,
    /// Time when the references were read. The sizes may be read later.
    pub(super) references_end: Instant,
}

impl Method {
    /// Prepares a method for the processes of a target, without those in `left_out`.
    ///
    /// # Errors
    ///
    /// The kernel does not have the method, or permission is missing.
    pub(super) fn open(
        requested: Option<WorkingSetMethod>,
        target: &Target,
        left_out: &LeftOut,
    ) -> Result<Self, Error> {
        // All methods read smaps. CONFIG_PROC_PAGE_MONITOR provides both smaps and clear_refs.
        if !procfs::has_clear_refs() {
            return Err(page_tracker::lacks(
                "accessed bits for user space (CONFIG_PROC_PAGE_MONITOR)",
                "use a kernel with this option",
            ));
        }
        let kind = requested.unwrap_or_default();
        let source = match kind {
            WorkingSetMethod::Referenced => Source::Mappings,
            WorkingSetMethod::Damon => Damon::find().map(|()| Source::Damon).map_err(|error| without_damon(&error))?,
            WorkingSetMethod::Idle => Source::Pages(page_tracker::idle()?),
            WorkingSetMethod::Written => Source::Pages(page_tracker::written()?),
            WorkingSetMethod::Faults => Source::Faults(Box::new(FaultTracer::start(target, left_out)?)),
        };
        Ok(Self { kind, source })
    }

    pub(super) const fn kind(&self) -> WorkingSetMethod {
        self.kind
    }

    /// Prepares a measurement of processes. `time`: time until the references are read.
    ///
    /// # Errors
    ///
    /// DAMON is in use, or cannot monitor this number of processes.
    pub(super) fn prepare(&self, pids: &[Pid], time: Duration) -> Result<Prepared, Error> {
        let damon = matches!(self.source, Source::Damon).then(|| Damon::prepare(pids, time)).transpose();
        let damon = damon.map_err(|error| without_damon(&error))?;
        Ok(Prepared { damon, lost_faults: self.lost_faults().unwrap_or_default() })
    }

    /// Returns the reader of the unmapped page cache of control groups; `None` without groups, or if the method cannot read it.
    ///
    /// # Errors
    ///
    /// The kernel does not know the groups of pages, or permission is missing.
    pub(super) fn unmapped_cache(&self, groups: &[CgroupId]) -> Result<Option<UnmappedCache<'_>>, Error> {
        let Source::Pages(tracker) = &self.source else { return Ok(None) };
        if groups.is_empty() {
            return Ok(None);
        }
        let failed = |error| Error::Failed(format!("cannot read the control groups of pages: {error}"));
        tracker.unmapped_cache(groups).map_err(failed)
    }

    /// Returns the number of page faults that were lost so far; `None` if the method traces none.
    fn lost_faults(&self) -> Option<u64> {
        if let Source::Faults(tracer) = &self.source { Some(tracer.lost()) } else { None }
    }

    /// Returns the number of page faults that were lost since the measurement was prepared.
    pub(super) fn lost_faults_since(&self, prepared: &Prepared) -> Option<u64> {
        self.lost_faults().map(|lost| lost.saturating_sub(prepared.lost_faults))
    }

    /// Returns the cost of tracing as a line of text; `None` if the method traces nothing.
    pub(super) fn tracing_cost(&self) -> Option<String> {
        let Source::Faults(tracer) = &self.source else { return None };
        let (faults, programs) = tracer.cost();
        Some(format!(
            "{} traced; the BPF programs ran {} times, which took {}",
            counted(faults, "page fault", "page faults"),
            grouped(programs.runs),
            short(programs.time)
        ))
    }

    /// Clears the references of a process.
    pub(super) fn clear(&self, prepared: &Prepared, pid: Pid) -> Result<Cleared, ProcessError> {
        match (&self.source, &prepared.damon) {
            (Source::Pages(tracker), _) => tracker.clear(pid).map(Cleared::Pages),
            (Source::Damon, Some(damon)) => damon.start(pid).map(Cleared::Monitored),
            (Source::Faults(tracer), _) => {
                tracer.clear(pid);
                Ok(Cleared::Faults)
            }
            (Source::Mappings | Source::Damon, _) => procfs::clear_references(pid).map(|()| Cleared::Mappings),
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
        let touched = match (cleared, &self.source, &prepared.damon) {
            (Cleared::Monitored(started), _, Some(damon)) => {
                Some(PageReading { pages: damon.read(pid, *started)?, locked: None })
            }
            (Cleared::Pages(cleared), Source::Pages(tracker), _) => Some(tracker.read(pid, cleared)?),
            (Cleared::Faults, Source::Faults(tracer), _) => Some(tracer.read(pid)?),
            _ => None,
        };
        let (touched, locked) = touched.map_or((None, None), |PageReading { pages, locked }| (Some(pages), locked));
        let touched_end = Instant::now();
        let vmas = procfs::vmas(pid)?;
        let references_end = if touched.is_some() { touched_end } else { Instant::now() };
        let memory = |vma: &Vma| match &touched {
            Some(pages) => self.touched_memory(vma, pages),
            None => referenced_memory(vma, huge_page),
        };
        let mapping = |vma: &Vma| MeasuredMapping {
            kind: tmpfs.kind(vma),
            start: vma.entry.start,
            end: vma.entry.end,
            memory: memory(vma),
        };
        let mappings = vmas.iter().map(mapping).collect();
        let hugetlb = Bytes(vmas.iter().map(|vma| vma.sizes.hugetlb.0).sum());
        Ok(Reading { mappings, touched, hugetlb, locked, references_end })
    }

    /// Returns the memory of a VMA with the touched pages of its process.
    fn touched_memory(&self, vma: &Vma, pages: &TouchedPages) -> ReferencedMemory {
        let bytes = |part| pages.bytes(part, vma.entry.start, vma.entry.end);
        let is_all_written = self.kind == WorkingSetMethod::Written && vma.soft_dirty;
        let sizes = vma.sizes;
        ReferencedMemory {
            resident: sizes.resident,
            pss: sizes.pss,
            shared: sizes.shared,
            referenced: bytes(PagePart::Touched),
            least_referenced: if is_all_written { Bytes(0) } else { bytes(PagePart::CertainlyTouched) },
            huge: sizes.huge,
            swap: sizes.swap,
        }
    }
}

impl Reading {
    /// Returns the sums of the mappings of each kind.
    pub(super) fn kinds(&self) -> Vec<(MappingKind, ReferencedMemory)> {
        let mut kinds = MappingKind::ALL.map(|kind| (kind, ReferencedMemory::default()));
        for mapping in &self.mappings {
            if let Some((_, sum)) = kinds.iter_mut().find(|(kind, _)| *kind == mapping.kind) {
                *sum += mapping.memory;
            }
        }
        kinds.into_iter().filter(|(_, memory)| memory.resident.0 + memory.swap.0 > 0).collect()
    }
}

/// Returns the memory of a VMA with the references that smaps has.
fn referenced_memory(vma: &Vma, huge_page: Bytes) -> ReferencedMemory {
    let sizes = vma.sizes;
    let memory = ReferencedMemory::of_mapping(sizes.resident, sizes.pss, sizes.referenced, sizes.huge, huge_page);
    ReferencedMemory { shared: sizes.shared, swap: sizes.swap, ..memory }
}

/// Returns the error for a DAMON that cannot be used.
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
