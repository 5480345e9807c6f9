//! Resident pages of a process, from `/proc/PID/pagemap`.

mod frames;

use std::io;
use std::os::fd::AsRawFd as _;

use memtrace_model::{AbsAddr, MappingKind, Pid, ResidentRange};

use self::frames::HugePageJoiner;
pub(super) use self::frames::{HUGE, ZeroFrames};
use super::error::ProcessError;
use super::maps::{self, MapsEntry};
use super::process::{failure, proc_path};
use crate::procfs::{
    locks,
    mountinfo::Tmpfs,
    pagemap::{FILE, FRAME, PRESENT, PageMap},
};

/// Start of the kernel's half of the address space.
const KERNEL: u64 = 1 << 63;

/// Maximum number of regions that a call returns.
const RANGES: usize = 1024;

/// Page categories of `PAGEMAP_SCAN` (Linux 6.7; include/uapi/linux/fs.h).
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;
const PAGEMAP_SCAN: libc::Ioctl = libc::_IOWR::<Scan>(b'f' as u32, 16);

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl Scan {
    /// Scans pages. Returns the regions that the kernel has written.
    fn run<'regions>(&mut self, map: &PageMap, regions: &'regions mut [Region]) -> io::Result<&'regions [Region]> {
        self.size = size_of::<Self>() as u64;
        (self.regions, self.regions_length) = (regions.as_mut_ptr() as u64, regions.len() as u64);
        // SAFETY: both structures are laid out as in the kernel's header, and `regions` has the given length.
        let count = unsafe { libc::ioctl(map.file().as_raw_fd(), PAGEMAP_SCAN, &raw mut *self) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(&regions[..count.min(regions.len())])
    }
}

/// Returns true for the errors of kernels without `PAGEMAP_SCAN`.
fn cannot_scan(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL))
}

/// Number of mappings that are read at once.
const AT_ONCE: usize = 64;

/// Returns the resident pages of `pid` that count in its RSS, ordered by address. The kernel's zero pages do not count,
/// nor does memory without a `struct page`.
///
/// # Errors
///
/// Errors of reading `/proc`: the process has exited, or permission is missing.
pub fn resident(pid: Pid) -> Result<Vec<ResidentRange>, ProcessError> {
    let path = proc_path(pid, "pagemap");
    let map = PageMap::open(pid).map_err(|error| failure(pid, &path, error))?;
    let tmpfs = Tmpfs::of(pid);
    let mut reader = Reader { map, can_scan: true, zeros: None };
    let mut ranges = Vec::new();
    let entries = maps::entries(pid)?.into_iter().map(|entry| (tmpfs.kind_of(&entry), entry));
    // The vsyscall page counts in no process's RSS.
    let entries: Vec<_> = entries.filter(|(_, entry)| entry.start.0 < KERNEL).collect();
    for entries in entries.chunks(AT_ONCE) {
        let entries = entries.to_vec();
        // The kernel takes the lock of the memory map for each mapping (`do_pagemap_scan`, fs/proc/task_mmu.c). Healthy
        // processes that change their mappings often hold this lock too, so the deadline is for each part.
        let read = move || {
            for (kind, entry) in entries {
                reader.add_mapping(&entry, kind, &mut ranges)?;
            }
            Ok((reader, ranges))
        };
        (reader, ranges) = locks::read(pid, read).map_err(|error| failure(pid, &path, error))?;
    }
    Ok(ranges)
}

/// Returns the first page of a range that is resident and is not a zero page; `None` if there is no such page. Kernels without
/// `PAGEMAP_SCAN` cannot find this page, so the result is the start of the range.
pub(super) fn first_resident(map: &PageMap, start: AbsAddr, end: AbsAddr) -> io::Result<Option<AbsAddr>> {
    if start >= end {
        return Ok(None);
    }
    let mut regions = [Region::default()];
    let mut scan = Scan {
        start: start.0,
        end: end.0,
        max_pages: 1,
        category_inverted: PAGE_IS_PFNZERO,
        category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO,
        return_mask: PAGE_IS_PRESENT,
        ..Scan::default()
    };
    match scan.run(map, &mut regions) {
        Ok(regions) => Ok(regions.first().map(|region| AbsAddr(region.start))),
        Err(error) if cannot_scan(&error) => Ok(Some(start)),
        Err(error) => Err(error),
    }
}

/// Returns true if only pages of the page cache count in the RSS of a mapping. Special mappings, such as vdso and vvar,
/// consist of pages that count in this way or in no RSS, depending on the kernel.
fn counts_like_files(kind: MappingKind) -> bool {
    kind == MappingKind::Special
}

/// Reader of the page map, by `PAGEMAP_SCAN` or page by page.
struct Reader {
    map: PageMap,
    can_scan: bool,
    /// Frames of the zero pages, after the first use.
    zeros: Option<ZeroFrames>,
}

impl Reader {
    fn add_mapping(&mut self, entry: &MapsEntry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        if self.can_scan {
            match self.scan(entry, kind, ranges) {
                Err(error) if cannot_scan(&error) => self.can_scan = false,
                other => return other,
            }
        }
        self.read(entry, kind, ranges)
    }

    fn scan(&self, entry: &MapsEntry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        let mut regions = [Region::default(); RANGES];
        let file = if counts_like_files(kind) { PAGE_IS_FILE } else { 0 };
        let mut begin = entry.start.0;
        while begin < entry.end.0 {
            let mut scan = Scan {
                start: begin,
                end: entry.end.0,
                category_inverted: PAGE_IS_PFNZERO,
                category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO | file,
                return_mask: PAGE_IS_HUGE,
                ..Scan::default()
            };
            for region in scan.run(&self.map, &mut regions)? {
                let huge = region.categories & PAGE_IS_HUGE != 0;
                push(ranges, AbsAddr(region.start), AbsAddr(region.end), kind, huge);
            }
            if scan.walk_end <= begin {
                break;
            }
            begin = scan.walk_end;
        }
        Ok(())
    }

    /// Reads one word for each page, on kernels before 6.7. The words have no flag for huge pages. In private memory,
    /// huge pages are detected by their contiguous frames.
    fn read(&mut self, entry: &MapsEntry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        let zeros = match self.zeros {
            Some(zeros) => zeros,
            None => *self.zeros.insert(ZeroFrames::find()?),
        };
        let required = if counts_like_files(kind) { PRESENT | FILE } else { PRESENT };
        let is_joined = matches!(kind, MappingKind::Heap | MappingKind::Anonymous | MappingKind::Stack);
        let page = self.map.page().0;
        let mut joiner = HugePageJoiner::new(page);
        let mut emit = |begin, end, huge| push(ranges, begin, end, kind, huge);
        self.map.each(entry.start, entry.end, |begin, word| {
            if word & required != required || zeros.contain(word & FRAME) {
                return;
            }
            if is_joined {
                joiner.add(begin, word & FRAME, &mut emit);
            } else {
                emit(begin, AbsAddr(begin.0 + page), false);
            }
        })?;
        joiner.finish(&mut emit);
        Ok(())
    }
}

/// Adds a range. Merges it with the last range if possible.
fn push(ranges: &mut Vec<ResidentRange>, begin: AbsAddr, end: AbsAddr, kind: MappingKind, huge: bool) {
    match ranges.last_mut() {
        Some(last) if last.end == begin && last.kind == kind && last.huge == huge => last.end = end,
        _ => ranges.push(ResidentRange { begin, end, kind, huge }),
    }
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Anonymous;
    use memtrace_model::PAGE;

    use super::*;

    /// Returns the numbers of the resident pages among the first `pages` of `memory`.
    fn resident_of(memory: &Anonymous, pages: u64) -> Vec<u64> {
        let begin = memory.start().0;
        let ranges = resident(Pid(std::process::id())).unwrap();
        let all = ranges.iter().flat_map(|range| {
            assert!(range.begin < range.end, "{range:?}");
            (range.begin.0..range.end.0).step_by(PAGE.0 as usize)
        });
        let own = all.filter(|page| (begin..begin + pages * PAGE.0).contains(page));
        own.map(|page| (page - begin) / PAGE.0).collect()
    }

    #[test]
    fn privileged_written_pages_are_resident_read_ones_are_not() {
        let memory = Anonymous::new(4000 * PAGE.0);
        for written in [0, 1, 7, 3999] {
            memory.touch(written * PAGE.0);
        }
        assert_eq!(memory.read(5 * PAGE.0), 0);
        assert_eq!(resident_of(&memory, 4000), [0, 1, 7, 3999]);
    }

    /// Returns the RSS of the mappings with matching names, from `/proc/self/smaps`.
    fn rss_of(matches: impl Fn(&str) -> bool) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_matching = false;
        let mut sum = 0;
        for line in smaps.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["Rss:", kibibytes, "kB"] if is_matching => sum += kibibytes.parse::<u64>().unwrap() * 1024,
                [first, ..] if !first.ends_with(':') => is_matching = matches(words[words.len() - 1]),
                _ => {}
            }
        }
        sum
    }

    #[test]
    fn privileged_special_mappings_have_the_rss_of_smaps() {
        let own = Pid(std::process::id());
        // This call touches vvar.
        let _ = std::time::Instant::now();
        let is_special = |name: &str| ["[vvar]", "[vvar_vclock]", "[vdso]"].contains(&name);
        let counted = || rss_of(is_special);
        // Other tests map perf rings, which are special mappings too.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let special = maps.lines().filter(|line| line.split_whitespace().last().is_some_and(is_special));
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let spans = special.map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
        let spans: Vec<_> = spans.map(|(begin, end)| number(begin)..number(end)).collect();
        loop {
            let before = counted();
            let ranges = resident(own).unwrap();
            // Another test may have read the clock between the two calls.
            if counted() == before {
                let special = ranges.iter().filter(|range| spans.iter().any(|span| span.contains(&range.begin.0)));
                assert_eq!(special.map(|range| range.end.0 - range.begin.0).sum::<u64>(), before);
                break;
            }
        }
    }

    /// Reads the mapping of `memory` by `PAGEMAP_SCAN` and page by page, and asserts equal results.
    fn read_both_ways(memory: &Anonymous) -> Vec<ResidentRange> {
        let pid = Pid(std::process::id());
        let entries = maps::entries(pid).unwrap();
        let entry = entries.iter().find(|entry| (entry.start..entry.end).contains(&memory.start())).unwrap();
        let mut reader = Reader { map: PageMap::open(pid).unwrap(), can_scan: true, zeros: None };
        let (mut scanned, mut read) = (Vec::new(), Vec::new());
        reader.read(entry, MappingKind::Anonymous, &mut read).unwrap();
        match reader.scan(entry, MappingKind::Anonymous, &mut scanned) {
            Ok(()) => assert_eq!(scanned, read),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY), "kernels before 6.7 lack PAGEMAP_SCAN"),
        }
        read
    }

    #[test]
    fn privileged_scan_and_page_map_agree() {
        let memory = Anonymous::new(64 * PAGE.0);
        for number in (0..64).step_by(3) {
            memory.touch(number * PAGE.0);
        }
        assert_eq!(memory.read(PAGE.0), 0);
        assert!(!read_both_ways(&memory).is_empty());
    }

    #[test]
    fn first_resident_page_is_no_zero_page() {
        let memory = Anonymous::new(64 * PAGE.0);
        let page = |number: u64| AbsAddr(memory.start().0 + number * PAGE.0);
        memory.touch(7 * PAGE.0);
        memory.touch(9 * PAGE.0);
        assert_eq!(memory.read(3 * PAGE.0), 0);
        let map = PageMap::open(Pid(std::process::id())).unwrap();
        let first = |start, end| first_resident(&map, page(start), page(end)).unwrap();
        if first(10, 64).is_some() {
            // Kernels before 6.7 cannot look for it.
            assert_eq!([first(0, 64), first(10, 64)], [Some(page(0)), Some(page(10))]);
        } else {
            assert_eq!([first(0, 64), first(8, 64), first(9, 10)], [Some(page(7)), Some(page(9)), Some(page(9))]);
            assert_eq!([first(0, 7), first(8, 9)], [None, None]);
        }
        assert_eq!(first(5, 5), None);
    }

    #[test]
    fn privileged_scan_and_page_map_detect_huge_and_zero_pages() {
        let memory = Anonymous::new(4 * HUGE);
        memory.make_huge();
        let first = memory.start().0.next_multiple_of(HUGE) - memory.start().0;
        memory.touch(first + 5 * PAGE.0);
        assert_eq!(memory.read(first + HUGE), 0);
        let begin = AbsAddr(memory.start().0 + first);
        let ranges = read_both_ways(&memory);
        let own: Vec<_> =
            ranges.iter().filter(|range| range.begin >= begin && range.begin.0 < begin.0 + 2 * HUGE).collect();
        let [range] = own[..] else { panic!("{own:?}") };
        assert_eq!((range.begin, range.end.0, range.huge), (begin, begin.0 + HUGE, true));
    }
}
