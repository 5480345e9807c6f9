//! Which pages of a process are resident: `/proc/PID/pagemap`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::model::{AbsAddr, Bytes, Pid};
use crate::procfs::process::proc_path;

/// Bits of an entry of `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst), 8 bytes a page.
pub(crate) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It is one of a file, or is kept like one.
pub(crate) const FILE: u64 = 1 << 61;
/// Of a page that is present, the number of its frame, for who may know it.
pub(crate) const FRAME: u64 = (1 << 55) - 1;
const ENTRY: usize = 8;

/// So many pages are asked for at once.
const AT_ONCE: u64 = 8192;

/// No more than this is looked into at once: with pages of 4 KiB, a bit each, it takes 8 MiB.
const MOST: u64 = 256 << 30;

/// The page map of a process.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: File,
    page: Bytes,
}

/// Which pages of a range were resident at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residence {
    /// The first page's address.
    start: AbsAddr,
    page: Bytes,
    /// A bit a page, the lowest first.
    present: Vec<u64>,
    /// How many pages of the range are swapped out.
    pub(crate) swapped: u64,
}

impl PageMap {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { file: File::open(proc_path(pid, "pagemap"))?, page: page_size()? })
    }

    /// How large a page is.
    pub(crate) const fn page(&self) -> Bytes {
        self.page
    }

    /// The map, open.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Gives the entry of each page that lies in a range whose ends are multiples of the page size to `take`, with its
    /// address.
    pub(crate) fn each(&self, start: AbsAddr, end: AbsAddr, mut take: impl FnMut(AbsAddr, u64)) -> io::Result<()> {
        let behind = end.0 / self.page.0;
        let mut entries = Vec::new();
        let mut page = start.0 / self.page.0;
        while page < behind {
            let count = usize::try_from((behind - page).min(AT_ONCE)).map_err(io::Error::other)?;
            entries.resize(count * ENTRY, 0);
            self.file.read_exact_at(&mut entries, page * ENTRY as u64)?;
            let (words, _) = entries.as_chunks::<ENTRY>();
            for (page, entry) in (page..).zip(words) {
                take(AbsAddr(page * self.page.0), u64::from_ne_bytes(*entry));
            }
            page += count as u64;
        }
        Ok(())
    }

    /// Looks at the pages that lie in a range whose ends are multiples of the page size.
    pub(crate) fn residence(&self, start: AbsAddr, end: AbsAddr) -> io::Result<Residence> {
        if end.0.saturating_sub(start.0) > MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut residence = Residence { start, page: self.page, ..Residence::default() };
        self.each(start, end, |page, entry| residence.note((page.0 - start.0) / self.page.0, entry))?;
        Ok(residence)
    }
}

/// The size of a page.
pub(crate) fn page_size() -> io::Result<Bytes> {
    // SAFETY: sysconf takes a number and gives one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).map(Bytes).map_err(io::Error::other)
}

impl Residence {
    fn note(&mut self, page: u64, entry: u64) {
        let Ok(word) = usize::try_from(page / 64) else { return };
        if word >= self.present.len() {
            self.present.resize(word + 1, 0);
        }
        if entry & PRESENT != 0 {
            self.present[word] |= 1 << (page % 64);
        }
        self.swapped += u64::from(entry & SWAPPED != 0);
    }

    /// Whether the page that holds `address` is resident.
    pub(crate) fn is_present(&self, address: AbsAddr) -> bool {
        self.page_of(address).is_some_and(|page| self.has(page))
    }

    /// How many bytes from `start` to `end` lie on resident pages.
    pub(crate) fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
        let mut sum = 0;
        let mut at = start.0;
        while at < end.0 {
            let next = (at - at % self.page.0).saturating_add(self.page.0).min(end.0);
            if self.is_present(AbsAddr(at)) {
                sum += next - at;
            }
            at = next;
        }
        Bytes(sum)
    }

    /// How many bytes from the page of `address` on are resident without a gap, `most` at most.
    pub(crate) fn run(&self, address: AbsAddr, most: Bytes) -> Bytes {
        let pages = self.page_of(address).map_or(0, |first| {
            (first..)
                .take(usize::try_from(most.0 / self.page.0).unwrap_or(0))
                .take_while(|page| self.has(*page))
                .count()
        });
        Bytes(pages as u64 * self.page.0)
    }

    /// The addresses of all resident pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = AbsAddr> {
        let all = 0..self.present.len() as u64 * 64;
        all.filter(|page| self.has(*page)).map(|page| AbsAddr(self.start.0 + page * self.page.0))
    }

    /// The address at which the page of `address` begins.
    pub(crate) fn page_start(&self, address: AbsAddr) -> Option<AbsAddr> {
        Some(AbsAddr(self.start.0 + self.page_of(address)? * self.page.0))
    }

    fn page_of(&self, address: AbsAddr) -> Option<u64> {
        address.0.checked_sub(self.start.0)?.checked_div(self.page.0)
    }

    fn has(&self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|word| self.present.get(word));
        word.is_some_and(|word| word & 1 << (page % 64) != 0)
    }

    /// As [`PageMap::residence`] would say it of pages of 4 KiB.
    #[cfg(test)]
    pub(crate) fn of(start: u64, present: &[bool]) -> Self {
        let mut residence = Self { start: AbsAddr(start), page: Bytes(4096), ..Self::default() };
        for (page, present) in present.iter().enumerate() {
            residence.note(page as u64, if *present { PRESENT } else { SWAPPED });
        }
        residence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Anonymous;

    #[test]
    fn bytes_are_counted_on_resident_pages_alone() {
        let residence = Residence::of(0x10000, &[true, false, true, true]);
        let resident = |start, end| residence.resident(AbsAddr(start), AbsAddr(end)).0;
        assert_eq!(resident(0x10000, 0x14000), 0x3000);
        assert_eq!(resident(0x10ff0, 0x12010), 0x20);
        assert_eq!(resident(0x11000, 0x12000), 0);
        assert_eq!(resident(0x13ff8, 0x15000), 8, "nothing is known behind the range");
        assert_eq!(resident(0xf000, 0x10010), 0x10, "nor before it");
        assert_eq!(residence.swapped, 1);
        assert_eq!(residence.run(AbsAddr(0x12008), Bytes(1 << 20)), Bytes(0x2000));
        assert_eq!(residence.run(AbsAddr(0x12000), Bytes(0x1000)), Bytes(0x1000));
        assert_eq!(residence.run(AbsAddr(0x11000), Bytes(1 << 20)), Bytes(0));
        assert_eq!(residence.pages().map(|page| page.0).collect::<Vec<_>>(), [0x10000, 0x12000, 0x13000]);
    }

    #[test]
    fn ones_own_pages_are_resident_once_they_were_written_to() {
        let page = page_size().unwrap().0;
        let memory = Anonymous::new(70 * page);
        let (start, end) = (memory.start(), AbsAddr(memory.start().0 + 70 * page));
        for touched in [3, 64, 69] {
            memory.touch(touched * page);
        }
        let residence = PageMap::open(Pid(std::process::id())).unwrap().residence(start, end).unwrap();
        let expected = [3, 64, 69].map(|touched| AbsAddr(start.0 + touched * page));
        assert_eq!(residence.pages().collect::<Vec<_>>(), expected);
        assert_eq!((residence.resident(start, end), residence.swapped), (Bytes(3 * page), 0));
    }

    #[test]
    fn more_than_can_be_kept_is_refused() {
        let map = PageMap::open(Pid(std::process::id())).unwrap();
        assert!(map.residence(AbsAddr(0), AbsAddr(MOST + 4096)).is_err());
    }
}
