//! What frames tell of pages, for kernels that do not tell it themselves (before `PAGEMAP_SCAN`, Linux 6.7).

use std::io;
use std::ptr;

use crate::model::{AbsAddr, Pid};
use crate::procfs::page_map::{FRAME, PageMap};

/// The size of a huge page.
pub(crate) const HUGE: u64 = 1 << 21;

/// The frames of the pages of zeros that whoever only reads new memory is lent, as this process is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeros {
    page: u64,
    /// The first one of the huge page's; another's where none is lent.
    huge: u64,
    /// How many a huge page has.
    pages: u64,
}

impl Zeros {
    pub(crate) fn find() -> io::Result<Self> {
        let map = PageMap::open(Pid(std::process::id()))?;
        let size = map.page().0;
        Ok(Self { page: frame_lent(&map, size)?, huge: frame_lent(&map, HUGE)?, pages: HUGE / size })
    }

    pub(crate) fn have(&self, frame: u64) -> bool {
        frame == self.page || (self.huge..self.huge + self.pages).contains(&frame)
    }
}

/// The frame that one who reads memory of a page of `size` is lent. It is still lent, or given back and nobody's zeros, when
/// this returns.
fn frame_lent(map: &PageMap, size: u64) -> io::Result<u64> {
    // Somewhere in it begins a page of this size.
    let length = usize::try_from(2 * size).map_err(io::Error::other)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which is nobody else's.
    let all = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let begin = (all as u64).next_multiple_of(size);
    if size == HUGE {
        // SAFETY: the mapping is this function's, and the advice changes nothing that is read. Where there are no huge pages
        // it fails, and the frame is that of a small one.
        unsafe { libc::madvise(all, length, libc::MADV_HUGEPAGE) };
    }
    // SAFETY: the address lies in the mapping, which may be read.
    let _ = unsafe { ptr::with_exposed_provenance::<u8>(begin as usize).read_volatile() };
    let mut frame = 0;
    let read = map.each(AbsAddr(begin), AbsAddr(begin + map.page().0), |_, entry| frame = entry & FRAME);
    // SAFETY: what was mapped above, and nothing points into it.
    unsafe { libc::munmap(all, length) };
    read.map(|()| frame)
}

/// Joins pages whose frames follow one another as a huge page's do: both begin where huge pages do.
#[derive(Debug)]
pub(crate) struct Joining {
    /// The size of a page.
    page: u64,
    begin: u64,
    frame: u64,
    /// How many pages have followed since; 0: none is waited for.
    count: u64,
}

impl Joining {
    /// Of pages of `page` bytes.
    pub(crate) const fn of(page: u64) -> Self {
        Self { page, begin: 0, frame: 0, count: 0 }
    }

    /// Takes the page at `begin`, after all those below it; `give` takes ranges, and whether they are huge pages.
    pub(crate) fn take(&mut self, begin: AbsAddr, frame: u64, give: &mut impl FnMut(AbsAddr, AbsAddr, bool)) {
        let pages = HUGE / self.page;
        if self.count > 0 && begin.0 == self.begin + self.count * self.page && frame == self.frame + self.count {
            self.count += 1;
        } else {
            self.end(give);
            if begin.0.is_multiple_of(HUGE) && frame.is_multiple_of(pages) && frame != 0 {
                (self.begin, self.frame, self.count) = (begin.0, frame, 1);
            } else {
                give(begin, AbsAddr(begin.0 + self.page), false);
            }
        }
        if self.count == pages {
            give(AbsAddr(self.begin), AbsAddr(self.begin + HUGE), true);
            self.count = 0;
        }
    }

    /// There are no more.
    pub(crate) fn end(&mut self, give: &mut impl FnMut(AbsAddr, AbsAddr, bool)) {
        if self.count > 0 {
            give(AbsAddr(self.begin), AbsAddr(self.begin + self.count * self.page), false);
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// The ranges, in pages, that come of pages at these addresses, in pages, with these frames.
    fn joined(pages: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64, bool)> {
        let mut ranges = Vec::new();
        let mut give = |begin: AbsAddr, end: AbsAddr, huge| ranges.push((begin.0 / PAGE, end.0 / PAGE, huge));
        let mut joining = Joining::of(PAGE);
        pages.for_each(|(page, frame)| joining.take(AbsAddr(page * PAGE), frame, &mut give));
        joining.end(&mut give);
        ranges
    }

    #[test]
    fn pages_that_lie_as_a_huge_pages_do_are_one() {
        let huge = |from: u64, frame: u64| (0..512).map(move |number| (from + number, frame + number));
        assert_eq!(joined(huge(1024, 512).chain([(1536, 7)])), [(1024, 1536, true), (1536, 1537, false)]);
        assert_eq!(joined(huge(1024, 512).chain(huge(1536, 1024))), [(1024, 1536, true), (1536, 2048, true)]);
        // One page short, in memory or in frames; frames that begin elsewhere; and where frames are not told.
        assert_eq!(joined(huge(1024, 512).take(511)), [(1024, 1535, false)]);
        let gap = huge(1024, 512).filter(|(page, _)| *page != 1030);
        assert_eq!(joined(gap).first(), Some(&(1024, 1030, false)));
        assert!(joined(huge(1024, 513)).iter().all(|(_, _, huge)| !huge));
        assert!(joined((1024..1536).map(|page| (page, 0))).iter().all(|(_, _, huge)| !huge));
    }

    #[test]
    fn privileged_zeros_are_told_from_other_frames() {
        let zeros = Zeros::find().unwrap();
        assert!(zeros.page != 0 && zeros.have(zeros.page) && zeros.have(zeros.huge + 511));
        assert!(!zeros.have(zeros.page + 1) || zeros.huge <= zeros.page + 1);
    }
}
