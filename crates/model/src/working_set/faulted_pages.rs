//! Pages of processes that had a page fault.

use rustc_hash::FxHashMap;

use super::page_bits::{PageBits, position};
use super::touched_pages::{PageState, TouchedPages};
use crate::memory::ResidentRange;
use crate::process::Pid;
use crate::units::{AbsAddr, Bytes};

/// Maximum number of regions with a page fault. They cover 2 TiB of small pages, and take about 100 MB of memory.
const MAX_REGIONS: usize = 1 << 20;

/// Pages of processes that had a page fault since [`Self::clear`] was called for the process.
#[derive(Debug)]
pub struct FaultedPages {
    page: Bytes,
    /// Faulted pages by process and index of the region.
    processes: FxHashMap<Pid, FxHashMap<u64, PageBits>>,
    /// Number of regions of all processes, at most `max_regions`.
    regions: usize,
    max_regions: usize,
    faults: u64,
    lost: u64,
}

impl FaultedPages {
    /// Returns an empty set. Pages have `page` bytes.
    #[must_use]
    pub fn new(page: Bytes) -> Self {
        Self { page, processes: FxHashMap::default(), regions: 0, max_regions: MAX_REGIONS, faults: 0, lost: 0 }
    }

    /// Starts to count the page faults of a process, and forgets its earlier page faults.
    pub fn clear(&mut self, pid: Pid) {
        self.forget(pid);
        self.processes.insert(pid, FxHashMap::default());
    }

    /// Forgets the pages of a counted process, because exec has replaced its address space.
    pub fn exec(&mut self, pid: Pid) {
        if self.processes.contains_key(&pid) {
            self.clear(pid);
        }
    }

    /// Forgets a process and its pages.
    pub fn forget(&mut self, pid: Pid) {
        self.regions -= self.processes.remove(&pid).map_or(0, |regions| regions.len());
    }

    /// Adds a page fault, unless the process was never cleared.
    pub fn add(&mut self, pid: Pid, address: AbsAddr) {
        let Some(regions) = self.processes.get_mut(&pid) else { return };
        let (number, page) = position(address, self.page);
        self.faults += 1;
        if let Some(region) = regions.get_mut(&number) {
            region.insert(page);
        } else if self.regions < self.max_regions {
            regions.entry(number).or_default().insert(page);
            self.regions += 1;
        } else {
            self.lost += 1;
        }
    }

    /// Returns the number of page faults so far, of all processes.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.faults
    }

    /// Returns the number of page faults that were lost because there are too many regions.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the resident pages of a process. Pages with a page fault are touched. The other pages of a huge page may
    /// have been touched without a further fault, so they are [`PageState::PartOfTouched`].
    #[must_use]
    pub fn touched(&self, pid: Pid, resident: &[ResidentRange]) -> TouchedPages {
        let mut pages = TouchedPages::new(self.page);
        let none = FxHashMap::default();
        let regions = self.processes.get(&pid).unwrap_or(&none);
        for range in resident {
            let mut address = range.begin;
            while address < range.end {
                let (number, page) = position(address, self.page);
                let state = match regions.get(&number) {
                    Some(region) if region.contains(page) => PageState::Touched,
                    Some(_) if range.huge => PageState::PartOfTouched,
                    _ => PageState::Untouched,
                };
                pages.add(address, state);
                address.0 += self.page.0.max(1);
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::super::page_bits::PAGES;
    use super::*;
    use crate::{MappingKind, PagePart};

    const PAGE: u64 = 4096;
    const HUGE: u64 = PAGES * PAGE;

    fn range(begin: u64, end: u64, huge: bool) -> ResidentRange {
        ResidentRange { begin: AbsAddr(begin), end: AbsAddr(end), kind: MappingKind::Anonymous, huge }
    }

    fn sums(pages: &TouchedPages) -> [u64; 3] {
        [PagePart::Resident, PagePart::Touched, PagePart::CertainlyTouched]
            .map(|part| pages.bytes(part, AbsAddr(0), AbsAddr(u64::MAX)).0 / PAGE)
    }

    #[test]
    fn resident_pages_with_a_fault_are_touched() {
        let mut pages = FaultedPages::new(Bytes(PAGE));
        pages.clear(Pid(7));
        // The same page twice, another one, a page that is not resident, and a page of a process that is not measured.
        for (pid, address) in [(7, HUGE), (7, HUGE + 8), (7, HUGE + 2 * PAGE), (7, 9 * HUGE), (8, HUGE + PAGE)] {
            pages.add(Pid(pid), AbsAddr(address));
        }
        let resident = [range(HUGE, HUGE + 4 * PAGE, false)];
        assert_eq!(sums(&pages.touched(Pid(7), &resident)), [4, 2, 2]);
        assert_eq!(sums(&pages.touched(Pid(8), &resident)), [4, 0, 0]);
        assert_eq!((pages.faults(), pages.lost()), (4, 0));
        pages.exec(Pid(7));
        pages.exec(Pid(8));
        pages.add(Pid(7), AbsAddr(HUGE + 3 * PAGE));
        assert_eq!(sums(&pages.touched(Pid(7), &resident)), [4, 1, 1]);
    }

    #[test]
    fn a_fault_in_a_huge_page_may_touch_all_of_it() {
        let mut pages = FaultedPages::new(Bytes(PAGE));
        pages.clear(Pid(7));
        pages.add(Pid(7), AbsAddr(2 * HUGE + 5 * PAGE));
        let resident = [range(HUGE, 3 * HUGE, true)];
        assert_eq!(sums(&pages.touched(Pid(7), &resident)), [1024, 512, 1]);
    }

    #[test]
    fn pages_without_room_are_counted() {
        let mut pages = FaultedPages { max_regions: 2, ..FaultedPages::new(Bytes(PAGE)) };
        pages.clear(Pid(7));
        (0..4).for_each(|region| pages.add(Pid(7), AbsAddr(region * HUGE)));
        pages.add(Pid(7), AbsAddr(PAGE));
        assert_eq!((pages.faults(), pages.lost()), (5, 2));
        // After `clear`, there is room again.
        pages.clear(Pid(7));
        pages.clear(Pid(8));
        pages.add(Pid(8), AbsAddr(0));
        pages.forget(Pid(7));
        pages.forget(Pid(8));
        pages.clear(Pid(7));
        (0..2).for_each(|region| pages.add(Pid(7), AbsAddr(region * HUGE)));
        assert_eq!(pages.lost(), 2);
    }
}
