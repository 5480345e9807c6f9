//! Blocks with mappings of their own.

use crate::explain::chunks;
use crate::explain::span::Span;
use crate::model::{AbsAddr, Bytes};
use crate::procfs::peek::Peek;

/// A block that does not begin a mapping, which the kernel may have joined with others, is believed to be one only if
/// it is as large as blocks with mappings of their own are unless they are asked for (`DEFAULT_MMAP_THRESHOLD`).
const USUAL: Bytes = Bytes(128 << 10);

/// Finds the blocks in `spans`, which are all of anonymous memory and none of an arena's.
pub(super) fn blocks(peek: &Peek, spans: &[Span]) -> Vec<Span> {
    spans.iter().flat_map(|span| of_one(peek, *span)).collect()
}

fn of_one(peek: &Peek, span: Span) -> Vec<Span> {
    let Ok(residence) = peek.pages.residence(span.start, span.end) else { return Vec::new() };
    let size = peek.pages.page();
    let pages: Vec<_> = residence.pages().collect();
    let heads = peek.pairs(&pages);
    // Where a block was asked for at a multiple of a page, its mark ends a page.
    let lasts = peek.pairs(&pages.iter().map(|page| AbsAddr(page.0 + size.0 - 16)).collect::<Vec<_>>());
    let mut blocks: Vec<Span> = Vec::new();
    let mut behind = span.start;
    for ((page, head), last) in pages.into_iter().zip(heads).zip(lasts) {
        if page < behind {
            continue;
        }
        let least = if page == behind { Bytes(0) } else { USUAL };
        let begins = |block: &Span| block.start == behind;
        let block = plain(page, head, least, size)
            .or_else(|| marked(AbsAddr(page.0 + size.0 - 16), last, size).filter(begins))
            .or_else(|| if page == behind { aligned(peek, page) } else { None });
        if let Some(block) = block.filter(|block| block.end <= span.end) {
            behind = block.end;
            blocks.push(block);
        }
    }
    blocks
}

/// The block that begins at `page` with its mark.
fn plain(page: AbsAddr, head: Option<[u64; 2]>, least: Bytes, size: Bytes) -> Option<Span> {
    marked(page, head, size).filter(|block| block.start == page && block.length() >= least)
}

/// The block that `head`, at `place`, is the mark of.
fn marked(place: AbsAddr, head: Option<[u64; 2]>, size: Bytes) -> Option<Span> {
    let [before, block] = head?;
    let (start, length) = chunks::mapped(place, before, block, size)?;
    Some(Span { start, end: AbsAddr(start.0.checked_add(length.0)?) })
}

/// The block that a mapping begins with at `page` where a small alignment was asked for: what is behind its mark is
/// aligned.
fn aligned(peek: &Peek, page: AbsAddr) -> Option<Span> {
    let size = peek.pages.page();
    let alignments = (5..).map(|power| 1u64 << power).take_while(|alignment| *alignment < size.0);
    let places: Vec<_> = alignments.map(|alignment| AbsAddr(page.0 + alignment - 16)).collect();
    let heads = peek.pairs(&places);
    let mut blocks = places.into_iter().zip(heads).filter_map(|(place, head)| marked(place, head, size));
    blocks.find(|block| block.start == page)
}
