//! Finds the arenas of glibc's malloc, and reads their contents.

use memtrace_host::procfs::{MemoryReader, MemoryView, WordReader as _};
use memtrace_model::{AbsAddr, Bytes};

use super::error::HeapError;
use crate::explain::chunks;
use crate::explain::chunks::{ALIGNMENT, ChunkTotals, WalkError};
use crate::explain::span::Span;

/// Maximum size and alignment of a heap of a non-main arena: `HEAP_MAX_SIZE`, twice `DEFAULT_MMAP_THRESHOLD_MAX`
/// (malloc/arena.c).
const HEAP: u64 = 64 << 20;

/// Accepted sizes of `struct heap_info`: four words up to glibc 2.34, five in newer versions, padded to an even number.
const HEAP_INFO: std::ops::RangeInclusive<u64> = 32..=64;

/// Accepted sizes of `struct malloc_state`, which precedes the first chunk: 0x890 bytes in glibc 2.26, 0x898 in newer
/// versions, with a margin.
const STATE: std::ops::Range<u64> = 0x600..0xc00;

/// Maximum size of foreign memory before or between the chunks of the brk heap, such as a static program's thread-local
/// variables.
const FOREIGN: u64 = 256 << 10;

/// Maximum number of attempts to read a region that the process is changing.
const ATTEMPTS: u32 = 10;

/// Contents of the brk heap, or of one heap of another arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ArenaContents {
    pub(super) tally: ChunkTotals,
    /// Bytes of the arena's own structures, of fenceposts and of foreign memory.
    pub(super) own: Bytes,
}

/// Reads the main arena in the brk heap `span`.
pub(super) fn read_main_arena(reader: &MemoryReader, span: Span) -> Result<ArenaContents, HeapError> {
    read_consistently(reader, span, |view| {
        let mut contents = ArenaContents::default();
        let mut at = span.start;
        while at < span.end {
            let (first, tally) = walk_from(at, FOREIGN, span.end, view)?;
            contents.own.0 += first.0 - at.0;
            contents.add(tally);
            at = tally.end;
        }
        Ok(contents)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    base: AbsAddr,
    /// Usable size of the heap in bytes.
    size: Bytes,
    /// Address of the arena's `malloc_state`, in its first heap.
    state: AbsAddr,
}

/// Finds the heaps of non-main arenas in regions of anonymous memory.
pub(super) fn heaps(reader: &MemoryReader, regions: &[Span]) -> Vec<Heap> {
    let bases = regions.iter().flat_map(|region| {
        let first = up(region.start.0, HEAP).0;
        (first..region.end.0).step_by(HEAP as usize).map(|base| (AbsAddr(base), region.end))
    });
    let candidates: Vec<_> = bases.filter_map(|(base, end)| Heap::read_info(reader, base, end)).collect();
    let firsts: Vec<_> = candidates.iter().filter(|heap| heap.is_first()).copied().collect();
    let has_arena = |heap: &Heap| firsts.iter().any(|first| first.state == heap.state);
    candidates.into_iter().filter(has_arena).collect()
}

impl Heap {
    /// Reads and checks `ar_ptr`, `prev`, `size` and `mprotect_size` (`new_heap`, malloc/arena.c).
    fn read_info(reader: &MemoryReader, base: AbsAddr, end: AbsAddr) -> Option<Self> {
        let page = reader.pages.page();
        let mut view = reader.view(base, AbsAddr(base.0 + page.0)).ok()?;
        let [state, previous, size, accessible] = [0, 8, 16, 24].map(|at| view.word(AbsAddr(base.0 + at)));
        let (state, previous, size, accessible) = (AbsAddr(state?), previous?, size?, accessible?);
        let within = (end.0 - base.0).min(HEAP);
        let is_whole = size.is_multiple_of(page.0) && size > 0 && size <= accessible && accessible <= within;
        let is_placed = HEAP_INFO.contains(&(state.0 % HEAP)) && state.0.is_multiple_of(8);
        let heap = Self { base, size: Bytes(size), state };
        // The first heap of an arena has no predecessor. The predecessor of any other heap is aligned.
        let is_linked = previous.is_multiple_of(HEAP) && (previous == 0) == heap.is_first();
        (is_whole && is_placed && is_linked).then_some(heap)
    }

    /// Returns true for the arena's first heap, which contains the arena's state.
    pub(super) const fn is_first(&self) -> bool {
        self.state.0 - self.state.0 % HEAP == self.base.0
    }

    /// Returns the reserved address range.
    pub(super) const fn reserved(&self) -> Span {
        Span { start: self.base, end: AbsAddr(self.base.0 + HEAP) }
    }

    /// Returns the usable address range.
    pub(super) const fn usable(&self) -> Span {
        Span { start: self.base, end: AbsAddr(self.base.0 + self.size.0) }
    }

    pub(super) fn read(&self, reader: &MemoryReader) -> Result<ArenaContents, HeapError> {
        let Span { start, end } = self.usable();
        read_consistently(reader, self.usable(), |view| {
            let (at, foreign) = if self.is_first() {
                (up(self.state.0 + STATE.start, ALIGNMENT), STATE.end - STATE.start)
            } else {
                (up(self.base.0 + self.state.0 % HEAP, ALIGNMENT), ALIGNMENT)
            };
            let (first, tally) = walk_from(at, foreign, end, view)?;
            let mut contents = ArenaContents { own: Bytes(first.0 - start.0), ..ArenaContents::default() };
            contents.add(tally);
            // malloc_trim(3) trims the top chunk of the main arena only (`mtrim`, malloc/malloc.c).
            contents.tally.trimmable_top = Bytes(0);
            // Only the main arena has fenceposts before the end of a region, so this walk must reach the end.
            if tally.end == end { Ok(contents) } else { Err(WalkError { at: tally.end }) }
        })
    }
}

impl ArenaContents {
    fn add(&mut self, tally: ChunkTotals) {
        self.tally.in_use.0 += tally.in_use.0;
        self.tally.blocks += tally.blocks;
        self.tally.in_use_resident.0 += tally.in_use_resident.0;
        self.tally.free.0 += tally.free.0;
        self.tally.trimmable.0 += tally.trimmable.0;
        self.tally.trimmable_top.0 += tally.trimmable_top.0;
        self.own.0 += tally.fences.0;
    }
}

/// Searches the `foreign` bytes from `at` on for the first chunk, and walks from this chunk. If a walk fails beyond the
/// searched bytes, the start of the walk was a chunk, and another start would not help.
fn walk_from(
    at: AbsAddr,
    foreign: u64,
    end: AbsAddr,
    view: &mut MemoryView<'_>,
) -> Result<(AbsAddr, ChunkTotals), WalkError> {
    let mut failed = WalkError { at };
    let search_end = at.0.saturating_add(foreign).min(end.0);
    for first in (up(at.0, ALIGNMENT).0..search_end).step_by(ALIGNMENT as usize).map(AbsAddr) {
        match chunks::walk(first, end, view) {
            Ok(tally) => return Ok((first, tally)),
            Err(error) if error.at.0 > search_end => return Err(error),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Reads a region until its contents are consistent, at most `ATTEMPTS` times.
fn read_consistently(
    reader: &MemoryReader,
    span: Span,
    mut read: impl FnMut(&mut MemoryView<'_>) -> Result<ArenaContents, WalkError>,
) -> Result<ArenaContents, HeapError> {
    let mut error = HeapError::Inconsistent;
    for _ in 0..ATTEMPTS {
        let mut view = reader.view(span.start, span.end).map_err(|_| HeapError::Unreadable)?;
        match read(&mut view) {
            Ok(contents) => return Ok(contents),
            Err(WalkError { .. }) if reader.is_late() => return Err(HeapError::Late),
            Err(WalkError { .. }) if view.residence.swapped > 0 => error = HeapError::Swapped,
            Err(WalkError { .. }) => error = HeapError::Inconsistent,
        }
    }
    Err(error)
}

const fn up(address: u64, to: u64) -> AbsAddr {
    AbsAddr(address.next_multiple_of(to))
}
