//! Resident pages of a process, with the state of each: touched or not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::method::WorkingSetMethod;
use super::page_bits::{PAGES, PageBits, position};
use crate::process::Pid;
use crate::units::{AbsAddr, Bytes};

/// State of a resident page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page was not touched.
    Untouched,
    /// The page was touched, or it is the first page of a touched huge page. A huge page has one bit for all its pages.
    Touched,
    /// The page is a further page of a touched huge page: it may have been touched.
    PartOfTouched,
    /// The kernel does not track references of the page.
    Unknown,
}

/// Selection of resident pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// All resident pages.
    Resident,
    /// Upper bound of the touched pages.
    Touched,
    /// Lower bound of the touched pages.
    CertainlyTouched,
}

/// Method and duration of the measurement of touched pages in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchWindow {
    /// Method of the measurement.
    pub method: WorkingSetMethod,
    /// Measured length of the period with counted touches.
    pub duration: Duration,
}

/// Touched pages of the processes of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedProcesses(pub BTreeMap<Pid, TouchedPages>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    resident: PageBits,
    /// Pages that may have been touched, including pages of unknown state.
    touched: PageBits,
    certain: PageBits,
}

/// Resident pages of a process at a moment, with the state of each. A region of 512 pages takes 192 bytes if it has a
/// resident page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedPages {
    page: Bytes,
    /// Regions by index: the address divided by the size of a region.
    regions: BTreeMap<u64, Region>,
}

impl TouchedPages {
    /// Returns an empty set. Pages have `page` bytes.
    #[must_use]
    pub const fn new(page: Bytes) -> Self {
        Self { page, regions: BTreeMap::new() }
    }

    /// Returns the size of a page.
    #[must_use]
    pub const fn page_size(&self) -> Bytes {
        self.page
    }

    /// Returns the number of regions with a resident page.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Adds the resident page at `address`.
    pub fn add(&mut self, address: AbsAddr, state: PageState) {
        let (number, page) = position(address, self.page);
        let region = self.regions.entry(number).or_default();
        region.resident.insert(page);
        if state != PageState::Untouched {
            region.touched.insert(page);
        }
        if state == PageState::Touched {
            region.certain.insert(page);
        }
    }

    /// Returns the state of the page at `address`: [`PageState::PartOfTouched`] for a page of unknown state, and
    /// [`PageState::Untouched`] for a page that was not resident.
    #[must_use]
    pub fn state(&self, address: AbsAddr) -> PageState {
        let (number, page) = position(address, self.page);
        match self.regions.get(&number) {
            Some(region) if region.certain.contains(page) => PageState::Touched,
            Some(region) if region.touched.contains(page) => PageState::PartOfTouched,
            _ => PageState::Untouched,
        }
    }

    /// Returns the number of bytes from `start` to `end` on the pages that `part` selects.
    #[must_use]
    pub fn bytes(&self, part: PagePart, start: AbsAddr, end: AbsAddr) -> Bytes {
        let [bytes] = self.bytes_of_parts([part], start, end);
        bytes
    }

    /// Returns the numbers of hot and cold bytes from `start` to `end`. Hot bytes are on pages that may have been
    /// touched, cold bytes on resident pages that were not touched.
    #[must_use]
    pub fn hot_and_cold(&self, start: AbsAddr, end: AbsAddr) -> (Bytes, Bytes) {
        let [hot, resident] = self.bytes_of_parts([PagePart::Touched, PagePart::Resident], start, end);
        (hot, Bytes(resident.0.saturating_sub(hot.0)))
    }

    /// Returns the number of bytes on the pages of each of `parts`, in one pass.
    fn bytes_of_parts<const N: usize>(&self, parts: [PagePart; N], start: AbsAddr, end: AbsAddr) -> [Bytes; N] {
        let size = PAGES * self.page.0.max(1);
        let mut sums = [Bytes(0); N];
        if end <= start {
            return sums;
        }
        for (number, region) in self.regions.range(start.0 / size..=(end.0 - 1) / size) {
            for (sum, part) in sums.iter_mut().zip(parts) {
                sum.0 += self.bytes_of(region.bits(part), number * size, start.0, end.0);
            }
        }
        sums
    }

    /// Returns the bytes from `start` to `end` on the pages of a region that begins at `base`.
    fn bytes_of(&self, bits: &PageBits, base: u64, start: u64, end: u64) -> u64 {
        let page = self.page.0.max(1);
        if start <= base && base.saturating_add(PAGES * page) <= end {
            return bits.count() * page;
        }
        let first = start.saturating_sub(base) / page;
        let last = ((end - 1).saturating_sub(base) / page).min(PAGES - 1);
        let pages = (first..=last).filter(|&number| bits.contains(number));
        let overlap = |number: u64| {
            let begin = base + number * page;
            (begin + page).min(end).saturating_sub(begin.max(start))
        };
        pages.map(overlap).sum()
    }
}

impl Region {
    const fn bits(&self, part: PagePart) -> &PageBits {
        match part {
            PagePart::Resident => &self.resident,
            PagePart::Touched => &self.touched,
            PagePart::CertainlyTouched => &self.certain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const REGION: u64 = PAGES * PAGE;

    #[test]
    fn bytes_on_pages_of_a_part_are_counted() {
        let mut pages = TouchedPages::new(Bytes(PAGE));
        let states = [PageState::Touched, PageState::PartOfTouched, PageState::Untouched, PageState::Unknown];
        for (number, state) in (0..).zip(states) {
            pages.add(AbsAddr(REGION + number * PAGE), state);
        }
        let bytes = |start, end| {
            [PagePart::Resident, PagePart::Touched, PagePart::CertainlyTouched]
                .map(|part| pages.bytes(part, AbsAddr(start), AbsAddr(end)).0)
        };
        assert_eq!(bytes(0, 4 * REGION), [4 * PAGE, 3 * PAGE, PAGE]);
        assert_eq!(bytes(REGION, 2 * REGION), [4 * PAGE, 3 * PAGE, PAGE]);
        assert_eq!(bytes(0, REGION), [0, 0, 0]);
        assert_eq!(bytes(REGION + 100, REGION + PAGE + 10), [PAGE - 90, PAGE - 90, PAGE - 100]);
        assert_eq!(bytes(REGION + 2 * PAGE + 8, REGION + 2 * PAGE + 24), [16, 0, 0]);
        assert_eq!(bytes(REGION, REGION), [0, 0, 0]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|number| pages.state(AbsAddr(REGION + number * PAGE + 8))),
            [states[0], states[1], states[2], PageState::PartOfTouched, PageState::Untouched]
        );
    }

    #[test]
    fn a_range_may_reach_over_several_regions() {
        let mut pages = TouchedPages::new(Bytes(PAGE));
        for number in 0..3 * PAGES {
            pages.add(AbsAddr(number * PAGE), PageState::Touched);
        }
        let touched = |start, end| pages.bytes(PagePart::Touched, AbsAddr(start), AbsAddr(end)).0;
        assert_eq!(touched(REGION - 1, 2 * REGION + 1), REGION + 2);
        assert_eq!(touched(0, u64::MAX), 3 * REGION);
    }
}
