//! Walks the heap of glibc's malloc by chunk headers: the arenas, and the blocks with their own mmap.
//!
//! The main arena is in the brk heap. Other arenas are in heaps of 64 MiB, which start at a multiple of their size with
//! a `heap_info` (malloc/arena.c). A block with its own mmap starts with its chunk header. The walk needs no symbols.

mod arena;
mod error;
mod mapped;

use memtrace_host::procfs::MemoryReader;
use memtrace_model::{Bytes, HeapStats};

use self::arena::ArenaContents;
pub(super) use self::error::HeapError;
use super::span::Span;

/// Contiguous private anonymous memory, readable and writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) span: Span,
    /// True for the brk heap.
    pub(super) is_brk: bool,
}

/// Result of a heap walk.
#[derive(Debug, Default)]
pub(super) struct HeapWalk {
    pub(super) stats: HeapStats,
    /// Address ranges of the heap, ordered by address.
    pub(super) spans: Vec<Span>,
    /// Error of the last region that could not be walked.
    pub(super) error: Option<HeapError>,
}

/// Walks glibc's heap in `regions`.
pub(super) fn walk_heap(reader: &MemoryReader, regions: &[Region]) -> HeapWalk {
    let mut walk = HeapWalk::default();
    for region in regions.iter().filter(|region| region.is_brk) {
        walk.spans.push(region.span);
        let contents = arena::read_main_arena(reader, region.span);
        walk.add(reader, region.span, contents);
    }
    let others: Vec<_> = regions.iter().filter(|region| !region.is_brk).map(|region| region.span).collect();
    for heap in arena::heaps(reader, &others) {
        walk.spans.push(heap.reserved());
        let contents = heap.read(reader);
        walk.stats.arenas += u32::from(heap.is_first());
        walk.add(reader, heap.usable(), contents);
    }
    walk.stats.arenas += u32::from(regions.iter().any(|region| region.is_brk));
    walk.spans.sort_by_key(|span| span.start);
    let free: Vec<_> = others.iter().flat_map(|span| span.without(&walk.spans)).collect();
    for block in mapped::find_blocks(reader, &free) {
        walk.stats.in_use.0 += block.length().0;
        walk.stats.mapped.0 += block.length().0;
        walk.stats.blocks += 1;
        walk.stats.mapped_blocks += 1;
        walk.stats.in_use_resident.0 += resident(reader, block).0;
        walk.spans.push(block);
    }
    walk.spans.sort_by_key(|span| span.start);
    walk
}

impl HeapWalk {
    fn add(&mut self, reader: &MemoryReader, span: Span, contents: Result<ArenaContents, HeapError>) {
        let stats = &mut self.stats;
        match contents {
            Ok(contents) => {
                stats.in_use.0 += contents.tally.in_use.0;
                stats.blocks += contents.tally.blocks;
                stats.free.0 += contents.tally.free.0;
                stats.trimmable.0 += contents.tally.trimmable.0 + contents.tally.trimmable_top.0;
                stats.own.0 += contents.own.0;
                stats.in_use_resident.0 += contents.tally.in_use_resident.0;
            }
            Err(error) => {
                stats.undetermined.0 += resident(reader, span).0;
                self.error = Some(error);
            }
        }
    }
}

fn resident(reader: &MemoryReader, span: Span) -> Bytes {
    reader.pages.residence(span.start, span.end).map_or(Bytes(0), |walk| walk.resident(span.start, span.end))
}

#[cfg(test)]
mod tests;
