//! Memory of several processes with each page counted once, by its page frame.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::frame_set::FrameSet;
use super::process::{ProcessWorkingSet, ReferencedMemory};
use super::touched_pages::{PageState, TouchedPages};
use crate::memory::MappingKind;
use crate::units::{AbsAddr, Bytes};

/// Resident and referenced memory of all processes together. Each page counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DistinctPages {
    /// Resident bytes.
    pub resident: Bytes,
    /// Upper bound of the bytes that a process has referenced.
    pub referenced: Bytes,
    /// Lower bound of the bytes that a process has referenced.
    pub least_referenced: Bytes,
}

impl AddAssign for DistinctPages {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.resident, other.resident),
            (&mut self.referenced, other.referenced),
            (&mut self.least_referenced, other.least_referenced),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

/// Memory of all processes together, by kind of memory. A page that is mapped as two kinds counts in each of them. The
/// kernel can map a page as two kinds if it merges pages (KSM).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DistinctMemory {
    /// Kinds with resident pages, ordered like [`MappingKind::ALL`].
    pub kinds: Vec<(MappingKind, DistinctPages)>,
}

impl DistinctMemory {
    /// Returns the sums of processes as if they shared no pages: a shared page counts once in each process.
    #[must_use]
    pub fn of_processes(processes: &[ProcessWorkingSet]) -> Self {
        let kinds = MappingKind::ALL.map(|kind| {
            let sum: ReferencedMemory = processes.iter().map(|process| process.of_kind(kind)).sum();
            let ReferencedMemory { resident, referenced, least_referenced, .. } = sum;
            (kind, DistinctPages { resident, referenced, least_referenced })
        });
        Self { kinds: kinds.into_iter().filter(|(_, pages)| pages.resident.0 > 0).collect() }
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> DistinctPages {
        let mut sum = DistinctPages::default();
        self.kinds.iter().for_each(|(_, pages)| sum += *pages);
        sum
    }

    /// Returns the memory of one kind; zeros if no process has any.
    #[must_use]
    pub fn of_kind(&self, kind: MappingKind) -> DistinctPages {
        self.kinds.iter().find(|(other, _)| *other == kind).map(|(_, pages)| *pages).unwrap_or_default()
    }
}

/// Reason that pages of several processes could not be counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFrames {
    /// The kernel shows no page frames without `CAP_SYS_ADMIN`.
    NotPermitted,
    /// Counting would have taken much longer than the measurement.
    Late,
    /// memtrace cannot read its own page frames.
    Unreadable,
}

impl UnknownFrames {
    /// Returns the name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotPermitted => "not_permitted",
            Self::Late => "late",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns the reason as a sentence without its full stop.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotPermitted => "the kernel shows no page frames without CAP_SYS_ADMIN",
            Self::Late => "to count their page frames would take too long",
            Self::Unreadable => "memtrace cannot read its own page frames",
        }
    }
}

/// Mapping of a process, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredMapping {
    pub kind: MappingKind,
    pub start: AbsAddr,
    pub end: AbsAddr,
    pub memory: ReferencedMemory,
}

/// Pages of one process.
#[derive(Clone, Debug)]
pub struct ProcessFrames {
    page: Bytes,
    /// Touched pages; `None` if the method finds only sums of mappings.
    touched: Option<TouchedPages>,
    kinds: BTreeMap<MappingKind, FramesOfKind>,
}

/// Pages of a kind, of one process or of several.
///
/// A process has referenced at least `certain` bytes of its shared pages. Several processes may have referenced the same
/// pages, so their lower bound is the largest `certain` minus `repeated` of one process. The upper bound is the number of
/// touched frames. If the method finds no single pages, the upper bound is the sum of the references that exceed the
/// exclusive pages of their mappings, limited to all shared frames.
#[derive(Clone, Debug, Default)]
struct FramesOfKind {
    /// Pages that are mapped once on the whole machine.
    exclusive: DistinctPages,
    /// Frames that are mapped several times.
    shared: FrameSet,
    /// Touched frames of `shared`, if the method finds single pages.
    touched: FrameSet,
    /// Bytes of references to pages of `shared`, if the method finds only sums of mappings.
    referenced: Bytes,
    /// Lower bound of the bytes of `shared` that a process has referenced.
    certain: Bytes,
    /// Bytes of pages of `shared` that a process has mapped more than once.
    repeated: Bytes,
}

impl ProcessFrames {
    /// Returns a process without pages. Pages have `page` bytes. `touched`: touched pages, if the method finds single
    /// pages.
    #[must_use]
    pub const fn new(page: Bytes, touched: Option<TouchedPages>) -> Self {
        Self { page, touched, kinds: BTreeMap::new() }
    }

    /// Adds a mapping whose pages are not mapped anywhere else.
    pub fn add_exclusive(&mut self, mapping: &MeasuredMapping) {
        let ReferencedMemory { resident, referenced, least_referenced, .. } = mapping.memory;
        self.kinds.entry(mapping.kind).or_default().exclusive +=
            DistinctPages { resident, referenced, least_referenced };
    }

    /// Starts to add the pages of a mapping.
    pub fn mapping(&mut self, mapping: &MeasuredMapping) -> MappingFrames<'_> {
        MappingFrames {
            page: self.page,
            touched: self.touched.as_ref(),
            memory: mapping.memory,
            of_kind: self.kinds.entry(mapping.kind).or_default(),
            exclusive: 0,
            shared: 0,
        }
    }
}

/// Pages of one mapping, which [`MappingFrames::finish`] adds to its process.
#[derive(Debug)]
pub struct MappingFrames<'a> {
    page: Bytes,
    touched: Option<&'a TouchedPages>,
    memory: ReferencedMemory,
    of_kind: &'a mut FramesOfKind,
    /// Bytes of pages that are mapped once on the whole machine.
    exclusive: u64,
    /// Bytes of other pages.
    shared: u64,
}

impl MappingFrames<'_> {
    /// Adds the resident page at `address`. `frame`: its page frame; `None` if it is mapped once on the whole machine.
    pub fn add(&mut self, address: AbsAddr, frame: Option<u64>) {
        let state = self.touched.map_or(PageState::Untouched, |pages| pages.state(address));
        let is_touched = state != PageState::Untouched;
        // A lower bound of 0 means that all pages of the mapping count as touched, even if they were not.
        let is_certain = state == PageState::Touched && self.memory.least_referenced.0 > 0;
        let bytes = |is_counted: bool| if is_counted { self.page.0 } else { 0 };
        let of_kind = &mut *self.of_kind;
        match frame {
            None => {
                self.exclusive += self.page.0;
                of_kind.exclusive.referenced.0 += bytes(is_touched);
                of_kind.exclusive.least_referenced.0 += bytes(is_certain);
            }
            Some(frame) => {
                self.shared += self.page.0;
                of_kind.repeated.0 += bytes(!of_kind.shared.insert(frame));
                of_kind.certain.0 += bytes(is_certain);
                if is_touched {
                    of_kind.touched.insert(frame);
                }
            }
        }
    }

    /// Adds the sums of the mapping to its process.
    pub fn finish(self) {
        let exclusive = &mut self.of_kind.exclusive;
        exclusive.resident.0 += self.exclusive;
        if self.touched.is_some() {
            return;
        }
        let ReferencedMemory { referenced, least_referenced, .. } = self.memory;
        let of_exclusive = referenced.0.min(self.exclusive);
        exclusive.referenced.0 += of_exclusive;
        exclusive.least_referenced.0 += least_referenced.0.saturating_sub(self.shared);
        self.of_kind.referenced.0 += referenced.0 - of_exclusive;
        self.of_kind.certain.0 += least_referenced.0.min(self.shared);
    }
}

/// Pages of all measured processes, with each page once. Only pages that are mapped several times take memory.
#[derive(Clone, Debug)]
pub struct DistinctFrames {
    page: Bytes,
    kinds: BTreeMap<MappingKind, FramesOfKind>,
}

impl DistinctFrames {
    /// Returns an empty set. Pages have `page` bytes.
    #[must_use]
    pub const fn new(page: Bytes) -> Self {
        Self { page, kinds: BTreeMap::new() }
    }

    /// Adds the pages of a process.
    pub fn add(&mut self, process: ProcessFrames) {
        for (kind, more) in process.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.exclusive += more.exclusive;
            sum.shared.merge(more.shared);
            sum.touched.merge(more.touched);
            sum.referenced.0 = sum.referenced.0.saturating_add(more.referenced.0);
            sum.certain.0 = sum.certain.0.max(more.certain.0.saturating_sub(more.repeated.0));
        }
    }

    /// Returns the memory of all processes.
    #[must_use]
    pub fn memory(&self) -> DistinctMemory {
        let pages = |of_kind: &FramesOfKind| {
            let bytes = |frames: &FrameSet| frames.count() * self.page.0;
            let shared = bytes(&of_kind.shared);
            let touched = bytes(&of_kind.touched).saturating_add(of_kind.referenced.0).min(shared);
            let mut pages = of_kind.exclusive;
            pages += DistinctPages {
                resident: Bytes(shared),
                referenced: Bytes(touched),
                least_referenced: of_kind.certain,
            };
            // The sizes of a mapping and its page frames are read at different times, so the lower bound can exceed the upper
            // bound.
            pages.least_referenced.0 = pages.least_referenced.0.min(pages.referenced.0);
            pages
        };
        let kinds = self.kinds.iter().map(|(&kind, of_kind)| (kind, pages(of_kind)));
        DistinctMemory { kinds: kinds.filter(|(_, pages)| pages.resident.0 > 0).collect() }
    }
}

#[cfg(test)]
mod tests;
