use memtrace_model::AbsAddr;

use super::*;

const RECORDED: &str = "\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                  88 kB
Pss:                  44 kB
Pss_Dirty:            44 kB
Shared_Clean:          4 kB
Shared_Dirty:         84 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:           80 kB
Anonymous:            88 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                 12 kB
SwapPss:               6 kB
Locked:                0 kB
THPeligible:           0
ProtectionKey:         0
VmFlags: rd wr mr mw me ac sd 
7f0000000000-7f0000400000 rw-s 00000000 00:0f 33                         /huge/a\\012Rss:  9 kB
Size:               4096 kB
Rss:                2048 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        4 kB
Private_Hugetlb:    4096 kB
Shared_Hugetlb:     2048 kB
VmFlags: rd wr sh mr mw me ms de ht sd gd io
";

fn all(text: &str) -> Vec<Vma> {
    let mut vmas = Vec::new();
    read_vmas(text.as_bytes(), |vma| vmas.push(vma)).unwrap();
    vmas
}

const fn kib(number: u64) -> Bytes {
    Bytes(number << 10)
}

#[test]
fn recorded_vmas_are_parsed() {
    let vmas = all(RECORDED);
    let [heap, huge] = &vmas[..] else { panic!("{vmas:?}") };
    assert_eq!((heap.entry.start, heap.entry.path.to_str()), (AbsAddr(0x55d0_c0a0_0000), Some("[heap]")));
    let expected = Sizes {
        reserved: kib(132),
        resident: kib(88),
        pss: kib(44),
        pss_dirty: kib(44),
        shared: kib(88),
        clean: kib(4),
        referenced: kib(80),
        anonymous: kib(88),
        swap: kib(12),
        swap_pss: kib(6),
        ..Sizes::default()
    };
    assert_eq!((heap.sizes, heap.hugetlb, heap.device_memory, heap.grows_down), (expected, false, false, false));
    // A newline in a path is escaped, so it cannot forge a field.
    assert_eq!(huge.entry.path.to_str(), Some("/huge/a\nRss:  9 kB"));
    let expected =
        Sizes { reserved: kib(4096), resident: kib(2048), huge: kib(2052), hugetlb: kib(6144), ..Sizes::default() };
    assert_eq!((huge.sizes, huge.hugetlb, huge.device_memory, huge.grows_down), (expected, true, true, true));
    assert!(huge.entry.shared && !heap.entry.shared);
}

/// Of a worker of a preforking server on Linux 6.1. `Pss_Anon` and the two lines after it are only in `smaps_rollup`.
const ROLLUP: &str = "\
55d0c0a00000-7ffd3b5f2000 ---p 00000000 00:00 0                          [rollup]
Rss:               60000 kB
Pss:               21000 kB
Pss_Dirty:         17000 kB
Pss_Anon:          16500 kB
Pss_File:           4000 kB
Pss_Shmem:           500 kB
Shared_Clean:      12000 kB
Shared_Dirty:      34000 kB
Private_Clean:      1000 kB
Private_Dirty:     13000 kB
Referenced:        59000 kB
Anonymous:         46000 kB
LazyFree:            640 kB
Swap:                 96 kB
SwapPss:              24 kB
Locked:                8 kB
";

#[test]
fn recorded_rollup_is_parsed() {
    let vmas = all(ROLLUP);
    let [rollup] = &vmas[..] else { panic!("{vmas:?}") };
    let expected = Sizes {
        resident: kib(60_000),
        pss: kib(21_000),
        pss_anonymous: kib(16_500),
        pss_file: kib(4000),
        pss_shmem: kib(500),
        pss_dirty: kib(17_000),
        shared: kib(46_000),
        private: kib(14_000),
        clean: kib(13_000),
        referenced: kib(59_000),
        anonymous: kib(46_000),
        lazy_free: kib(640),
        swap: kib(96),
        swap_pss: kib(24),
        locked: kib(8),
        ..Sizes::default()
    };
    assert_eq!(rollup.sizes, expected);
}

#[test]
fn returnable_pages_depend_on_the_kind_of_memory() {
    let sizes = Sizes { resident: kib(100), clean: kib(90), anonymous: kib(20), lazy_free: kib(7), ..Sizes::default() };
    let returnable = |sizes: Sizes, kind| sizes.held(kind).returnable;
    assert_eq!(returnable(sizes, MappingKind::File), kib(80), "copies of pages cannot be dropped");
    assert_eq!(returnable(Sizes { locked: kib(4), ..sizes }, MappingKind::File), Bytes(0));
    assert_eq!(returnable(sizes, MappingKind::Anonymous), kib(7));
    assert_eq!(returnable(sizes, MappingKind::Shmem), Bytes(0));
}

#[test]
fn malformed_lines_are_ignored() {
    let header = "1000-2000 rw-p 00000000 00:00 0 \n";
    for fields in [
        "Rss:",
        "Rss: kB\n",
        "Rss: 4\n",
        "Rss: -4 kB\n",
        "Rss: 99999999999999999999 kB\n",
        "Rss: 18446744073709551615 kB\n",
        "Rss: \u{fffd} kB\n",
        "no colon\n",
        ":\n",
        "VmFlags:\n",
    ] {
        let vmas = all(&format!("{header}{fields}"));
        assert_eq!(vmas.iter().map(|vma| vma.sizes).collect::<Vec<_>>(), [Sizes::default()], "{fields}");
    }
    assert_eq!(all(""), []);
    assert_eq!(all("Rss: 4 kB\n"), [], "a field of no mapping");
}

#[test]
fn sums_saturate() {
    let most = Sizes { resident: Bytes(u64::MAX), ..Sizes::default() };
    let mut sum = most;
    sum += most;
    assert_eq!(sum, most);
}

#[test]
fn vma_sizes_of_this_process_add_up_to_the_rollup() {
    // Concurrent tests do not change this memory.
    let block = std::hint::black_box(vec![1u8; 8 << 20]);
    let own = Pid(std::process::id());
    let address = AbsAddr(block.as_ptr() as u64);
    let vmas = vmas(own).unwrap();
    let vma = vmas.iter().find(|vma| vma.entry.start <= address && address < vma.entry.end).unwrap();
    assert!(vma.sizes.resident >= Bytes(8 << 20), "{vma:?}");
    assert!(vmas.windows(2).all(|pair| pair[0].entry.end <= pair[1].entry.start));
    assert!(rollup(own).unwrap().resident >= Bytes(8 << 20));
    assert!(matches!(rollup(Pid(u32::MAX)), Err(ProcessError::Exited(_))));
}
