//! Finds arenas and adds up their chunks.

use crate::explain::chunks;
use crate::explain::chunks::{ALIGNMENT, Tally, Torn};
use crate::explain::span::Span;
use crate::model::{AbsAddr, Bytes};
use crate::procfs::peek::{Peek, View, Words as _};

/// Maximum size and alignment of a heap of a non-main arena: `HEAP_MAX_SIZE`, twice `DEFAULT_MMAP_THRESHOLD_MAX`
/// (malloc/arena.c).
const HEAP: u64 = 64 << 20;

/// Size of `struct heap_info`: four words up to 2.34, five since then, padded to an even number; with a margin.
const HEAP_INFO: std::ops::RangeInclusive<u64> = 32..=64;

/// Size of `struct malloc_state`, which the first chunk follows: 0x890 bytes in 2.26, 0x898 since then; with a margin.
const STATE: std::ops::Range<u64> = 0x600..0xc00;

/// Maximum size of memory that other code got from `brk` before or between malloc's calls. A static program does this
/// for its thread-local variables.
const FOREIGN: u64 = 256 << 10;

/// Number of attempts to read a region that its process is changing.
const ATTEMPTS: u32 = 10;

/// Reason why a region could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::explain) enum Trouble {
    /// The process changed it during every attempt, or it is not a heap of glibc.
    Torn,
    /// A part of it is swapped out.
    Swapped,
    /// The process does not permit access.
    Unreadable,
}

/// Content of an arena's region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) tally: Tally,
    /// Memory of the arena itself and of other code.
    pub(super) own: Bytes,
}

/// Adds up the chunks in the main arena's region.
pub(super) fn main(peek: &Peek, span: Span) -> Result<Told, Trouble> {
    again(peek, span, |view| {
        let mut told = Told::default();
        let mut at = span.start;
        while at < span.end {
            let (first, tally) = walk_from(at, FOREIGN, span.end, view)?;
            told.own.0 += first.0 - at.0;
            told.add(tally);
            at = tally.end;
        }
        Ok(told)
    })
}

/// A heap of another arena than the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    base: AbsAddr,
    /// Size of its usable part.
    size: Bytes,
    /// Address of its arena's state, in the arena's first heap.
    state: AbsAddr,
}

/// Finds the heaps in regions of anonymous memory.
pub(super) fn heaps(peek: &Peek, regions: &[Span]) -> Vec<Heap> {
    let bases = regions.iter().flat_map(|region| {
        let first = up(region.start.0, HEAP).0;
        (first..region.end.0).step_by(HEAP as usize).map(|base| (AbsAddr(base), region.end))
    });
    let candidates: Vec<_> = bases.filter_map(|(base, end)| Heap::at(peek, base, end)).collect();
    let firsts: Vec<_> = candidates.iter().filter(|heap| heap.is_first()).copied().collect();
    let is_known = |heap: &Heap| firsts.iter().any(|first| first.state == heap.state);
    candidates.into_iter().filter(is_known).collect()
}

impl Heap {
    /// Reads `ar_ptr`, `prev`, `size` and `mprotect_size`, which `new_heap` writes.
    fn at(peek: &Peek, base: AbsAddr, end: AbsAddr) -> Option<Self> {
        let page = peek.pages.page();
        let mut view = peek.view(base, AbsAddr(base.0 + page.0)).ok()?;
        let [state, previous, size, opened] = [0, 8, 16, 24].map(|at| view.word(AbsAddr(base.0 + at)));
        let (state, previous, size, opened) = (AbsAddr(state?), previous?, size?, opened?);
        let within = (end.0 - base.0).min(HEAP);
        let is_whole = size.is_multiple_of(page.0) && size > 0 && size <= opened && opened <= within;
        let is_placed = HEAP_INFO.contains(&(state.0 % HEAP)) && state.0.is_multiple_of(8);
        let heap = Self { base, size: Bytes(size), state };
        // The first heap has no previous one; the address of every other previous heap is aligned.
        let is_linked = previous.is_multiple_of(HEAP) && (previous == 0) == heap.is_first();
        (is_whole && is_placed && is_linked).then_some(heap)
    }

    /// Returns true if it contains its arena's state.
    pub(super) const fn is_first(&self) -> bool {
        self.state.0 - self.state.0 % HEAP == self.base.0
    }

    /// Returns its reserved range.
    pub(super) const fn whole(&self) -> Span {
        Span { start: self.base, end: AbsAddr(self.base.0 + HEAP) }
    }

    /// Returns its usable range.
    pub(super) const fn used(&self) -> Span {
        Span { start: self.base, end: AbsAddr(self.base.0 + self.size.0) }
    }

    /// Adds up its chunks.
    pub(super) fn tell(&self, peek: &Peek) -> Result<Told, Trouble> {
        let Span { start, end } = self.used();
        again(peek, self.used(), |view| {
            let (at, foreign) = if self.is_first() {
                (up(self.state.0 + STATE.start, ALIGNMENT), STATE.end - STATE.start)
            } else {
                (up(self.base.0 + self.state.0 % HEAP, ALIGNMENT), ALIGNMENT)
            };
            let (first, tally) = walk_from(at, foreign, end, view)?;
            let mut told = Told { own: Bytes(first.0 - start.0), ..Told::default() };
            told.add(tally);
            // Fenceposts before the end occur only in the main arena.
            if tally.end == end { Ok(told) } else { Err(Torn { at: tally.end }) }
        })
    }
}

impl Told {
    fn add(&mut self, tally: Tally) {
        self.tally.in_use.0 += tally.in_use.0;
        self.tally.blocks += tally.blocks;
        self.tally.in_use_resident.0 += tally.in_use_resident.0;
        self.tally.free.0 += tally.free.0;
        self.own.0 += tally.fences.0;
    }
}

/// Searches for the first chunk from `at` on, and walks from there. A walk that goes far started at a chunk; if it then
/// fails, no other start would succeed.
fn walk_from(at: AbsAddr, foreign: u64, end: AbsAddr, view: &mut View<'_>) -> Result<(AbsAddr, Tally), Torn> {
    let mut failed = Torn { at };
    let behind = at.0.saturating_add(foreign).min(end.0);
    for first in (up(at.0, ALIGNMENT).0..behind).step_by(ALIGNMENT as usize).map(AbsAddr) {
        match chunks::walk(first, end, view) {
            Ok(tally) => return Ok((first, tally)),
            Err(torn) if torn.at.0 > behind => return Err(torn),
            Err(torn) => failed = torn,
        }
    }
    Err(failed)
}

/// Reads a region repeatedly until its content is consistent.
fn again(peek: &Peek, span: Span, mut look: impl FnMut(&mut View<'_>) -> Result<Told, Torn>) -> Result<Told, Trouble> {
    let mut trouble = Trouble::Torn;
    for _ in 0..ATTEMPTS {
        let mut view = peek.view(span.start, span.end).map_err(|_| Trouble::Unreadable)?;
        match look(&mut view) {
            Ok(told) => return Ok(told),
            Err(Torn { .. }) if view.residence.swapped > 0 => trouble = Trouble::Swapped,
            Err(Torn { .. }) => trouble = Trouble::Torn,
        }
    }
    Err(trouble)
}

const fn up(address: u64, to: u64) -> AbsAddr {
    AbsAddr(address.next_multiple_of(to))
}
