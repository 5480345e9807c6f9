//! Walks from block to block of glibc's malloc by the marks that it keeps before each. Pure.
//!
//! A chunk begins with the size of the one before it, where that is free, and its own size, whose lowest bits are
//! flags; so each chunk says where the next one is, and whether the one before is in use (`struct malloc_chunk`,
//! malloc/malloc.c; as it was in 2.26, so it is in 2.43). What was read while the process changed it does not fit
//! together, and is told by that.

use crate::model::{AbsAddr, Bytes};
use crate::procfs::peek::Words;

/// The chunk before is in use.
const PREV_INUSE: u64 = 1;
/// The chunk has a mapping of its own.
const IS_MMAPPED: u64 = 2;
/// The chunk is of an arena that is not the main one.
const NON_MAIN_ARENA: u64 = 4;
const FLAGS: u64 = PREV_INUSE | IS_MMAPPED | NON_MAIN_ARENA;

/// Chunks begin at, and are, multiples of this (`MALLOC_ALIGNMENT`).
pub(super) const ALIGNMENT: u64 = 16;
/// No chunk is smaller (`MINSIZE`), but what closes a region (a fencepost in `sysmalloc`).
const LEAST: u64 = 32;
const FENCE: u64 = 16;

/// What a region of chunks holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Chunks in use.
    pub(super) in_use: Bytes,
    pub(super) blocks: u64,
    /// Of them, what is resident.
    pub(super) in_use_resident: Bytes,
    /// Free chunks, and the one at the end from which new ones are cut.
    pub(super) free: Bytes,
    /// What closes the region.
    pub(super) fences: Bytes,
    /// Where the walk ended.
    pub(super) end: AbsAddr,
}

/// What was read does not fit together, or could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    /// The chunk that the walk did not get past.
    pub(super) at: AbsAddr,
}

/// A chunk's own head.
#[derive(Clone, Copy)]
struct Head {
    size: u64,
    flags: u64,
}

/// Walks the chunks from `first` on to `end`, or to what closes them before that.
pub(super) fn walk(first: AbsAddr, end: AbsAddr, words: &mut impl Words) -> Result<Tally, Torn> {
    let mut tally = Tally::default();
    let mut at = first;
    let mut head = head(at, words)?;
    // Nothing lies before the first chunk, and that counts as in use.
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
                // The top chunk: what is before it is in use, or would have become a part of it.
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
                    // A free chunk's size stands behind it too.
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

/// Where what begins at `at` ends: of the main arena two fences, of another arena's heap a fence and a head of size 0
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

/// The whole of the mapping that the chunk at `at` has for itself, by the two words that it begins with. The first says
/// how much lies before it in the mapping, where an alignment was asked for (`_int_memalign`). The second is its size:
/// up to 2.42 all the rest of the mapping, since then without the marks of a chunk that would follow (`mmap_size`).
pub(super) fn mapped(at: AbsAddr, before: u64, size: u64, page: Bytes) -> Option<(AbsAddr, Bytes)> {
    let (size, flags) = (size & !FLAGS, size & FLAGS);
    // Since 2.43 a flag may be there too.
    let before = before & !FLAGS;
    let start = at.0.checked_sub(before)?;
    let rest = size.checked_add(before)?;
    let whole = [rest, rest.checked_add(FENCE)?].into_iter().find(|whole| whole.is_multiple_of(page.0))?;
    let fits = flags == IS_MMAPPED && size >= LEAST && start.is_multiple_of(page.0);
    fits.then_some((AbsAddr(start), Bytes(whole)))
}

#[cfg(test)]
mod tests;
