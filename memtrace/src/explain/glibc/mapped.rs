//! Finds blocks with their own mmap.

use memtrace_host::procfs::MemoryReader;
use memtrace_model::{AbsAddr, Bytes};

use crate::explain::chunks;
use crate::explain::span::Span;

/// Minimum size of a block inside a region (`DEFAULT_MMAP_THRESHOLD`). The kernel merges adjacent mappings, so a block
/// may start at any page. A smaller block is accepted only at the start of a region or after another block.
const MMAP_THRESHOLD: Bytes = Bytes(128 << 10);

/// Finds the blocks in `spans` of anonymous memory outside of the arenas.
pub(super) fn find_blocks(reader: &MemoryReader, spans: &[Span]) -> Vec<Span> {
    spans.iter().flat_map(|span| find_blocks_in(reader, *span)).collect()
}

fn find_blocks_in(reader: &MemoryReader, span: Span) -> Vec<Span> {
    let Ok(residence) = reader.pages.residence(span.start, span.end) else { return Vec::new() };
    let size = reader.pages.page();
    let pages: Vec<_> = residence.pages().collect();
    // A page-aligned block has its header at the end of the preceding page.
    let places: Vec<_> = pages.iter().flat_map(|page| [*page, AbsAddr(page.0 + size.0 - 16)]).collect();
    let pairs = reader.pairs(&places);
    let mut blocks: Vec<Span> = Vec::new();
    let mut next = span.start;
    for (page, &[head, last]) in pages.into_iter().zip(pairs.as_chunks().0) {
        if page < next {
            continue;
        }
        let least = if page == next { Bytes(0) } else { MMAP_THRESHOLD };
        let begins = |block: &Span| block.start == next;
        let block = unaligned(page, head, least, size)
            .or_else(|| parse_header(AbsAddr(page.0 + size.0 - 16), last, size).filter(begins))
            .or_else(|| if page == next { aligned(reader, page) } else { None });
        if let Some(block) = block.filter(|block| block.end <= span.end) {
            next = block.end;
            blocks.push(block);
        }
    }
    blocks
}

/// Returns the block with its header at the start of `page`.
fn unaligned(page: AbsAddr, head: Option<[u64; 2]>, least: Bytes, size: Bytes) -> Option<Span> {
    parse_header(page, head, size).filter(|block| block.start == page && block.length() >= least)
}

/// Returns the block that the chunk header `head` describes. `place`: address of the header.
fn parse_header(place: AbsAddr, head: Option<[u64; 2]>, size: Bytes) -> Option<Span> {
    let [before, block] = head?;
    let (start, length) = chunks::mapped(place, before, block, size)?;
    Some(Span { start, end: AbsAddr(start.0.checked_add(length.0)?) })
}

/// Returns the block that starts at `page` and was allocated with an alignment of less than a page. The header of such
/// a block precedes an aligned address in the page.
fn aligned(reader: &MemoryReader, page: AbsAddr) -> Option<Span> {
    let size = reader.pages.page();
    let alignments = (5..).map(|power| 1u64 << power).take_while(|alignment| *alignment < size.0);
    let places: Vec<_> = alignments.map(|alignment| AbsAddr(page.0 + alignment - 16)).collect();
    let heads = reader.pairs(&places);
    let mut blocks = places.into_iter().zip(heads).filter_map(|(place, head)| parse_header(place, head, size));
    blocks.find(|block| block.start == page)
}
