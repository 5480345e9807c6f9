//! Which pages of a process are in memory.

mod frames;

use std::io;
use std::os::fd::AsRawFd as _;

use self::frames::{Joining, Zeros};
use super::error::ProcessError;
use super::maps::{self, Entry};
use super::process::{failure, proc_path};
use crate::model::{AbsAddr, MappingKind, Pid, ResidentRange};
use crate::procfs::{
    page_map::{FILE, FRAME, PRESENT, PageMap},
    tmpfs::Tmpfs,
};

/// Addresses from here on are the kernel's: the upper half.
const KERNEL: u64 = 1 << 63;

/// So many ranges are asked for at once.
const RANGES: usize = 1024;

/// What `PAGEMAP_SCAN` (Linux 6.7) says of a page, and how it is asked (include/uapi/linux/fs.h).
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

/// The pages of `pid` that are in memory and count as its own, in order: those of zeros that the kernel lends to whoever only
/// reads do not, and neither does what is not made of pages.
///
/// # Errors
///
/// Where the process has ended, or may not be looked at.
pub(crate) fn resident(pid: Pid) -> Result<Vec<ResidentRange>, ProcessError> {
    let path = proc_path(pid, "pagemap");
    let map = PageMap::open(pid).map_err(|error| failure(pid, &path, error))?;
    let mut ranges = Vec::new();
    let tmpfs = Tmpfs::of(pid);
    let mut ways = Ways { map, can_scan: true, zeros: None };
    for entry in maps::entries(pid)? {
        let kind = tmpfs.kind_of(&entry);
        // What the kernel has mapped for everybody is nobody's.
        if entry.start.0 < KERNEL {
            ways.look(&entry, kind, &mut ranges).map_err(|error| failure(pid, &path, error))?;
        }
    }
    Ok(ranges)
}

/// Whether only pages count that the kernel keeps like those of a file. Of what it lends, some is made of such pages, as its
/// code is, and some of others, which count as nobody's; that differs between kernels.
fn counts_like_files(kind: MappingKind) -> bool {
    kind == MappingKind::Special
}

/// How pages are asked for.
struct Ways {
    map: PageMap,
    can_scan: bool,
    /// The frames of zeros, where they were looked for.
    zeros: Option<Zeros>,
}

impl Ways {
    fn look(&mut self, entry: &Entry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        if self.can_scan {
            match self.scan(entry, kind, ranges) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                    self.can_scan = false;
                }
                other => return other,
            }
        }
        self.read(entry, kind, ranges)
    }

    fn scan(&self, entry: &Entry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        let mut regions = [Region::default(); RANGES];
        let file = if counts_like_files(kind) { PAGE_IS_FILE } else { 0 };
        let mut begin = entry.start.0;
        while begin < entry.end.0 {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: begin,
                end: entry.end.0,
                regions: regions.as_mut_ptr() as u64,
                regions_length: RANGES as u64,
                category_inverted: PAGE_IS_PFNZERO,
                category_mask: PAGE_IS_PRESENT | PAGE_IS_PFNZERO | file,
                return_mask: PAGE_IS_HUGE,
                ..Scan::default()
            };
            // SAFETY: the structure is as the kernel defines it, and so are the regions, of which there are as many as it says.
            let found = unsafe { libc::ioctl(self.map.file().as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
            let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
            for region in regions.iter().take(found) {
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

    /// As kernels before 6.7 are asked: a word a page. Which pages are huge is not told; of private memory it shows.
    fn read(&mut self, entry: &Entry, kind: MappingKind, ranges: &mut Vec<ResidentRange>) -> io::Result<()> {
        let zeros = match self.zeros {
            Some(zeros) => zeros,
            None => *self.zeros.insert(Zeros::find()?),
        };
        let wanted = if counts_like_files(kind) { PRESENT | FILE } else { PRESENT };
        let is_joined = matches!(kind, MappingKind::Heap | MappingKind::Anonymous | MappingKind::Stack);
        let page = self.map.page().0;
        let mut joining = Joining::of(page);
        let mut give = |begin, end, huge| push(ranges, begin, end, kind, huge);
        self.map.each(entry.start, entry.end, |begin, word| {
            if word & wanted != wanted || zeros.have(word & FRAME) {
                return;
            }
            if is_joined {
                joining.take(begin, word & FRAME, &mut give);
            } else {
                give(begin, AbsAddr(begin.0 + page), false);
            }
        })?;
        joining.end(&mut give);
        Ok(())
    }
}

/// Adds a range, as one with the last where that is possible.
fn push(ranges: &mut Vec<ResidentRange>, begin: AbsAddr, end: AbsAddr, kind: MappingKind, huge: bool) {
    match ranges.last_mut() {
        Some(last) if last.end == begin && last.kind == kind && last.huge == huge => last.end = end,
        _ => ranges.push(ResidentRange { begin, end, kind, huge }),
    }
}

#[cfg(test)]
mod tests {
    use super::frames::HUGE;
    use super::*;
    use crate::model::PAGE;
    use crate::scratch::Anonymous;

    /// Of `pages` pages of `memory`, the numbers of those that are resident.
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
    fn privileged_pages_are_resident_when_they_are_written_to_and_not_when_they_are_read() {
        let memory = Anonymous::new(4000 * PAGE.0);
        for written in [0, 1, 7, 3999] {
            memory.touch(written * PAGE.0);
        }
        assert_eq!(memory.read(5 * PAGE.0), 0);
        assert_eq!(resident_of(&memory, 4000), [0, 1, 7, 3999]);
    }

    /// As the kernel counts it (`/proc/PID/smaps`), in the mappings of these names.
    fn rss_of(is_meant: impl Fn(&str) -> bool) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut means = false;
        let mut sum = 0;
        for line in smaps.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["Rss:", kibibytes, "kB"] if means => sum += kibibytes.parse::<u64>().unwrap() * 1024,
                [first, ..] if !first.ends_with(':') => means = is_meant(words[words.len() - 1]),
                _ => {}
            }
        }
        sum
    }

    #[test]
    fn privileged_of_what_the_kernel_lends_as_much_is_resident_as_it_counts_itself() {
        let own = Pid(std::process::id());
        // Reads from what is lent beside the code.
        let _ = std::time::Instant::now();
        let is_lent = |name: &str| ["[vvar]", "[vvar_vclock]", "[vdso]"].contains(&name);
        let counted = || rss_of(is_lent);
        // Other tests have the kernel's rings mapped, which are not lent to everybody.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let lent = maps.lines().filter(|line| line.split_whitespace().last().is_some_and(is_lent));
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let spans = lent.map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
        let spans: Vec<_> = spans.map(|(begin, end)| number(begin)..number(end)).collect();
        loop {
            let before = counted();
            let ranges = resident(own).unwrap();
            // Another test may have asked for the time meanwhile.
            if counted() == before {
                let lent = ranges.iter().filter(|range| spans.iter().any(|span| span.contains(&range.begin.0)));
                assert_eq!(lent.map(|range| range.end.0 - range.begin.0).sum::<u64>(), before);
                break;
            }
        }
    }

    /// What both ways say of the mapping that holds `memory`, which is the same.
    fn asked_both_ways(memory: &Anonymous) -> Vec<ResidentRange> {
        let pid = Pid(std::process::id());
        let entries = maps::entries(pid).unwrap();
        let entry = entries.iter().find(|entry| (entry.start..entry.end).contains(&memory.start())).unwrap();
        let mut ways = Ways { map: PageMap::open(pid).unwrap(), can_scan: true, zeros: None };
        let (mut scanned, mut read) = (Vec::new(), Vec::new());
        ways.read(entry, MappingKind::Anonymous, &mut read).unwrap();
        match ways.scan(entry, MappingKind::Anonymous, &mut scanned) {
            Ok(()) => assert_eq!(scanned, read),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY), "kernels before 6.7 do not know it"),
        }
        read
    }

    #[test]
    fn privileged_both_ways_to_ask_say_the_same() {
        let memory = Anonymous::new(64 * PAGE.0);
        for number in (0..64).step_by(3) {
            memory.touch(number * PAGE.0);
        }
        assert_eq!(memory.read(PAGE.0), 0);
        assert!(!asked_both_ways(&memory).is_empty());
    }

    #[test]
    fn privileged_both_ways_to_ask_tell_huge_pages_and_those_of_zeros() {
        let memory = Anonymous::new(4 * HUGE);
        memory.make_huge();
        let first = memory.start().0.next_multiple_of(HUGE) - memory.start().0;
        memory.touch(first + 5 * PAGE.0);
        assert_eq!(memory.read(first + HUGE), 0);
        let begin = AbsAddr(memory.start().0 + first);
        let ranges = asked_both_ways(&memory);
        let own: Vec<_> =
            ranges.iter().filter(|range| range.begin >= begin && range.begin.0 < begin.0 + 2 * HUGE).collect();
        let [range] = own[..] else { panic!("{own:?}") };
        assert_eq!((range.begin, range.end.0, range.huge), (begin, begin.0 + HUGE, true));
    }
}
