//! Walks the chunks of glibc's malloc by their headers. Pure.
//!
//! A chunk starts with the size of the previous chunk, if that is free, and its own size with flags in the lowest bits.
//! So each chunk leads to the next one and shows if the previous one is in use (`struct malloc_chunk`,
//! malloc/malloc.c; the same from 2.26 to 2.43). Headers that were read while the process changed them are
//! inconsistent, which the walk detects.

use crate::model::{AbsAddr, Bytes};
use crate::procfs::peek::Words;

/// The previous chunk is in use.
const PREV_INUSE: u64 = 1;
/// The chunk has its own mapping.
const IS_MMAPPED: u64 = 2;
/// The chunk belongs to a non-main arena.
const NON_MAIN_ARENA: u64 = 4;
const FLAGS: u64 = PREV_INUSE | IS_MMAPPED | NON_MAIN_ARENA;

/// Alignment of addresses and sizes of chunks (`MALLOC_ALIGNMENT`).
pub(super) const ALIGNMENT: u64 = 16;
/// Minimum size of a chunk (`MINSIZE`), except of a fencepost at the end of a region (`sysmalloc`).
const LEAST: u64 = 32;
const FENCE: u64 = 16;

/// Totals of a region of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Chunks in use.
    pub(super) in_use: Bytes,
    pub(super) blocks: u64,
    /// Resident part of the chunks in use.
    pub(super) in_use_resident: Bytes,
    /// Free chunks and the top chunk.
    pub(super) free: Bytes,
    /// Fenceposts at the end of the region.
    pub(super) fences: Bytes,
    /// End of the walk.
    pub(super) end: AbsAddr,
}

/// The headers are inconsistent or could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    /// The chunk at which the walk failed.
    pub(super) at: AbsAddr,
}

/// The size word of a chunk.
#[derive(Clone, Copy)]
struct Head {
    size: u64,
    flags: u64,
}

/// Walks the chunks from `first` to `end`, or to fenceposts before it.
pub(super) fn walk(first: AbsAddr, end: AbsAddr, words: &mut impl Words) -> Result<Tally, Torn> {
    let mut tally = Tally::default();
    let mut at = first;
    let mut head = head(at, words)?;
    // The first chunk has no previous one, which counts as in use.
    if head.flags & PREV_INUSE == 0 || !first.0.is_multiple_of(ALIGNMENT) {
        return Err(Torn { at });
    }
    loop {
        let torn = Torn { at };
        let behind = AbsAddr(at.0.checked_add(head.size).filter(|behind| *behind <= end.0).ok_or(torn)?);
        match head.size {
            FENCE => {
                let closed = closed(at, head, end, words)?;
                tally.fences.0 += closed.0 - at.0;
                tally.end = closed;
                return Ok(tally);
            }
            ..LEAST => return Err(torn),
            size if behind == end => {
                // The top chunk: a free previous chunk would have been merged into it.
                if head.flags & PREV_INUSE == 0 {
                    return Err(torn);
                }
                tally.free.0 += size;
                tally.end = end;
                return Ok(tally);
            }
            size => {
                let next = self::head(behind, words)?;
                if next.flags & PREV_INUSE == 0 {
                    // The size of a free chunk is also stored after it.
                    if words.word(behind) != Some(size) {
                        return Err(torn);
                    }
                    tally.free.0 += size;
                } else {
                    tally.in_use.0 += size;
                    tally.blocks += 1;
                    tally.in_use_resident.0 += words.resident(at, behind).0;
                }
                (at, head) = (behind, next);
            }
        }
    }
}

/// Returns the end of the fenceposts at `at`: two in the main arena; one and a header of size 0 in another arena's heap
/// (`sysmalloc`).
fn closed(at: AbsAddr, fence: Head, end: AbsAddr, words: &mut impl Words) -> Result<AbsAddr, Torn> {
    let second = AbsAddr(at.0 + fence.size);
    let closed = AbsAddr(second.0 + FENCE);
    if closed > end {
        return Err(Torn { at });
    }
    let second = head(second, words)?;
    if matches!(second.size, 0 | FENCE) && second.flags & PREV_INUSE != 0 { Ok(closed) } else { Err(Torn { at }) }
}

fn head(at: AbsAddr, words: &mut impl Words) -> Result<Head, Torn> {
    let torn = Torn { at };
    let word = words.word(AbsAddr(at.0.checked_add(8).ok_or(torn)?)).ok_or(torn)?;
    let head = Head { size: word & !FLAGS, flags: word & FLAGS };
    if head.size.is_multiple_of(ALIGNMENT) && head.flags & IS_MMAPPED == 0 { Ok(head) } else { Err(torn) }
}

/// Returns start and size of the mapping of a chunk with its own mapping, from the chunk's first two words. The first
/// word is the unused space before the chunk, for aligned allocations (`_int_memalign`). The second is its size: up to
/// 2.42 the rest of the mapping, since then without the header of a following chunk (`mmap_size`).
pub(super) fn mapped(at: AbsAddr, before: u64, size: u64, page: Bytes) -> Option<(AbsAddr, Bytes)> {
    let (size, flags) = (size & !FLAGS, size & FLAGS);
    // Since 2.43 it may contain a flag.
    let before = before & !FLAGS;
    let start = at.0.checked_sub(before)?;
    let rest = size.checked_add(before)?;
    let whole = [rest, rest.checked_add(FENCE)?].into_iter().find(|whole| whole.is_multiple_of(page.0))?;
    let fits = flags == IS_MMAPPED && size >= LEAST && start.is_multiple_of(page.0);
    fits.then_some((AbsAddr(start), Bytes(whole)))
}

#[cfg(test)]
mod tests;
