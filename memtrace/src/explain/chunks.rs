//! Walk through the chunks of glibc's malloc by their headers.
//!
//! A chunk starts with two words. The first word is the size of the previous chunk, and is valid only if that chunk is free.
//! The second word is the chunk's own size, with flags in the lowest bits. So each chunk gives the address of the next one, and
//! its flags show if the previous chunk is in use (`struct malloc_chunk`, malloc/malloc.c; the layout is the same in glibc 2.26
//! to 2.43). Memory that changed during the read fails the consistency checks.

use memtrace_host::procfs::WordReader;
use memtrace_model::{AbsAddr, Bytes};

/// Flag: the previous chunk is in use.
const PREV_INUSE: u64 = 1;
/// Flag: the chunk has its own mmap.
const IS_MMAPPED: u64 = 2;
/// Flag: the chunk belongs to a non-main arena.
const NON_MAIN_ARENA: u64 = 4;
const FLAGS: u64 = PREV_INUSE | IS_MMAPPED | NON_MAIN_ARENA;

/// Alignment of the addresses and sizes of chunks (`MALLOC_ALIGNMENT`).
pub(super) const ALIGNMENT: u64 = 16;
/// Minimum size of a chunk (`MINSIZE`). Only a fencepost at the end of a region is smaller (`sysmalloc`).
const MIN_SIZE: u64 = 32;
const FENCE: u64 = 16;
/// Size of the header of a free chunk (`struct malloc_chunk`).
const FREE_HEADER: u64 = 48;

/// Totals of a region of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkTotals {
    /// Total size of the chunks in use.
    pub(super) in_use: Bytes,
    pub(super) blocks: u64,
    /// Resident bytes of the chunks in use.
    pub(super) in_use_resident: Bytes,
    /// Total size of the free chunks, including the top chunk.
    pub(super) free: Bytes,
    /// Resident bytes of the pages inside free chunks that malloc_trim(3) returns, without the top chunk.
    pub(super) trimmable: Bytes,
    /// Resident bytes of the pages of the top chunk that malloc_trim(3) returns in the main arena.
    pub(super) trimmable_top: Bytes,
    /// Total size of the fenceposts.
    pub(super) fences: Bytes,
    /// Address after the last chunk or fencepost that was read.
    pub(super) end: AbsAddr,
}

/// Address of an inconsistent or unreadable chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkError {
    pub(super) at: AbsAddr,
}

#[derive(Clone, Copy)]
struct Head {
    size: u64,
    flags: u64,
}

/// Walks the chunks from `first` to `end`, or to the fenceposts before `end`.
pub(super) fn walk(first: AbsAddr, end: AbsAddr, words: &mut impl WordReader) -> Result<ChunkTotals, WalkError> {
    let mut tally = ChunkTotals::default();
    let mut at = first;
    let mut head = head(at, words)?;
    // The first chunk has no predecessor; its flag `PREV_INUSE` is set.
    if head.flags & PREV_INUSE == 0 || !first.0.is_multiple_of(ALIGNMENT) {
        return Err(WalkError { at });
    }
    loop {
        let error = WalkError { at };
        let next_at = AbsAddr(at.0.checked_add(head.size).filter(|next_at| *next_at <= end.0).ok_or(error)?);
        match head.size {
            FENCE => {
                tally.end = fences_end(at, head, end, words)?;
                tally.fences.0 += tally.end.0 - at.0;
                return Ok(tally);
            }
            ..MIN_SIZE => return Err(error),
            size if next_at == end => {
                // The top chunk. Its predecessor is in use: a free one would have been merged with it.
                if head.flags & PREV_INUSE == 0 {
                    return Err(error);
                }
                tally.free.0 += size;
                tally.trimmable_top = trimmable_top(at, end, words);
                tally.end = end;
                return Ok(tally);
            }
            size => {
                let next = self::head(next_at, words)?;
                if next.flags & PREV_INUSE == 0 {
                    // The size of a free chunk is repeated at its end.
                    if words.word(next_at) != Some(size) {
                        return Err(error);
                    }
                    tally.free.0 += size;
                    tally.trimmable.0 += trimmable(at, next_at, words).0;
                } else {
                    tally.in_use.0 += size;
                    tally.blocks += 1;
                    tally.in_use_resident.0 += words.resident(at, next_at).0;
                }
                (at, head) = (next_at, next);
            }
        }
    }
}

/// Returns the resident bytes that malloc_trim(3) returns of the free chunk from `start` to `end`: whole pages after the
/// header (`mtrim`, malloc/malloc.c).
fn trimmable(start: AbsAddr, end: AbsAddr, words: &impl WordReader) -> Bytes {
    let page = words.page().0;
    let first = (start.0 + FREE_HEADER).next_multiple_of(page);
    let length = end.0.saturating_sub(first) / page * page;
    if length == 0 { Bytes(0) } else { words.resident(AbsAddr(first), AbsAddr(first + length)) }
}

/// Returns the resident bytes that malloc_trim(3) returns of the top chunk from `start` to `end`. malloc_trim(3) moves the
/// end of the brk heap by whole pages (`systrim`, malloc/malloc.c).
fn trimmable_top(start: AbsAddr, end: AbsAddr, words: &impl WordReader) -> Bytes {
    let page = words.page().0;
    let length = (end.0 - start.0).saturating_sub(MIN_SIZE + 1) / page * page;
    if length == 0 { Bytes(0) } else { words.resident(AbsAddr(end.0 - length), end) }
}

/// Returns the end of the fenceposts that start at `at`. The main arena has two fenceposts; a heap of another arena has
/// a fencepost and a header of size 0 (`sysmalloc`).
fn fences_end(at: AbsAddr, fence: Head, end: AbsAddr, words: &mut impl WordReader) -> Result<AbsAddr, WalkError> {
    let second = AbsAddr(at.0 + fence.size);
    let closed = AbsAddr(second.0 + FENCE);
    if closed > end {
        return Err(WalkError { at });
    }
    let second = head(second, words)?;
    if matches!(second.size, 0 | FENCE) && second.flags & PREV_INUSE != 0 { Ok(closed) } else { Err(WalkError { at }) }
}

fn head(at: AbsAddr, words: &mut impl WordReader) -> Result<Head, WalkError> {
    let error = WalkError { at };
    let word = words.word(AbsAddr(at.0.checked_add(8).ok_or(error)?)).ok_or(error)?;
    let head = Head { size: word & !FLAGS, flags: word & FLAGS };
    if head.size.is_multiple_of(ALIGNMENT) && head.flags & IS_MMAPPED == 0 { Ok(head) } else { Err(error) }
}

/// Returns the address and size of the mapping of a chunk with its own mmap. `at`: address of the chunk. `before`,
/// `size`: the two words of the chunk's header.
///
/// For an aligned block, `before` is the offset of the chunk in the mapping (`_int_memalign`). Up to glibc 2.42, `size`
/// is the size of the mapping from the chunk on. Since 2.43, `size` excludes the header of a following chunk
/// (`mmap_size`).
pub(super) fn mapped(at: AbsAddr, before: u64, size: u64, page: Bytes) -> Option<(AbsAddr, Bytes)> {
    let (size, flags) = (size & !FLAGS, size & FLAGS);
    // Since 2.43 the first word may contain a flag.
    let before = before & !FLAGS;
    let start = at.0.checked_sub(before)?;
    let rest = size.checked_add(before)?;
    let whole = [rest, rest.checked_add(FENCE)?].into_iter().find(|whole| whole.is_multiple_of(page.0))?;
    let fits = flags == IS_MMAPPED && size >= MIN_SIZE && start.is_multiple_of(page.0);
    fits.then_some((AbsAddr(start), Bytes(whole)))
}

#[cfg(test)]
mod tests;
