use std::sync::atomic::{AtomicBool, Ordering};

use harness::fixtures::Anonymous;
use memtrace_model::PAGE;

use super::*;

fn parse(line: &str) -> Option<MapsEntry> {
    MapsEntry::parse(line.as_bytes())
}

#[test]
fn all_fields_are_parsed() {
    let line = "7f0000001000-7f0000003000 r-xp 00026000 fd:1f 1234                       /usr/lib/a b (deleted)";
    let expected = MapsEntry {
        start: AbsAddr(0x7f00_0000_1000),
        end: AbsAddr(0x7f00_0000_3000),
        readable: true,
        writable: false,
        executable: true,
        shared: false,
        offset: FileOffset(0x26000),
        file: Some(Inode { device: libc::makedev(0xfd, 0x1f), inode: 1234 }),
        path: "/usr/lib/a b (deleted)".into(),
    };
    assert_eq!(parse(line), Some(expected));
}

#[test]
fn anonymous_memory_has_no_file() {
    let entry = parse("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]").unwrap();
    assert_eq!((entry.file, entry.executable, entry.path.to_str()), (None, false, Some("[stack]")));
    let entry = parse("7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ").unwrap();
    assert_eq!((entry.file, entry.executable, entry.path.to_str()), (None, true, Some("")));
}

#[test]
fn newlines_in_paths_are_restored_and_backslashes_stay() {
    let entry = parse(r"1000-2000 r-xp 00000000 08:01 7 /a\012b\0c\").unwrap();
    assert_eq!(entry.path.to_str(), Some("/a\nb\\0c\\"));
}

#[test]
fn malformed_lines_are_skipped() {
    for line in ["", "x", "1000 r-xp 0 0:0 0", "1000-2000 r-xp 0 00 0", "1000-2000 r-xp 0 0:0 x", "z-2000 r-xp 0 0:0 1"]
    {
        assert_eq!(parse(line), None, "{line}");
    }
}

/// Adds VMAs with these ranges one after the other, and returns the ranges of the list. Ranges are hexadecimal.
fn ordered(ranges: &[&str]) -> Vec<String> {
    let mut entries = Vec::new();
    for range in ranges {
        push_in_order(&mut entries, parse(&format!("{range} rw-p 00000000 00:00 0 ")).unwrap(), |entry| entry);
    }
    entries.iter().map(|entry| format!("{:x}-{:x}", entry.start.0, entry.end.0)).collect()
}

#[test]
fn a_vma_that_is_listed_again_replaces_its_first_entry() {
    assert_eq!(ordered(&["1000-2000", "3000-4000", "3000-5000"]), ["1000-2000", "3000-5000"], "grown");
    assert_eq!(ordered(&["1000-2000", "3000-4000", "2000-5000"]), ["1000-2000", "2000-5000"], "merged downwards");
    assert_eq!(ordered(&["1000-2000", "3000-4000", "1000-5000"]), ["1000-5000"], "merged with two");
    assert_eq!(ordered(&["1000-4000", "2000-5000"]), ["1000-2000", "2000-5000"], "shrunk before a new one");
    assert_eq!(ordered(&["1000-2000", "2000-3000"]), ["1000-2000", "2000-3000"]);
}

#[test]
fn entries_do_not_overlap_while_mappings_grow() {
    const COUNT: u64 = 400;
    let memory = Anonymous::new(4 * COUNT * PAGE.0);
    let start = memory.start().0;
    let protect = |number, protection| {
        let page = (start + number * PAGE.0) as *mut libc::c_void;
        // SAFETY: the page belongs to `memory`, which nothing reads.
        assert_eq!(unsafe { libc::mprotect(page, PAGE.0 as usize, protection) }, 0);
    };
    (0..4 * COUNT).for_each(|number| protect(number, if number % 4 == 0 { libc::PROT_READ } else { libc::PROT_NONE }));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (1..4 * COUNT).step_by(4).cycle().take_while(|_| !is_done.load(Ordering::Relaxed)) {
                protect(number, libc::PROT_READ);
                protect(number, libc::PROT_NONE);
            }
        });
        let overlaps = (0..500).filter(|_| {
            let entries = entries(Pid(std::process::id())).unwrap();
            entries.windows(2).any(|pair| pair[0].end > pair[1].start)
        });
        let overlaps = overlaps.count();
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(overlaps, 0);
    });
}
