//! Finds the memory of glibc's malloc by its chunk headers: arenas, and blocks with their own mapping.
//!
//! The main arena is in what `brk` gives out. Other arenas are in heaps of 64 MiB that begin at a multiple of that with
//! a `heap_info` (malloc/arena.c). A block with a mapping of its own begins it with its mark. None of that takes
//! symbols.

mod arena;
mod mapped;

use super::span::Span;
use crate::model::{Bytes, HeapStats};
use crate::procfs::peek::Peek;

pub(super) use arena::Trouble;

/// Private anonymous memory that can be read and written, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) span: Span,
    /// True if it is from `brk`.
    pub(super) is_brk: bool,
}

/// Memory of glibc's malloc.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) books: HeapStats,
    /// Its address ranges, sorted by address.
    pub(super) spans: Vec<Span>,
    /// Reason why a part of it could not be read.
    pub(super) trouble: Option<Trouble>,
}

/// Finds glibc's memory in `regions`.
pub(super) fn look(peek: &Peek, regions: &[Region]) -> Found {
    let mut found = Found::default();
    for region in regions.iter().filter(|region| region.is_brk) {
        found.spans.push(region.span);
        let told = arena::main(peek, region.span);
        found.add(peek, region.span, told);
    }
    let others: Vec<_> = regions.iter().filter(|region| !region.is_brk).map(|region| region.span).collect();
    for heap in arena::heaps(peek, &others) {
        found.spans.push(heap.whole());
        let told = heap.tell(peek);
        found.books.arenas += u32::from(heap.is_first());
        found.add(peek, heap.used(), told);
    }
    found.books.arenas += u32::from(regions.iter().any(|region| region.is_brk));
    found.spans.sort_by_key(|span| span.start);
    let free: Vec<_> = others.iter().flat_map(|span| span.without(&found.spans)).collect();
    for block in mapped::blocks(peek, &free) {
        found.books.in_use.0 += block.length().0;
        found.books.mapped.0 += block.length().0;
        found.books.blocks += 1;
        found.books.mapped_blocks += 1;
        found.books.in_use_resident.0 += resident(peek, block).0;
        found.spans.push(block);
    }
    found.spans.sort_by_key(|span| span.start);
    found
}

impl Found {
    fn add(&mut self, peek: &Peek, span: Span, told: Result<arena::Told, Trouble>) {
        let books = &mut self.books;
        match told {
            Ok(told) => {
                books.in_use.0 += told.tally.in_use.0;
                books.blocks += told.tally.blocks;
                books.free.0 += told.tally.free.0;
                books.own.0 += told.own.0;
                books.in_use_resident.0 += told.tally.in_use_resident.0;
            }
            Err(trouble) => {
                books.undetermined.0 += resident(peek, span).0;
                self.trouble = Some(trouble);
            }
        }
    }
}

fn resident(peek: &Peek, span: Span) -> Bytes {
    peek.pages.residence(span.start, span.end).map_or(Bytes(0), |found| found.resident(span.start, span.end))
}

#[cfg(test)]
mod tests;
