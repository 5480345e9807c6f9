//! Detection of zero pages and huge pages by frame number, for kernels without `PAGEMAP_SCAN` (before Linux 6.7).

use std::io;
use std::ptr;

use memtrace_model::{AbsAddr, HUGE_PAGE, Pid};

use crate::procfs::pagemap::{FRAME, PageMap};

/// Size of a huge page in bytes.
pub(crate) const HUGE: u64 = HUGE_PAGE.0;

/// Frames of the zero pages that the kernel maps on a read of untouched memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZeroFrames {
    page: u64,
    /// First frame of the huge zero page; an arbitrary frame if the kernel does not use it.
    huge: u64,
    /// Number of pages in a huge page.
    pages: u64,
}

impl ZeroFrames {
    pub(crate) fn find() -> io::Result<Self> {
        let map = PageMap::open(Pid(std::process::id()))?;
        let size = map.page().0;
        Ok(Self { page: zero_frame(&map, size)?, huge: zero_frame(&map, HUGE)?, pages: HUGE / size })
    }

    pub(crate) fn contain(&self, frame: u64) -> bool {
        frame == self.page || (self.huge..self.huge + self.pages).contains(&frame)
    }
}

/// Returns the frame that the kernel maps on a read of untouched memory in a page of `size` bytes.
fn zero_frame(map: &PageMap, size: u64) -> io::Result<u64> {
    // The mapping has twice the size, so that it contains an aligned page of this size.
    let length = usize::try_from(2 * size).map_err(io::Error::other)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: creates a new mapping and changes no other.
    let all = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let begin = (all as u64).next_multiple_of(size);
    if size == HUGE {
        // SAFETY: the mapping belongs to this function, and the advice does not change its contents. Without huge pages
        // the call fails, and the kernel maps the small zero page.
        unsafe { libc::madvise(all, length, libc::MADV_HUGEPAGE) };
    }
    // SAFETY: the address lies in the readable mapping.
    let _ = unsafe { ptr::with_exposed_provenance::<u8>(begin as usize).read_volatile() };
    let mut frame = 0;
    let read = map.each(AbsAddr(begin), AbsAddr(begin + map.page().0), |_, entry| frame = entry & FRAME);
    // SAFETY: unmaps the mapping made above, which has no references.
    unsafe { libc::munmap(all, length) };
    read.map(|()| frame)
}

/// Joins contiguous pages with contiguous frames to a huge page, if the first address and the first frame are multiples
/// of its size.
#[derive(Debug)]
pub(super) struct HugePageJoiner {
    /// Size of a page in bytes.
    page: u64,
    begin: u64,
    frame: u64,
    /// Number of contiguous pages from `begin`; 0 if no huge page is pending.
    count: u64,
}

impl HugePageJoiner {
    /// Creates a joiner of pages of `page` bytes.
    pub(super) const fn new(page: u64) -> Self {
        Self { page, begin: 0, frame: 0, count: 0 }
    }

    /// Adds the page at `begin`. Pages are added in ascending order. Calls `emit` with the begin and end of each range,
    /// and true for a huge page.
    pub(super) fn add(&mut self, begin: AbsAddr, frame: u64, emit: &mut impl FnMut(AbsAddr, AbsAddr, bool)) {
        let pages = HUGE / self.page;
        if self.count > 0 && begin.0 == self.begin + self.count * self.page && frame == self.frame + self.count {
            self.count += 1;
        } else {
            self.finish(emit);
            if begin.0.is_multiple_of(HUGE) && frame.is_multiple_of(pages) && frame != 0 {
                (self.begin, self.frame, self.count) = (begin.0, frame, 1);
            } else {
                emit(begin, AbsAddr(begin.0 + self.page), false);
            }
        }
        if self.count == pages {
            emit(AbsAddr(self.begin), AbsAddr(self.begin + HUGE), true);
            self.count = 0;
        }
    }

    /// Emits the pending pages.
    pub(super) fn finish(&mut self, emit: &mut impl FnMut(AbsAddr, AbsAddr, bool)) {
        if self.count > 0 {
            emit(AbsAddr(self.begin), AbsAddr(self.begin + self.count * self.page), false);
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// Joins pages, which are pairs of page number and frame. Returns ranges of page numbers.
    fn joined(pages: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64, bool)> {
        let mut ranges = Vec::new();
        let mut emit = |begin: AbsAddr, end: AbsAddr, huge| ranges.push((begin.0 / PAGE, end.0 / PAGE, huge));
        let mut joiner = HugePageJoiner::new(PAGE);
        pages.for_each(|(page, frame)| joiner.add(AbsAddr(page * PAGE), frame, &mut emit));
        joiner.finish(&mut emit);
        ranges
    }

    #[test]
    fn contiguous_aligned_frames_form_a_huge_page() {
        let huge = |from: u64, frame: u64| (0..512).map(move |number| (from + number, frame + number));
        assert_eq!(joined(huge(1024, 512).chain([(1536, 7)])), [(1024, 1536, true), (1536, 1537, false)]);
        assert_eq!(joined(huge(1024, 512).chain(huge(1536, 1024))), [(1024, 1536, true), (1536, 2048, true)]);
        // The last page is missing; a page in between is missing; unaligned frames; hidden frames.
        assert_eq!(joined(huge(1024, 512).take(511)), [(1024, 1535, false)]);
        let gap = huge(1024, 512).filter(|(page, _)| *page != 1030);
        assert_eq!(joined(gap).first(), Some(&(1024, 1030, false)));
        assert!(joined(huge(1024, 513)).iter().all(|(_, _, huge)| !huge));
        assert!(joined((1024..1536).map(|page| (page, 0))).iter().all(|(_, _, huge)| !huge));
    }

    #[test]
    fn privileged_zero_frames_differ_from_others() {
        let zeros = ZeroFrames::find().unwrap();
        assert!(zeros.page != 0 && zeros.contain(zeros.page) && zeros.contain(zeros.huge + 511));
        assert!(!zeros.contain(zeros.page + 1) || zeros.huge <= zeros.page + 1);
    }
}
