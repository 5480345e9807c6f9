//! Tracker of touched pages, by the idle flags of the pages or by the soft-dirty bits of the page tables.

mod frames;
mod idle_bitmap;
mod page_cache;
mod page_flags;

use std::io;

use memtrace_model::{Bytes, CgroupId, MappingKind, PageState, Pid, ResidentRange, TouchedPages};
use rustc_hash::FxHashSet;

use self::frames::{Batch, Folio};
use self::idle_bitmap::IdleBitmap;
use self::page_cache::PageCache;
use self::page_flags::{Frame, PageFlags};
use super::error::ProcessError;
use super::pagemap::{FRAME, PRESENT, PageMap, SOFT_DIRTY, own_entry, page_size};
use super::process::{failure, proc_path};
use super::references::clear_soft_dirty;
use super::resident::{HUGE, resident};

/// Finds the pages that processes touch.
#[derive(Debug)]
pub enum PageTracker {
    /// By the idle flags of the pages. Any process that touches a page clears its flag.
    Idle { bitmap: IdleBitmap, flags: PageFlags },
    /// By the soft-dirty bits of the page tables. Only writes set these bits.
    Written,
}

/// Frames of a process that [`PageTracker::clear`] could not mark.
#[derive(Debug, Default)]
pub struct ClearedPages {
    /// Frames that cannot be marked as idle: their pages are on no LRU list.
    unmarked: FxHashSet<Frame>,
}

/// Pages of a process, with their state.
#[derive(Debug)]
pub struct PageReading {
    pub pages: TouchedPages,
    /// Resident bytes that are locked in memory (`mlock`); `None` with [`PageTracker::Written`].
    pub locked: Option<Bytes>,
}

impl PageTracker {
    /// Opens the idle bitmap.
    ///
    /// # Errors
    ///
    /// The kernel has no idle bitmap (`CONFIG_IDLE_PAGE_TRACKING`), or permission is missing.
    pub fn idle() -> io::Result<Self> {
        let tracker = Self::Idle { bitmap: IdleBitmap::open()?, flags: PageFlags::open()? };
        // The kernel shows frames as 0 without CAP_SYS_ADMIN (`pagemap_read`, fs/proc/task_mmu.c).
        match own_entry()? & FRAME {
            0 => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(tracker),
        }
    }

    /// Marks all pages of a process as not touched.
    ///
    /// # Errors
    ///
    /// The process has exited, or permission is missing.
    pub fn clear(&self, pid: Pid) -> Result<ClearedPages, ProcessError> {
        let mut cleared = ClearedPages::default();
        if let Self::Idle { bitmap, flags } = self {
            let mark = |mut batch: Batch| {
                let folios = batch.folios(flags)?;
                let (tracked, others): (Vec<_>, Vec<_>) = folios.iter().partition(|folio| folio.is_tracked());
                cleared.unmarked.extend(others.iter().map(|folio: &&Folio| folio.head));
                bitmap.mark(tracked.iter().map(|folio| folio.head))
            };
            // New pages are in per-CPU lists before they are put on an LRU list.
            idle_bitmap::drain_lru_lists();
            each_batch(pid, &tracked_ranges(pid)?, mark)?;
        }
        // The kernel clears accessed bits without a TLB flush (`page_idle_clear_pte_refs_one`, mm/page_idle.c). It
        // flushes the TLB when it clears soft-dirty bits.
        clear_soft_dirty(pid)?;
        Ok(cleared)
    }

    /// Returns the pages of a process that were touched since [`Self::clear`], which has returned `cleared`.
    ///
    /// # Errors
    ///
    /// The process has exited, or permission is missing.
    pub fn read(&self, pid: Pid, cleared: &ClearedPages) -> Result<PageReading, ProcessError> {
        let ranges = tracked_ranges(pid)?;
        match self {
            Self::Idle { bitmap, flags } => read_idle(pid, &ranges, bitmap, flags, cleared),
            Self::Written => read_soft_dirty(pid, &ranges),
        }
    }
}

/// Returns true if the kernel keeps soft-dirty bits (`CONFIG_MEM_SOFT_DIRTY`). Tests the bit of a page that was just
/// written.
#[must_use]
pub fn has_soft_dirty() -> bool {
    own_entry().is_ok_and(|entry| entry & SOFT_DIRTY != 0)
}

/// Page cache of control groups that no process has mapped.
#[derive(Debug)]
pub struct UnmappedCache<'a> {
    cache: PageCache,
    bitmap: &'a IdleBitmap,
    flags: &'a PageFlags,
}

impl PageTracker {
    /// Finds the page cache of control groups; `None` for [`Self::Written`], which finds mapped pages only.
    ///
    /// # Errors
    ///
    /// The kernel has no memory control groups, or permission is missing.
    pub fn unmapped_cache(&self, groups: &[CgroupId]) -> io::Result<Option<UnmappedCache<'_>>> {
        let Self::Idle { bitmap, flags } = self else { return Ok(None) };
        Ok(Some(UnmappedCache { cache: PageCache::open(groups)?, bitmap, flags }))
    }
}

impl UnmappedCache<'_> {
    /// Marks the pages of the cache as not touched.
    ///
    /// # Errors
    ///
    /// Errors of the kernel's files.
    pub fn clear(&self) -> io::Result<()> {
        self.cache.mark(self.flags, self.bitmap)
    }

    /// Returns the bytes of the cache, and the bytes that were read or written since [`Self::clear`]. New pages count
    /// as touched.
    ///
    /// # Errors
    ///
    /// Errors of the kernel's files.
    pub fn read(&self) -> io::Result<(Bytes, Bytes)> {
        let page = page_size()?;
        let (all, touched) = self.cache.count(self.flags, self.bitmap)?;
        Ok((Bytes(all * page.0), Bytes(touched * page.0)))
    }
}

/// Returns the resident pages of a process, without hugetlb pages, which no method tracks.
pub fn tracked_ranges(pid: Pid) -> Result<Vec<ResidentRange>, ProcessError> {
    let mut ranges = resident(pid)?;
    ranges.retain(|range| range.kind != MappingKind::Hugetlb);
    Ok(ranges)
}

/// Calls `each` with batches of the frames of the pages in `ranges`.
fn each_batch(
    pid: Pid,
    ranges: &[ResidentRange],
    mut each: impl FnMut(Batch) -> io::Result<()>,
) -> Result<(), ProcessError> {
    let path = proc_path(pid, "pagemap");
    let mut read = || {
        let map = PageMap::open(pid)?;
        let mut batch = Batch::default();
        for range in ranges {
            let mut result = Ok(());
            map.each(range.begin, range.end, |address, entry| {
                // The entry of a page that was swapped out since `ranges` were read has no frame.
                if entry & PRESENT != 0 {
                    batch.add(address, Frame(entry & FRAME));
                }
                if batch.is_full() && result.is_ok() {
                    result = each(std::mem::take(&mut batch));
                }
            })?;
            result?;
        }
        each(batch)
    };
    read().map_err(|error| failure(pid, &path, error))
}

fn read_idle(
    pid: Pid,
    ranges: &[ResidentRange],
    bitmap: &IdleBitmap,
    flags: &PageFlags,
    cleared: &ClearedPages,
) -> Result<PageReading, ProcessError> {
    let page = page_size().map_err(|error| failure(pid, &proc_path(pid, "pagemap"), error))?;
    let mut pages = TouchedPages::new(page);
    let mut locked = 0;
    // First frames of the large folios with a page that was counted as touched.
    let mut counted = FxHashSet::default();
    each_batch(pid, ranges, |mut batch| {
        let folios = batch.folios(flags)?;
        let idle = bitmap.idle(folios.iter().map(|folio| folio.head))?;
        for ((address, folio), is_idle) in batch.addresses().zip(&folios).zip(idle) {
            let is_idle = is_idle.filter(|_| !cleared.unmarked.contains(&folio.head));
            let state = match is_idle {
                None => PageState::Unknown,
                Some(true) => PageState::Untouched,
                Some(false) if folio.is_large && !counted.insert(folio.head) => PageState::PartOfTouched,
                Some(false) => PageState::Touched,
            };
            locked += u64::from(folio.is_locked());
            pages.add(address, state);
        }
        Ok(())
    })?;
    Ok(PageReading { pages, locked: Some(Bytes(locked * page.0)) })
}

fn read_soft_dirty(pid: Pid, ranges: &[ResidentRange]) -> Result<PageReading, ProcessError> {
    let path = proc_path(pid, "pagemap");
    let read = || {
        let map = PageMap::open(pid)?;
        let mut pages = TouchedPages::new(map.page());
        for range in ranges {
            map.each(range.begin, range.end, |address, entry| {
                // The page was swapped out since `ranges` were read.
                if entry & PRESENT == 0 {
                    return;
                }
                // A huge page has a single soft-dirty bit.
                let is_part = range.huge && !address.0.is_multiple_of(HUGE) && address != range.begin;
                let state = match (entry & SOFT_DIRTY != 0, is_part) {
                    (false, _) => PageState::Untouched,
                    (true, false) => PageState::Touched,
                    (true, true) => PageState::PartOfTouched,
                };
                pages.add(address, state);
            })?;
        }
        Ok(PageReading { pages, locked: None })
    };
    read().map_err(|error| failure(pid, &path, error))
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Anonymous;
    use memtrace_model::{AbsAddr, PagePart};

    use super::*;

    #[test]
    fn privileged_written_pages_of_this_process_are_found() {
        if !has_soft_dirty() {
            // The tests of the kernels with soft-dirty bits run in guests.
            return;
        }
        let memory = Anonymous::new(64 * 4096);
        (0..64).for_each(|page| memory.touch(page * 4096));
        let pid = Pid(std::process::id());
        let cleared = PageTracker::Written.clear(pid).unwrap();
        memory.touch(3 * 4096);
        memory.touch(7 * 4096);
        let reading = PageTracker::Written.read(pid, &cleared).unwrap();
        let end = AbsAddr(memory.start().0 + 64 * 4096);
        assert_eq!(reading.pages.bytes(PagePart::Touched, memory.start(), end), Bytes(2 * 4096));
    }
}
