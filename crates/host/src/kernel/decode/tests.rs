use proptest::prelude::*;

use super::*;

const ADDRESS: AbsAddr = AbsAddr(0x7f00_dead_beef);

/// Returns the header of a record: `kind`, thread 12, process 11, tick 7.
fn header(kind: u32) -> Vec<u8> {
    [kind, 12, 11, 7].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let mut record = header(kind);
    record.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    record
}

fn decoded(record: &[u8]) -> EventKind {
    let event = decode(record).unwrap();
    assert_eq!((event.pid, event.tid, event.tick), (Pid(11), Tid(12), Tick(7)));
    event.kind
}

#[test]
fn alloc_contains_address_size_stack_and_allocator() {
    let alloc = |allocator| EventKind::Alloc {
        address: ADDRESS,
        size: Bytes(4096),
        stack: StackId(99),
        allocator,
        tag: TagId::UNTAGGED,
    };
    assert_eq!(decoded(&record(1, &[ADDRESS.0, 4096, 99])), alloc(AllocatorId::UNKNOWN));
    assert_eq!(decoded(&record(1 | 0xabcd << 16, &[ADDRESS.0, 4096, 99])), alloc(AllocatorId(0xabcd)));
    assert_eq!(decode(&record(1, &[1, 2])), Err(BadRecord), "no stack");
}

#[test]
fn free_contains_the_address() {
    assert_eq!(decoded(&record(2, &[ADDRESS.0])), EventKind::Free { address: ADDRESS, is_last: false });
    let last = EventKind::Free { address: ADDRESS, is_last: true };
    assert_eq!(decoded(&record(2 | 1 << 16, &[ADDRESS.0])), last);
    assert_eq!(decode(&header(2)), Err(BadRecord), "no address");
    assert_eq!(decode(&record(2 | 2 << 16, &[1])), Err(BadRecord), "an allocator");
    assert_eq!(decode(&record(4 | 1 << 16, &[1])), Err(BadRecord), "not a free");
}

#[test]
fn claim_contains_the_address_and_the_tag() {
    assert_eq!(decoded(&record(21 | 7 << 16, &[ADDRESS.0])), EventKind::Claim { address: ADDRESS, tag: TagId(7) });
    assert_eq!(decode(&header(21)), Err(BadRecord), "no address");
}

#[test]
fn tentative_free_and_its_undo_contain_the_address() {
    assert_eq!(decoded(&record(18, &[ADDRESS.0])), EventKind::RepeatedFree { address: ADDRESS });
    assert_eq!(decoded(&record(3, &[ADDRESS.0])), EventKind::TentativeFree { address: ADDRESS, is_last: false });
    let last = EventKind::TentativeFree { address: ADDRESS, is_last: true };
    assert_eq!(decoded(&record(3 | 1 << 16, &[ADDRESS.0])), last);
    assert_eq!(decoded(&record(4, &[ADDRESS.0])), EventKind::UndoFree { address: ADDRESS });
}

#[test]
fn stack_contains_end_time_and_frames() {
    let two_frames_truncated = 2 | 3 << 32;
    let stack = Stack {
        frames: [AbsAddr(0x10), AbsAddr(0x20)].into(),
        end: StackEnd::Truncated,
        taken: Duration::from_nanos(7_000_001),
    };
    assert_eq!(
        decoded(&record(5, &[99, two_frames_truncated, 7_000_001, 0x10, 0x20])),
        EventKind::Stack { id: StackId(99), stack: Box::new(stack) }
    );
    let refused = |words: &[u64], reason| assert_eq!(decode(&record(5, words)), Err(BadRecord), "{reason}");
    refused(&[99, 3 | 1 << 32, 7, 1, 2], "missing frames");
    refused(&[99, 257 | 1 << 32, 7], "too many frames");
    refused(&[99, 0, 7], "unknown end");
    refused(&[99, 14 << 32, 7], "end without a walk");
    refused(&[1, 1 << 32, 7], "id without frames");
}

#[test]
fn exec_and_exit_are_headers() {
    assert_eq!(decoded(&header(6)), EventKind::Exec);
    assert_eq!(decoded(&header(7)), EventKind::Exit);
}

#[test]
fn fault_contains_page_access_and_stack() {
    let touch = Touch { present: true, write: true, huge: false };
    let page = AbsAddr(0x7f00_0000_5000);
    assert_eq!(decoded(&record(8, &[page.0 | 3, 99])), EventKind::Fault { page, touch, stack: StackId(99) });
    let touch = Touch { present: false, write: true, huge: true };
    assert_eq!(decoded(&record(8, &[page.0 | 6, 99])), EventKind::Fault { page, touch, stack: StackId(99) });
    assert_eq!(decoded(&record(9, &[ADDRESS.0])), EventKind::MajorFault { page: ADDRESS });
}

#[test]
fn fork_contains_the_child() {
    assert_eq!(decoded(&record(10, &[4712])), EventKind::Fork { child: Pid(4712) });
}

#[test]
fn share_contains_the_child_and_its_selection() {
    let of = |traced: u64| decoded(&record(25, &[4712 | traced << 32]));
    assert_eq!(of(1), EventKind::Share { child: Pid(4712), is_traced: true });
    assert_eq!(of(0), EventKind::Share { child: Pid(4712), is_traced: false });
    assert_eq!(decode(&header(25)), Err(BadRecord));
    assert_eq!(decoded(&header(26)), EventKind::Unshare);
}

#[test]
fn map_contains_range_and_stack() {
    let (begin, size) = (ADDRESS, Bytes(8192));
    assert_eq!(decoded(&record(11, &[begin.0, 8192, 99])), EventKind::Map { begin, size, stack: StackId(99) });
    assert_eq!(decode(&record(11, &[u64::MAX, 8192, 99])), Err(BadRecord), "beyond the last address");
}

#[test]
fn tentative_unmap_contains_the_range() {
    let (begin, size) = (ADDRESS, Bytes(8192));
    assert_eq!(decoded(&record(12, &[begin.0, 8192, 0])), EventKind::TentativeUnmap { begin, size });
    assert_eq!(decoded(&header(13)), EventKind::UndoUnmap);
}

#[test]
fn move_contains_both_ranges() {
    let moved = EventKind::Move {
        old: AbsAddr(0x1000),
        old_size: Bytes(4096),
        begin: ADDRESS,
        size: Bytes(8192),
        keeps: true,
        stack: StackId(99),
    };
    assert_eq!(decoded(&record(14, &[ADDRESS.0, 8192, 99, 0x1000, 4096, 1])), moved);
}

#[test]
fn stall_contains_kind_order_and_counters() {
    let kswapd_of_order_nine = 3 | 9 << 32;
    let stall = Stall {
        work: ReclaimKind::Kswapd,
        order: Order::of(9),
        group: CgroupId::of(77),
        stack: StackId(99),
        duration: Nanoseconds(5000),
        throttled: Nanoseconds(400),
        scanned: 32,
        reclaimed: 30,
    };
    let words = [99, 5000, 400, 32, 30, kswapd_of_order_nine, 77];
    assert_eq!(decoded(&record(15, &words)), EventKind::Stall(Box::new(stall)));
    assert_eq!(decode(&header(15)), Err(BadRecord));
    assert_eq!(decode(&record(15, &[99, 1, 0, 0, 0, 6, 0])), Err(BadRecord), "unknown kind");
}

#[test]
fn oom_kill_contains_names_and_groups() {
    let mut killed = header(16);
    killed.extend(b"victim\0old-bytes");
    killed.extend([42, 0, 0, 0, 0, 0, 0, 0]);
    killed.extend(b"kworker/0:1\0\0\0\0");
    assert_eq!(decode(&killed), Err(BadRecord), "part of a name");
    killed.push(0);
    killed.extend([7, 0].iter().flat_map(|group: &u64| group.to_ne_bytes()));
    let (comm, by_comm) = (String::from("victim"), String::from("kworker/0:1"));
    let expected = OutOfMemory { comm, by: Pid(42), by_comm, group: CgroupId::of(7), full: None };
    assert_eq!(decoded(&killed), EventKind::OomKill(Box::new(expected)));
}

#[test]
fn rusage_contains_faults_and_peak_rss() {
    let counts = Rusage { faults: PageFaults { minor: 70, major: 3 }, peak_rss: Bytes(9 << 12) };
    assert_eq!(decoded(&record(17, &[70, 3, 9, 1])), EventKind::Rusage { counts: Some(counts), is_traced: true });
    assert_eq!(decoded(&record(17, &[70, u64::MAX, 9, 0])), EventKind::Rusage { counts: None, is_traced: false });
    assert_eq!(decode(&record(17, &[70, 3, 1 << 52, 1])), Err(BadRecord), "RSS beyond 64 bits");
}

#[test]
fn owner_contains_user_and_cgroups() {
    let owner = Owner { uid: 33, real_uid: 7, cgroups: [CgroupId::of(77), None, CgroupId::of(9)] };
    let words = [7 << 32 | 33, 77, 0, 9];
    assert_eq!(decoded(&record(19, &words)), EventKind::Owner(Box::new(owner)));
    assert_eq!(decode(&record(19, &words[..3])), Err(BadRecord));
}

#[test]
fn dropped_blocks_have_a_size_and_a_sum() {
    let sum = Amount { bytes: Bytes(160), count: 10 };
    assert_eq!(decoded(&record(24, &[32, 10, 160])), EventKind::Dropped { min_size: Bytes(32), sum });
    assert_eq!(decode(&record(24, &[32, 10])), Err(BadRecord));
}

#[test]
fn sampled_alloc_contains_sizes_and_weight() {
    let sampled = |amount, bytes_variance, count_variance, allocator, tag| EventKind::SampledAlloc {
        address: ADDRESS,
        size: Bytes(64),
        sample: Box::new(Sample { amount, bytes_variance, count_variance }),
        thinning: 0,
        stack: StackId(99),
        allocator,
        tag,
    };
    // The target has weighted the block: one in eight such blocks is sampled. The variances are 512² * 7/8 and 8² * 7/8.
    let weighted = sampled(Amount { bytes: Bytes(512), count: 8 }, 229_376, 56, AllocatorId(3), TagId::UNTAGGED);
    assert_eq!(decoded(&record(27, &[ADDRESS.0, 64, 99, 512, 0, 3])), weighted);
    // All blocks are sampled, if the interval is a byte.
    let each = sampled(Amount { bytes: Bytes(64), count: 1 }, 0, 0, AllocatorId::UNKNOWN, TagId(7));
    assert_eq!(decoded(&record(27 | 7 << 16, &[ADDRESS.0, 64, 99, 80, 1, 0])), each);
    assert_eq!(decode(&record(27, &[ADDRESS.0, 64, 99, 512, 0, 1 << 16])), Err(BadRecord), "no such allocator");
    assert_eq!(decode(&record(27, &[ADDRESS.0, 64, 99, 1 << 57, 0, 3])), Err(BadRecord), "beyond the address space");
    assert_eq!(decode(&record(27, &[ADDRESS.0, 1 << 57, 99, 64, 0, 3])), Err(BadRecord), "beyond the address space");
}

#[test]
fn sampled_alloc_contains_the_level_of_thinning() {
    // The level is in the upper byte of the interval. All blocks are sampled, if the interval is a byte.
    let thinning_of = |word: u64| match decoded(&record(27, &[ADDRESS.0, 64, 99, 64, word, 3])) {
        EventKind::SampledAlloc { thinning, sample, .. } => (thinning, sample.amount),
        other => panic!("{other:?}"),
    };
    let exact = Amount { bytes: Bytes(64), count: 1 };
    assert_eq!([0, 9, 15].map(|level| thinning_of(level << 56 | 1)), [(0, exact), (9, exact), (15, exact)]);
    let refused = |word: u64| decode(&record(27, &[ADDRESS.0, 64, 99, 64, word, 3]));
    assert_eq!(refused(16 << 56 | 1), Err(BadRecord), "no such level");
    assert_eq!(refused(1 << 56), Err(BadRecord), "the target has weighted the block");
}

#[test]
fn sampled_block_stands_for_the_inverse_of_its_probability() {
    let amount = |address| match decoded(&record(27, &[address, 100, 99, 100, 100, 0])) {
        EventKind::SampledAlloc { sample, .. } => sample.amount,
        other => panic!("{other:?}"),
    };
    // The probability is 1 - 1/e, so the block stands for 158.1977 bytes and 1.58198 blocks, rounded at random.
    let amounts: Vec<Amount> = (0..10_000).map(|block| amount(block * 16)).collect();
    assert!(amounts.iter().all(|amount| [158, 159].contains(&amount.bytes.0) && [1, 2].contains(&amount.count)));
    let mean = |sum: u64| sum as f64 / 10_000.0;
    let bytes = mean(amounts.iter().map(|amount| amount.bytes.0).sum());
    let count = mean(amounts.iter().map(|amount| amount.count).sum());
    // The standard deviations of the means are 0.004 and 0.005.
    assert!((bytes - 158.1977).abs() < 0.02 && (count - 1.58198).abs() < 0.025, "{bytes} bytes, {count} blocks");
}

#[test]
fn sampled_free_contains_the_address() {
    assert_eq!(decoded(&record(28, &[ADDRESS.0])), EventKind::SampledFree { address: ADDRESS });
    assert_eq!(decode(&header(28)), Err(BadRecord), "no address");
    assert_eq!(decode(&record(28 | 1 << 16, &[ADDRESS.0])), Err(BadRecord), "no free of the last block");
}

#[test]
fn records_need_their_whole_length() {
    let records: [(u32, &[u64]); 25] = [
        (1, &[ADDRESS.0, 4096, 99]),
        (2, &[ADDRESS.0]),
        (3, &[ADDRESS.0]),
        (4, &[ADDRESS.0]),
        (5, &[99, 2 | 1 << 32, 7, 0x10, 0x20]),
        (6, &[]),
        (7, &[]),
        (8, &[ADDRESS.0, 99]),
        (9, &[ADDRESS.0]),
        (10, &[4712]),
        (11, &[ADDRESS.0, 8192, 99]),
        (12, &[ADDRESS.0, 8192, 0]),
        (13, &[]),
        (14, &[ADDRESS.0, 8192, 99, 0x1000, 4096, 1]),
        (15, &[99, 5000, 400, 32, 30, 3 | 9 << 32, 77]),
        (16, &[0; 7]),
        (17, &[70, 3, 9, 1]),
        (18, &[ADDRESS.0]),
        (19, &[7 << 32 | 33, 77, 0, 9]),
        (20, &[ADDRESS.0, 4096, 99]),
        (21, &[ADDRESS.0]),
        (22, &[]),
        (24, &[32, 10, 160]),
        (27, &[ADDRESS.0, 4096, 99, 4096, 1 << 19, 0]),
        (28, &[ADDRESS.0]),
    ];
    for (kind, words) in records {
        let complete = record(kind, words);
        let event = decode(&complete);
        assert!(event.is_ok(), "{kind}");
        for length in 0..complete.len() {
            assert_eq!(decode(&complete[..length]), Err(BadRecord), "{length} bytes of {kind}");
        }
        let longer = [complete.as_slice(), &[0xff; 8]].concat();
        assert_eq!(decode(&longer), event, "{kind}");
    }
}

#[test]
fn stack_has_at_most_256_frames() {
    for count in [0, 255, 256, 257, 1 << 20, u64::from(u32::MAX)] {
        let frames = count.min(300);
        let words: Vec<_> = [99, count | 1 << 32, 7].into_iter().chain(0x1000..0x1000 + frames).collect();
        let complete = record(5, &words);
        if count > 256 {
            assert_eq!(decode(&complete), Err(BadRecord), "{count}");
            continue;
        }
        let EventKind::Stack { stack, .. } = decoded(&complete) else { panic!("no stack") };
        assert_eq!(stack.frames.len() as u64, count);
        if count > 0 {
            assert_eq!(decode(&complete[..complete.len() - 1]), Err(BadRecord), "{count}");
        }
    }
}

#[test]
fn numbers_have_limits() {
    let is_decoded = |kind, words: &[u64]| decode(&record(kind, words)).is_ok();
    for (size, is_possible) in [(0, true), ((1 << 57) - 1, true), (1 << 57, false), (u64::MAX, false)] {
        assert_eq!(is_decoded(1, &[ADDRESS.0, size, 99]), is_possible, "block of {size} bytes");
    }
    for (begin, is_possible) in [(u64::MAX - 8193, true), (u64::MAX - 8192, true), (u64::MAX - 8191, false)] {
        assert_eq!(is_decoded(11, &[begin, 8192, 99]), is_possible, "mapping from {begin:#x}");
        assert_eq!(is_decoded(12, &[begin, 8192, 0]), is_possible, "unmap from {begin:#x}");
        assert_eq!(is_decoded(14, &[begin, 8192, 99, 0x1000, 4096, 1]), is_possible, "move to {begin:#x}");
        assert_eq!(is_decoded(14, &[0x1000, 4096, 99, begin, 8192, 1]), is_possible, "move from {begin:#x}");
    }
    for (pages, is_possible) in [((1 << 52) - 1, true), (1 << 52, false), (u64::MAX, false)] {
        assert_eq!(is_decoded(17, &[70, 3, pages, 1]), is_possible, "{pages} pages");
    }
    for (kind, is_known) in [(23, false), (24, true), (28, true), (29, false), (0xffff, false)] {
        assert_eq!(is_decoded(kind, &[0; 8]), is_known, "kind {kind}");
    }
}

#[test]
fn unknown_kinds_are_refused() {
    assert_eq!(decode(&[]), Err(BadRecord));
    assert_eq!(decode(&header(0)), Err(BadRecord));
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(record in proptest::collection::vec(any::<u8>(), 0..2200), kind in 0u32..29) {
        let _ = decode(&record);
        let mut known = record;
        if known.len() >= 4 {
            known[..4].copy_from_slice(&kind.to_ne_bytes());
        }
        let _ = decode(&known);
    }
}
