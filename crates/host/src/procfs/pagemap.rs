//! Reader of `/proc/PID/pagemap`: resident pages of an address range.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use memtrace_model::{AbsAddr, Bytes, Pid};

use crate::procfs::process::proc_path;
use crate::procfs::{kernel_files, locks};

/// The page is resident. Bit of the 8-byte entry of a page (Documentation/admin-guide/mm/pagemap.rst).
pub(super) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page was written since the bits were cleared, or its mapping was made since then.
pub(super) const SOFT_DIRTY: u64 = 1 << 55;
/// The page is mapped only once on the whole machine (`PM_MMAP_EXCLUSIVE`, fs/proc/task_mmu.c).
pub(super) const MAPPED_ONCE: u64 = 1 << 56;
/// The page belongs to a file or to shared memory.
pub(super) const FILE: u64 = 1 << 61;
/// Mask of the frame number of a resident page. The number is 0 without CAP_SYS_ADMIN.
pub(super) const FRAME: u64 = (1 << 55) - 1;
const ENTRY: usize = 8;

/// Maximum number of entries of a read.
const AT_ONCE: u64 = 8192;

/// Number of entries that [`PageMap::are_mapped_once`] reads at once.
const WINDOW: usize = 512;

/// Maximum size of a range in bytes. With one bit for each page of 4 KiB, the result takes 8 MiB.
const MAX_RANGE: u64 = 256 << 30;

/// Page map of a process.
#[derive(Clone, Debug)]
pub struct PageMap {
    pid: Pid,
    file: Arc<File>,
    page: Bytes,
}

/// Resident pages of a range at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentPages {
    /// Address of the first page.
    start: AbsAddr,
    page: Bytes,
    /// One bit per page, lowest first.
    present: Vec<u64>,
    /// Number of swapped out pages.
    pub swapped: u64,
}

impl PageMap {
    pub fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, file: kernel_files::open(proc_path(pid, "pagemap"))?.into(), page: page_size()? })
    }

    /// Returns the page size.
    pub const fn page(&self) -> Bytes {
        self.page
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Calls `visit` with the address and the entry of each page in a page-aligned range.
    pub fn each(&self, start: AbsAddr, end: AbsAddr, mut visit: impl FnMut(AbsAddr, u64)) -> io::Result<()> {
        let end_page = end.0 / self.page.0;
        let mut entries = Vec::new();
        let mut page = start.0 / self.page.0;
        while page < end_page {
            let count = usize::try_from((end_page - page).min(AT_ONCE)).map_err(io::Error::other)?;
            entries.resize(count * ENTRY, 0);
            // The kernel takes the lock of the memory map (`pagemap_read`, fs/proc/task_mmu.c).
            let file = Arc::clone(&self.file);
            entries =
                locks::read(self.pid, move || file.read_exact_at(&mut entries, page * ENTRY as u64).map(|()| entries))?;
            let (words, _) = entries.as_chunks::<ENTRY>();
            for (page, entry) in (page..).zip(words) {
                visit(AbsAddr(page * self.page.0), u64::from_ne_bytes(*entry));
            }
            page += count as u64;
        }
        Ok(())
    }

    /// Returns true for each place if the `length` bytes from there on are in one page that only this process has mapped. The
    /// caller must read in [`locks::read`].
    pub(super) fn are_mapped_once(&self, places: &[AbsAddr], length: u64) -> io::Result<Vec<bool>> {
        let (size, mut first, mut entries) = (self.page.0, 0, Vec::new());
        let mut is_mapped_once = Vec::with_capacity(places.len());
        for place in places {
            let page = place.0 / size;
            if !(first..first + (entries.len() / ENTRY) as u64).contains(&page) {
                first = page;
                entries.resize(WINDOW * ENTRY, 0);
                // There are no entries above the end of the address space.
                let read = self.file.read_at(&mut entries, page.saturating_mul(ENTRY as u64))?;
                entries.truncate(read);
            }
            let at = usize::try_from(page - first).map_err(io::Error::other)? * ENTRY;
            let entry = entries.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |entry| u64::from_ne_bytes(*entry));
            let is_in_page = place.0 % size + length <= size;
            is_mapped_once.push(is_in_page && entry & (PRESENT | MAPPED_ONCE) == PRESENT | MAPPED_ONCE);
        }
        Ok(is_mapped_once)
    }

    /// Reads the resident pages of a page-aligned range.
    pub fn residence(&self, start: AbsAddr, end: AbsAddr) -> io::Result<ResidentPages> {
        if end.0.saturating_sub(start.0) > MAX_RANGE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut residence = ResidentPages { start, page: self.page, ..ResidentPages::default() };
        self.each(start, end, |page, entry| residence.note((page.0 - start.0) / self.page.0, entry))?;
        Ok(residence)
    }
}

/// Returns the entry of a page that this process has just written.
pub(super) fn own_entry() -> io::Result<u64> {
    let written = Box::new(1_u8);
    let address = std::hint::black_box(&raw const *written) as u64;
    let map = PageMap::open(Pid(std::process::id()))?;
    let start = address - address % map.page().0;
    let mut own = 0;
    map.each(AbsAddr(start), AbsAddr(start + map.page().0), |_, entry| own = entry)?;
    Ok(own)
}

/// Returns the page size.
pub fn page_size() -> io::Result<Bytes> {
    // SAFETY: sysconf takes and returns an integer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).map(Bytes).map_err(io::Error::other)
}

impl ResidentPages {
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

    /// Returns true if the page that contains `address` is resident.
    pub(crate) fn is_present(&self, address: AbsAddr) -> bool {
        self.page_of(address).is_some_and(|page| self.has(page))
    }

    /// Returns the number of bytes from `start` to `end` that are on resident pages.
    pub fn resident(&self, start: AbsAddr, end: AbsAddr) -> Bytes {
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

    /// Returns the number of contiguous resident bytes from the start of the page of `address`, at most `most`.
    pub fn run(&self, address: AbsAddr, most: Bytes) -> Bytes {
        let pages = self.page_of(address).map_or(0, |first| {
            (first..)
                .take(usize::try_from(most.0 / self.page.0).unwrap_or(0))
                .take_while(|page| self.has(*page))
                .count()
        });
        Bytes(pages as u64 * self.page.0)
    }

    /// Returns the addresses of the resident pages.
    pub fn pages(&self) -> impl Iterator<Item = AbsAddr> {
        let all = 0..self.present.len() as u64 * 64;
        all.filter(|page| self.has(*page)).map(|page| AbsAddr(self.start.0 + page * self.page.0))
    }

    /// Returns the start of the page that contains `address`.
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

    /// Creates a range of 4 KiB pages. Pages that are not `present` are swapped out.
    #[cfg(test)]
    pub fn of(start: u64, present: &[bool]) -> Self {
        let mut residence = Self { start: AbsAddr(start), page: Bytes(4096), ..Self::default() };
        for (page, present) in present.iter().enumerate() {
            residence.note(page as u64, if *present { PRESENT } else { SWAPPED });
        }
        residence
    }
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Anonymous;

    use super::*;

    #[test]
    fn only_bytes_on_resident_pages_count() {
        let residence = ResidentPages::of(0x10000, &[true, false, true, true]);
        let resident = |start, end| residence.resident(AbsAddr(start), AbsAddr(end)).0;
        assert_eq!(resident(0x10000, 0x14000), 0x3000);
        assert_eq!(resident(0x10ff0, 0x12010), 0x20);
        assert_eq!(resident(0x11000, 0x12000), 0);
        assert_eq!(resident(0x13ff8, 0x15000), 8, "no page after the range");
        assert_eq!(resident(0xf000, 0x10010), 0x10, "no page before the range");
        assert_eq!(residence.swapped, 1);
        assert_eq!(residence.run(AbsAddr(0x12008), Bytes(1 << 20)), Bytes(0x2000));
        assert_eq!(residence.run(AbsAddr(0x12000), Bytes(0x1000)), Bytes(0x1000));
        assert_eq!(residence.run(AbsAddr(0x11000), Bytes(1 << 20)), Bytes(0));
        assert_eq!(residence.pages().map(|page| page.0).collect::<Vec<_>>(), [0x10000, 0x12000, 0x13000]);
    }

    #[test]
    fn written_pages_of_this_process_are_resident() {
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
    fn places_in_one_resident_page_of_one_process_are_found() {
        let page = page_size().unwrap().0;
        let memory = Anonymous::new(2000 * page);
        (0..2000).filter(|touched| touched % 3 > 0).for_each(|touched| memory.touch(touched * page));
        let map = PageMap::open(Pid(std::process::id())).unwrap();
        let place = |offset| AbsAddr(memory.start().0 + offset);
        let places = [page, 1999 * page, 2 * page - 16, 2 * page - 8, 3 * page, 1000 * page + 8].map(place);
        let found = map.are_mapped_once(&places, 16).unwrap();
        assert_eq!(found, [true, true, true, false, false, true]);
        assert_eq!(map.are_mapped_once(&[AbsAddr(u64::MAX), AbsAddr(8)], 16).unwrap(), [false, false]);
    }

    #[test]
    fn a_range_beyond_the_limit_is_an_error() {
        let map = PageMap::open(Pid(std::process::id())).unwrap();
        assert!(map.residence(AbsAddr(0), AbsAddr(MAX_RANGE + 4096)).is_err());
    }
}
