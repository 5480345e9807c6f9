use memtrace_host::procfs::read_vmas;
use memtrace_model::{AbsAddr, Bytes, GoTotals, HeapStats, ThreadStacks, Tid};
use proptest::prelude::*;

use super::*;
use crate::explain::glibc::HeapWalk;
use crate::explain::go::GoArenas;
use crate::explain::span::Span;
use crate::explain::stacks::Threads;

const PAGE: u64 = 4096;

/// Inspector that reports all memory as resident, and a thread control block at the top of each span that ends at an
/// address in `threads`.
#[derive(Default)]
struct FakeInspector {
    threads: Vec<u64>,
}

impl RangeInspector for FakeInspector {
    fn sizes(&self, span: Span) -> Option<MemorySizes> {
        Some(MemorySizes { reserved: span.length(), resident: span.length(), ..MemorySizes::default() })
    }

    fn has_thread_block(&self, span: Span) -> bool {
        self.threads.contains(&span.end.0)
    }
}

/// Returns a VMA from page `start` to page `end` with `resident` resident pages.
fn vma(start: u64, end: u64, permissions: &str, inode: u64, name: &str, resident: u64) -> Vma {
    let text = format!(
        "{:x}-{:x} {permissions} 00000000 00:01 {inode} {name}\nSize: {} kB\nRss: {} kB\nAnonymous: {} kB\n",
        start * PAGE,
        end * PAGE,
        (end - start) * 4,
        resident * 4,
        if permissions.contains('w') { resident * 2 } else { 0 }
    );
    let mut vmas = Vec::new();
    read_vmas(text.as_bytes(), |vma| vmas.push(vma)).unwrap();
    vmas.remove(0)
}

fn memory(vmas: Vec<Vma>) -> ProcessMemory {
    ProcessMemory {
        vmas,
        tmpfs: Tmpfs::default(),
        threads: Threads { count: 1, pointers: Vec::new() },
        provider: MallocProvider::Glibc,
        other_allocators: Vec::new(),
        glibc: None,
        go: None,
        variables: Vec::new(),
    }
}

const fn pages(number: u64) -> Bytes {
    Bytes(number * PAGE)
}

const fn span(start: u64, end: u64) -> Span {
    Span { start: AbsAddr(start * PAGE), end: AbsAddr(end * PAGE) }
}

/// Returns the resident bytes of all parts.
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
fn each_kind_of_mapping_is_attributed() {
    let parts = assemble(
        &memory(vec![
            vma(10, 20, "r-xp", 7, "/bin/a", 8),
            vma(20, 24, "rw-p", 7, "/bin/a", 4),
            vma(30, 40, "rw-p", 0, "[heap]", 9),
            vma(50, 60, "rw-p", 0, "", 3),
            vma(60, 70, "rw-p", 0, "[anon:pool]", 2),
            vma(70, 80, "---p", 0, "", 0),
            vma(80, 90, "r-xp", 0, "", 1),
            vma(90, 99, "rw-s", 8, "/memfd:ring (deleted)", 5),
            vma(100, 120, "rw-p", 0, "[stack]", 6),
            vma(120, 122, "r-xp", 0, "[vdso]", 1),
        ]),
        &FakeInspector::default(),
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
fn the_heap_is_split_from_the_rest_of_a_vma() {
    let mut process = memory(vec![vma(50, 90, "rw-p", 0, "", 30)]);
    let stats = HeapStats { in_use: pages(10), blocks: 3, ..HeapStats::default() };
    process.glibc = Some(HeapWalk { stats, spans: vec![span(60, 70)], error: None });
    let parts = assemble(&process, &FakeInspector::default());
    assert_eq!((parts.heap.held.resident, parts.heap.held.reserved), (pages(10), pages(10)));
    assert_eq!(parts.heap.source, HeapSource::Known(stats));
    assert_eq!((names(&parts), parts.anonymous[0].mappings), (vec![("without a name", 20)], 2));
    assert_eq!(parts.anonymous[0].held.reserved, pages(30));
}

#[test]
fn attributed_sizes_do_not_exceed_the_kernels() {
    let mut process = memory(vec![vma(50, 90, "rw-p", 0, "", 4)]);
    process.glibc = Some(HeapWalk { spans: vec![span(60, 70)], ..HeapWalk::default() });
    let parts = assemble(&process, &FakeInspector::default());
    assert_eq!((parts.heap.held.resident, resident(&parts)), (pages(4), 4 * PAGE));
}

#[test]
fn bss_variables_end_at_the_end_of_the_segment() {
    let vmas = vec![vma(20, 24, "rw-p", 7, "/lib/a.so", 4), vma(24, 40, "rw-p", 0, "", 16)];
    let mut process = memory(vmas);
    process.variables = vec![(1, AbsAddr(26 * PAGE))];
    let parts = assemble(&process, &FakeInspector::default());
    assert_eq!(names(&parts), [("without a name", 14), ("/lib/a.so (variables, .bss)", 2)]);
}

#[test]
fn a_stack_needs_a_guard_and_pointer_or_a_control_block() {
    let vmas = || {
        vec![
            vma(10, 11, "---p", 0, "", 0),
            vma(11, 20, "rw-p", 0, "", 5),
            vma(30, 40, "rw-p", 0, "", 3),
            vma(50, 51, "---p", 0, "", 0),
            vma(51, 60, "rw-p", 0, "", 2),
        ]
    };
    let stacks = |pointers: &[(u32, u64)], threads: &[u64]| {
        let mut process = memory(vmas());
        process.threads.pointers = pointers.iter().map(|(tid, page)| (Tid(*tid), AbsAddr(page * PAGE))).collect();
        let parts = assemble(&process, &FakeInspector { threads: threads.iter().map(|page| page * PAGE).collect() });
        assert_eq!(resident(&parts), 10 * PAGE);
        let stacks = parts.thread_stacks;
        (stacks.stacks, stacks.held.reserved.0 / PAGE, stacks.held.resident.0 / PAGE, stacks.largest)
    };
    assert_eq!(stacks(&[], &[]), (0, 0, 0, None), "a guard alone is not a stack");
    assert_eq!(stacks(&[(8, 15)], &[]), (1, 10, 5, Some((Tid(8), pages(5)))));
    // The second thread runs, so its stack pointer is unknown.
    assert_eq!(stacks(&[(8, 15)], &[60]), (2, 20, 7, Some((Tid(8), pages(5)))));
    // A pointer into memory without a guard is no proof: the stack may be in the heap.
    assert_eq!(stacks(&[(8, 35)], &[]), (0, 0, 0, None));
    assert_eq!(stacks(&[(8, 35)], &[40]), (1, 10, 3, Some((Tid(8), pages(3)))));
}

#[test]
fn unnamed_memory_belongs_to_an_allocator_without_headers() {
    let with = |name: &str| {
        let mut process = memory(vec![
            vma(20, 24, "rw-p", 7, "/lib/a.so", 4),
            vma(24, 26, "rw-p", 0, "", 2),
            vma(30, 40, "rw-p", 0, "", 10),
            vma(40, 50, "rw-p", 0, name, 7),
            vma(50, 60, "rw-p", 0, "[anon:pool]", 5),
            vma(60, 70, "rwxp", 0, "", 1),
        ]);
        process.provider = MallocProvider::Other(String::from("jemalloc"));
        process.variables = vec![(1, AbsAddr(26 * PAGE))];
        assemble(&process, &FakeInspector::default())
    };
    let why = |parts: &Parts| match &parts.heap.source {
        HeapSource::Unknown(why) => why.clone(),
        HeapSource::Known(_) => String::new(),
    };
    let parts = with("");
    assert_eq!((parts.heap.allocator.as_deref(), parts.heap.held.resident), (Some("jemalloc"), pages(17)));
    assert_eq!(names(&parts), [("pool", 5), ("/lib/a.so (variables, .bss)", 2), ("code made at run time", 1)]);
    assert!(why(&parts).contains("are counted with it"), "{}", why(&parts));
    // An allocator that names its mappings has no unnamed ones.
    let parts = with("[anon:jemalloc_pg]");
    assert_eq!((parts.heap.allocator.as_deref(), parts.heap.held.resident), (Some("jemalloc"), pages(7)));
    assert_eq!(names(&parts)[0], ("without a name", 10));
    assert_eq!(why(&parts), "jemalloc has no block headers that could be read");
}

/// Returns the memory of a Go program with 1024 pages of arenas, of which 512 are resident. `unnamed`: number of resident pages
/// among 64 other pages without a name.
fn go_program(unnamed: u64, outside: u64) -> ProcessMemory {
    let mut process = memory(vec![
        vma(10, 20, "r-xp", 7, "/bin/a", 8),
        vma(0xc00_0000, 0xc00_0400, "rw-p", 0, "", 512),
        vma(0xc00_0400, 0xc00_4000, "---p", 0, "", 0),
        vma(0x7f0_0000, 0x7f0_0040, "rw-p", 0, "", unnamed),
        vma(0x7f0_0050, 0x7f0_0060, "rw-p", 0, "[anon: Go: heap index]", 2),
    ]);
    process.provider = MallocProvider::Unknown;
    let totals = GoTotals {
        in_use: pages(600),
        idle: pages(100),
        released: pages(260),
        stacks: pages(40),
        work_buffers: pages(24),
        spans: pages(outside),
        ..GoTotals::default()
    };
    process.go = Some(GoArenas { totals, spans: vec![span(0xc00_0000, 0xc00_0400)] });
    process
}

#[test]
fn memory_of_go_is_attributed_by_its_totals() {
    let parts = assemble(&go_program(40, 30), &FakeInspector::default());
    let go = parts.go.unwrap();
    let shown = |held: MemorySizes| (held.reserved.0 / PAGE, held.resident.0 / PAGE);
    assert_eq!((shown(go.heap), shown(go.stacks)), ((960, 448), (40, 40)));
    assert_eq!((go.in_use_resident, go.idle_resident), (pages(448), Bytes(0)));
    // 24 pages of buffers, 16 named pages with 2 resident ones, and 30 - 2 pages without a name.
    assert_eq!(shown(go.own), (68, 54));
    assert_eq!(names(&parts), [("without a name", 12), ("reserved and not accessible", 0)]);
    assert_eq!(parts.anonymous[0].held.reserved, pages(36));
    assert_eq!((parts.heap.allocator.as_deref(), parts.heap.held), (None, MemorySizes::default()));
    let go_resident = go.heap.resident.0 + go.stacks.resident.0 + go.own.resident.0;
    assert_eq!(resident(&parts) + go_resident, (8 + 512 + 40 + 2) * PAGE);
}

#[test]
fn unnamed_memory_of_go_needs_no_rest() {
    let parts = assemble(&go_program(64, 80), &FakeInspector::default());
    assert_eq!(names(&parts), [("reserved and not accessible", 0)]);
    assert_eq!(parts.go.unwrap().own.resident, pages(24 + 64 + 2));
}

#[test]
fn a_failed_heap_walk_is_reported() {
    let source_of = |error, blocks, provider| {
        let mut process = memory(vec![vma(30, 40, "rw-p", 0, "[heap]", 9)]);
        let stats = HeapStats { blocks, ..HeapStats::default() };
        process.glibc = Some(HeapWalk { stats, spans: vec![span(30, 40)], error });
        process.provider = provider;
        let HeapMemory { allocator, source, .. } = assemble(&process, &FakeInspector::default()).heap;
        (allocator.unwrap_or_default(), matches!(source, HeapSource::Known(_)))
    };
    assert_eq!(source_of(None, 0, MallocProvider::Glibc), ("glibc".into(), true));
    assert_eq!(source_of(Some(HeapError::Inconsistent), 0, MallocProvider::Glibc), ("glibc".into(), false));
    assert_eq!(
        source_of(Some(HeapError::Swapped), 5, MallocProvider::Glibc),
        ("glibc".into(), true),
        "other arenas were read"
    );
    assert_eq!(source_of(Some(HeapError::Inconsistent), 0, MallocProvider::Unknown), (String::new(), false));
    assert_eq!(source_of(None, 5, MallocProvider::Unknown), ("glibc".into(), true), "its chunks are there");
}

#[test]
fn regions_are_writable_memory_with_neighbours_joined() {
    let vmas = [
        vma(10, 20, "rw-p", 0, "[heap]", 1),
        vma(20, 25, "rw-p", 0, "[heap]", 1),
        vma(25, 30, "rw-p", 0, "", 1),
        vma(30, 35, "rw-p", 0, "[anon:x]", 1),
        vma(35, 40, "---p", 0, "", 0),
        vma(40, 45, "rw-s", 8, "/memfd:a", 1),
        vma(50, 55, "rw-p", 9, "/bin/a", 1),
    ];
    let brk = Region { span: span(10, 25), is_brk: true };
    let other = Region { span: span(25, 35), is_brk: false };
    assert_eq!(regions(&vmas, &Tmpfs::default()), [brk, other]);
}

proptest! {
    #[test]
    fn each_page_is_attributed_exactly_once(
        kinds in prop::collection::vec((0usize..8, 1u64..20, 0u64..20, any::<bool>()), 1..20),
        claims in prop::collection::vec((0u64..400, 1u64..30), 0..6),
        pointers in prop::collection::vec(0u64..400, 0..4),
        other_provider in any::<bool>(),
    ) {
        const KINDS: [(&str, u64, &str); 8] = [
            ("rw-p", 0, ""), ("---p", 0, ""), ("rw-p", 0, "[heap]"), ("r-xp", 7, "/bin/a"),
            ("rw-p", 7, "/bin/a"), ("rw-s", 8, "/memfd:m"), ("rw-p", 0, "[stack]"), ("rw-p", 0, "[anon:x]"),
        ];
        let mut at = 1;
        let mut vmas = Vec::new();
        for (kind, length, resident, gap) in kinds {
            let (permissions, inode, name) = KINDS[kind];
            vmas.push(vma(at, at + length, permissions, inode, name, resident.min(length)));
            at += length + u64::from(gap);
        }
        let whole: u64 = vmas.iter().map(|vma| vma.sizes.resident.0).sum();
        let mut process = memory(vmas);
        let mut end = 0;
        let mut spans = Vec::new();
        for (start, length) in claims {
            spans.push(span(end + start % 40, end + start % 40 + length));
            end += start % 40 + length;
        }
        process.glibc = Some(HeapWalk { spans, ..HeapWalk::default() });
        process.threads.pointers = pointers.into_iter().map(|page| (Tid(1), AbsAddr(page * PAGE))).collect();
        if other_provider {
            process.provider = MallocProvider::Other(String::from("jemalloc"));
        }
        let parts = assemble(&process, &FakeInspector::default());
        prop_assert_eq!(resident(&parts), whole);
        let kinds: u64 = parts.kinds.iter().map(|(_, held)| held.resident.0).sum();
        prop_assert_eq!(kinds, whole);
    }
}
