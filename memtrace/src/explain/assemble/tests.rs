use proptest::prelude::*;

use super::*;
use crate::explain::glibc::Found;
use crate::explain::span::Span;
use crate::explain::stacks::Threads;
use crate::model::{AbsAddr, Bytes, HeapStats, ThreadStacks, Tid};
use crate::procfs::smaps;

const PAGE: u64 = 4096;

/// Says of each piece that all of it is resident, and of those that end at `threads` that they are a thread's.
#[derive(Default)]
struct Paper {
    threads: Vec<u64>,
}

impl Closer for Paper {
    fn held(&self, span: Span) -> Option<MemorySizes> {
        Some(MemorySizes { reserved: span.length(), resident: span.length(), ..MemorySizes::default() })
    }

    fn is_threads(&self, span: Span) -> bool {
        self.threads.contains(&span.end.0)
    }
}

/// A mapping from page `start` to page `end`, of which `resident` pages are.
fn area(start: u64, end: u64, permissions: &str, inode: u64, name: &str, resident: u64) -> Area {
    let text = format!(
        "{:x}-{:x} {permissions} 00000000 00:01 {inode} {name}\nSize: {} kB\nRss: {} kB\nAnonymous: {} kB\n",
        start * PAGE,
        end * PAGE,
        (end - start) * 4,
        resident * 4,
        if permissions.contains('w') { resident * 2 } else { 0 }
    );
    let mut areas = Vec::new();
    smaps::read(text.as_bytes(), |area| areas.push(area)).unwrap();
    areas.remove(0)
}

fn readings(areas: Vec<Area>) -> Readings {
    Readings {
        areas,
        tmpfs: Tmpfs::default(),
        threads: Threads { count: 1, pointers: Vec::new() },
        serving: Serving::Glibc,
        beside: Vec::new(),
        glibc: None,
        variables: Vec::new(),
    }
}

const fn pages(number: u64) -> Bytes {
    Bytes(number * PAGE)
}

const fn span(start: u64, end: u64) -> Span {
    Span { start: AbsAddr(start * PAGE), end: AbsAddr(end * PAGE) }
}

/// All that the parts have, and their names.
fn resident(parts: &Parts) -> u64 {
    let named = parts.anonymous.iter().chain(&parts.shmem).map(|named| named.held.resident.0);
    let files = parts.files.iter().map(|file| file.held.resident.0);
    let others = [parts.heap.held, parts.main_stack, parts.thread_stacks.held, parts.special];
    named.chain(files).chain(others.map(|held| held.resident.0)).sum()
}

fn names(parts: &Parts) -> Vec<(&str, u64)> {
    parts.anonymous.iter().map(|named| (named.name.as_str(), named.held.resident.0 / PAGE)).collect()
}

#[test]
fn each_kind_of_mapping_comes_to_its_part() {
    let parts = assemble(
        &readings(vec![
            area(10, 20, "r-xp", 7, "/bin/a", 8),
            area(20, 24, "rw-p", 7, "/bin/a", 4),
            area(30, 40, "rw-p", 0, "[heap]", 9),
            area(50, 60, "rw-p", 0, "", 3),
            area(60, 70, "rw-p", 0, "[anon:pool]", 2),
            area(70, 80, "---p", 0, "", 0),
            area(80, 90, "r-xp", 0, "", 1),
            area(90, 99, "rw-s", 8, "/memfd:ring (deleted)", 5),
            area(100, 120, "rw-p", 0, "[stack]", 6),
            area(120, 122, "r-xp", 0, "[vdso]", 1),
        ]),
        &Paper::default(),
    );
    assert_eq!((parts.heap.held.resident, parts.heap.allocator.as_deref()), (pages(9), Some("glibc")));
    assert!(matches!(&parts.heap.source, HeapSource::Unknown(why) if why.contains("CAP_SYS_PTRACE")));
    let [file] = &parts.files[..] else { panic!("{parts:?}") };
    assert_eq!((file.path.as_str(), file.held.resident, file.copied), ("/bin/a", pages(12), pages(2)));
    assert_eq!(
        names(&parts),
        [("without a name", 3), ("pool", 2), ("code made at run time", 1), ("reserved and not accessible", 0)]
    );
    assert_eq!((parts.shmem[0].name.as_str(), parts.shmem[0].held.resident), ("/memfd:ring", pages(5)));
    assert_eq!((parts.main_stack.resident, parts.special.resident), (pages(6), pages(1)));
    assert_eq!(parts.thread_stacks, ThreadStacks::default());
    assert_eq!(resident(&parts), 39 * PAGE);
}

#[test]
fn glibcs_part_is_cut_from_a_mapping_and_the_rest_stays() {
    let mut read = readings(vec![area(50, 90, "rw-p", 0, "", 30)]);
    let books = HeapStats { in_use: pages(10), blocks: 3, ..HeapStats::default() };
    read.glibc = Some(Found { books, spans: vec![span(60, 70)], trouble: None });
    let parts = assemble(&read, &Paper::default());
    assert_eq!((parts.heap.held.resident, parts.heap.held.reserved), (pages(10), pages(10)));
    assert_eq!(parts.heap.source, HeapSource::Known(books));
    assert_eq!((names(&parts), parts.anonymous[0].mappings), (vec![("without a name", 20)], 2));
    assert_eq!(parts.anonymous[0].held.reserved, pages(30));
}

#[test]
fn more_is_never_cut_than_the_kernel_counted() {
    let mut read = readings(vec![area(50, 90, "rw-p", 0, "", 4)]);
    read.glibc = Some(Found { spans: vec![span(60, 70)], ..Found::default() });
    let parts = assemble(&read, &Paper::default());
    assert_eq!((parts.heap.held.resident, resident(&parts)), (pages(4), 4 * PAGE));
}

#[test]
fn a_files_variables_end_where_the_file_says() {
    let areas = vec![area(20, 24, "rw-p", 7, "/lib/a.so", 4), area(24, 40, "rw-p", 0, "", 16)];
    let mut read = readings(areas);
    read.variables = vec![(1, AbsAddr(26 * PAGE))];
    let parts = assemble(&read, &Paper::default());
    assert_eq!(names(&parts), [("without a name", 14), ("/lib/a.so (variables, .bss)", 2)]);
}

#[test]
fn a_threads_stack_takes_a_guard_and_a_pointer_or_what_lies_at_its_top() {
    let areas = || {
        vec![
            area(10, 11, "---p", 0, "", 0),
            area(11, 20, "rw-p", 0, "", 5),
            area(30, 40, "rw-p", 0, "", 3),
            area(50, 51, "---p", 0, "", 0),
            area(51, 60, "rw-p", 0, "", 2),
        ]
    };
    let stacks = |pointers: &[(u32, u64)], threads: &[u64]| {
        let mut read = readings(areas());
        read.threads.pointers = pointers.iter().map(|(tid, page)| (Tid(*tid), AbsAddr(page * PAGE))).collect();
        let parts = assemble(&read, &Paper { threads: threads.iter().map(|page| page * PAGE).collect() });
        assert_eq!(resident(&parts), 10 * PAGE);
        let stacks = parts.thread_stacks;
        (stacks.stacks, stacks.held.reserved.0 / PAGE, stacks.held.resident.0 / PAGE, stacks.largest)
    };
    assert_eq!(stacks(&[], &[]), (0, 0, 0, None), "a guard alone is none");
    assert_eq!(stacks(&[(8, 15)], &[]), (1, 10, 5, Some((Tid(8), pages(5)))));
    // One runs, so that its pointer is not known.
    assert_eq!(stacks(&[(8, 15)], &[60]), (2, 20, 7, Some((Tid(8), pages(5)))));
    // A pointer into memory without a guard is of a thread that has its stack elsewhere, as in a heap.
    assert_eq!(stacks(&[(8, 35)], &[]), (0, 0, 0, None));
    assert_eq!(stacks(&[(8, 35)], &[40]), (1, 10, 3, Some((Tid(8), pages(3)))));
}

#[test]
fn an_allocator_without_marks_has_what_has_no_other_name() {
    let with = |name: &str| {
        let mut read = readings(vec![
            area(20, 24, "rw-p", 7, "/lib/a.so", 4),
            area(24, 26, "rw-p", 0, "", 2),
            area(30, 40, "rw-p", 0, "", 10),
            area(40, 50, "rw-p", 0, name, 7),
            area(50, 60, "rw-p", 0, "[anon:pool]", 5),
            area(60, 70, "rwxp", 0, "", 1),
        ]);
        read.serving = Serving::Unmarked(String::from("jemalloc"));
        read.variables = vec![(1, AbsAddr(26 * PAGE))];
        assemble(&read, &Paper::default())
    };
    let why = |parts: &Parts| match &parts.heap.source {
        HeapSource::Unknown(why) => why.clone(),
        HeapSource::Known(_) => String::new(),
    };
    let parts = with("");
    assert_eq!((parts.heap.allocator.as_deref(), parts.heap.held.resident), (Some("jemalloc"), pages(17)));
    assert_eq!(names(&parts), [("pool", 5), ("/lib/a.so (variables, .bss)", 2), ("code made at run time", 1)]);
    assert!(why(&parts).contains("is counted with it"), "{}", why(&parts));
    // One that names its mappings has no others.
    let parts = with("[anon:jemalloc_pg]");
    assert_eq!((parts.heap.allocator.as_deref(), parts.heap.held.resident), (Some("jemalloc"), pages(7)));
    assert_eq!(names(&parts)[0], ("without a name", 10));
    assert_eq!(why(&parts), "jemalloc keeps no marks at its blocks that could be read");
}

#[test]
fn what_could_not_be_told_is_said() {
    let told = |trouble, blocks, serving| {
        let mut read = readings(vec![area(30, 40, "rw-p", 0, "[heap]", 9)]);
        let books = HeapStats { blocks, ..HeapStats::default() };
        read.glibc = Some(Found { books, spans: vec![span(30, 40)], trouble });
        read.serving = serving;
        let HeapMemory { allocator, source, .. } = assemble(&read, &Paper::default()).heap;
        (allocator.unwrap_or_default(), matches!(source, HeapSource::Known(_)))
    };
    assert_eq!(told(None, 0, Serving::Glibc), ("glibc".into(), true));
    assert_eq!(told(Some(Trouble::Torn), 0, Serving::Glibc), ("glibc".into(), false));
    assert_eq!(told(Some(Trouble::Swapped), 5, Serving::Glibc), ("glibc".into(), true), "other arenas were told");
    assert_eq!(told(Some(Trouble::Torn), 0, Serving::Unknown), (String::new(), false));
    assert_eq!(told(None, 5, Serving::Unknown), ("glibc".into(), true), "its marks are there");
}

#[test]
fn only_memory_that_can_be_written_is_searched_and_neighbours_are_one() {
    let areas = [
        area(10, 20, "rw-p", 0, "[heap]", 1),
        area(20, 25, "rw-p", 0, "[heap]", 1),
        area(25, 30, "rw-p", 0, "", 1),
        area(30, 35, "rw-p", 0, "[anon:x]", 1),
        area(35, 40, "---p", 0, "", 0),
        area(40, 45, "rw-s", 8, "/memfd:a", 1),
        area(50, 55, "rw-p", 9, "/bin/a", 1),
    ];
    let brk = Region { span: span(10, 25), is_brk: true };
    let other = Region { span: span(25, 35), is_brk: false };
    assert_eq!(regions(&areas, &Tmpfs::default()), [brk, other]);
}

proptest! {
    #[test]
    fn whatever_is_mapped_each_page_comes_to_exactly_one_part(
        kinds in prop::collection::vec((0usize..8, 1u64..20, 0u64..20, any::<bool>()), 1..20),
        claims in prop::collection::vec((0u64..400, 1u64..30), 0..6),
        pointers in prop::collection::vec(0u64..400, 0..4),
        unmarked in any::<bool>(),
    ) {
        const KINDS: [(&str, u64, &str); 8] = [
            ("rw-p", 0, ""), ("---p", 0, ""), ("rw-p", 0, "[heap]"), ("r-xp", 7, "/bin/a"),
            ("rw-p", 7, "/bin/a"), ("rw-s", 8, "/memfd:m"), ("rw-p", 0, "[stack]"), ("rw-p", 0, "[anon:x]"),
        ];
        let mut at = 1;
        let mut areas = Vec::new();
        for (kind, length, resident, gap) in kinds {
            let (permissions, inode, name) = KINDS[kind];
            areas.push(area(at, at + length, permissions, inode, name, resident.min(length)));
            at += length + u64::from(gap);
        }
        let whole: u64 = areas.iter().map(|area| area.sizes.resident.0).sum();
        let mut read = readings(areas);
        let mut behind = 0;
        let mut spans = Vec::new();
        for (start, length) in claims {
            spans.push(span(behind + start % 40, behind + start % 40 + length));
            behind += start % 40 + length;
        }
        read.glibc = Some(Found { spans, ..Found::default() });
        read.threads.pointers = pointers.into_iter().map(|page| (Tid(1), AbsAddr(page * PAGE))).collect();
        if unmarked {
            read.serving = Serving::Unmarked(String::from("jemalloc"));
        }
        let parts = assemble(&read, &Paper::default());
        prop_assert_eq!(resident(&parts), whole);
        let kinds: u64 = parts.kinds.iter().map(|(_, held)| held.resident.0).sum();
        prop_assert_eq!(kinds, whole);
    }
}
