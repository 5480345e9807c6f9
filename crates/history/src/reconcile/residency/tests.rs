use memtrace_model::{AbsAddr, Quantities, Quantity, StackId};

use super::*;

const BASE: u64 = 0x7f00_0000_0000;

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

fn at(page: u64) -> AbsAddr {
    AbsAddr(BASE + page * PAGE.0)
}

/// Returns the totals of touched ranges. A range is `(stack, first page, number of pages)`.
fn totals(touched: &[(u64, u64, u64)]) -> ImageUsage {
    let mut usage = ImageUsage::default();
    for &(stack, begin, pages) in touched {
        let amount = Amount { bytes: Bytes(pages * PAGE.0), count: pages };
        let touched =
            Quantities::ZERO.with_amount(Quantity::LiveBytes, amount).with_amount(Quantity::AllocBytes, amount);
        *usage.by_stack.entry(key(stack)).or_default() += touched;
        usage.touched.push(Touched { begin: at(begin), pages, key: key(stack), huge: false });
    }
    usage
}

fn range(begin: u64, end: u64) -> ResidentRange {
    ResidentRange { begin: at(begin), end: at(end), kind: MappingKind::Anonymous, huge: false }
}

fn counted<'a>(now: &'a [ResidentRange], before: &'a [ResidentRange]) -> Option<Pages<'a>> {
    Some(Pages { pid: Pid(4711), now, before, one_in: 1, counts_huge: false, by_kind: false })
}

/// Returns the numbers of live, touched and released pages of a stack.
fn pages(usage: &ImageUsage, stack: u64) -> [u64; 3] {
    let usage = &usage.by_stack[&key(stack)];
    let [live, alloc, free] = [usage.live(), usage.alloc(), usage.free()];
    for amount in [live, alloc, free] {
        assert_eq!(amount.bytes.0, amount.count * PAGE.0);
    }
    [live.count, alloc.count, free.count]
}

/// Returns the numbers of resident pages: all, with a stack, resident when tracing began, and others.
fn resident(usage: &ImageUsage) -> [u64; 4] {
    let sum = usage.resident.as_ref().unwrap().sum();
    [sum.total, sum.with_stack, sum.before, sum.other()].map(|bytes| bytes.0 / PAGE.0)
}

#[test]
fn touched_pages_that_are_resident_are_live_others_released() {
    let mut usage = totals(&[(7, 0, 100), (8, 100, 50), (9, 400, 10)]);
    reconcile_pages(&mut usage, counted(&[range(0, 30), range(90, 120), range(149, 150)], &[]), 1);
    assert_eq!(pages(&usage, 7), [40, 100, 60]);
    assert_eq!(pages(&usage, 8), [21, 50, 29]);
    assert_eq!(pages(&usage, 9), [0, 10, 10]);
    assert_eq!(usage.total.live().count, 61);
    assert_eq!(resident(&usage), [61, 61, 0, 0]);
    assert!(usage.touched.is_empty());
}

#[test]
fn resident_pages_of_a_forked_child_do_not_exceed_its_totals() {
    let mut usage = totals(&[(7, 0, 2)]);
    // The pages were inherited from the parent without its totals.
    usage.touched.push(Touched { begin: at(2), pages: 2, key: key(7), huge: false });
    reconcile_pages(&mut usage, counted(&[range(0, 4)], &[]), 1);
    assert_eq!(pages(&usage, 7), [2, 2, 0]);
    assert_eq!(resident(&usage), [4, 2, 0, 2]);
    assert_eq!(usage.total.live().count, 2);
}

#[test]
fn pages_resident_before_have_no_stack_until_touched_again() {
    let mut usage = totals(&[(7, 4, 2)]);
    reconcile_pages(&mut usage, counted(&[range(0, 16)], &[range(0, 16)]), 1);
    assert_eq!(pages(&usage, 7), [2, 2, 0]);
    assert_eq!(resident(&usage), [16, 2, 14, 0]);
}

#[test]
fn pages_mapped_along_belong_to_the_nearest_touch_in_the_window() {
    let mut usage = totals(&[(7, 3, 1), (8, 10, 1)]);
    reconcile_pages(&mut usage, counted(&[range(0, 32)], &[range(12, 13)]), 1);
    // Pages 0 to 2 and 4 to 9 belong to stack 7, pages 11 and 13 to 15 to stack 8. No page from 16 on was touched.
    assert_eq!(pages(&usage, 7), [10, 10, 0]);
    assert_eq!(pages(&usage, 8), [5, 5, 0]);
    assert_eq!(resident(&usage), [32, 15, 1, 16]);
}

#[test]
fn pages_mapped_along_outlive_the_touched_page() {
    let mut usage = totals(&[(7, 3, 1)]);
    reconcile_pages(&mut usage, counted(&[range(4, 16)], &[]), 1);
    assert_eq!(pages(&usage, 7), [12, 13, 1]);
}

#[test]
fn a_huge_page_belongs_to_the_stack_that_touched_it_anywhere() {
    let huge = |begin, end| ResidentRange { huge: true, ..range(begin, end) };
    let mut usage = totals(&[(7, 300, 1), (8, 512, 1)]);
    reconcile_pages(&mut usage, counted(&[huge(0, 1536)], &[]), 1);
    assert_eq!(pages(&usage, 7), [512, 512, 0]);
    assert_eq!(pages(&usage, 8), [512, 512, 0]);
    assert_eq!(resident(&usage), [1536, 1024, 0, 512]);
}

#[test]
fn an_exited_process_keeps_its_totals_without_resident_pages() {
    let mut usage = totals(&[(7, 0, 4)]);
    *usage.by_stack.get_mut(&key(7)).unwrap() = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, Amount::default())
        .with_amount(Quantity::AllocBytes, Amount { bytes: Bytes(4 * PAGE.0), count: 4 })
        .with_free(Amount { bytes: Bytes(4 * PAGE.0), count: 4 });
    reconcile_pages(&mut usage, None, 1);
    assert_eq!(pages(&usage, 7), [0, 4, 4]);
    assert_eq!(usage.resident, None);
}

#[test]
fn resident_pages_are_grouped_by_kind_released_ones_are_not() {
    let file = ResidentRange { kind: MappingKind::File, ..range(64, 80) };
    let mut usage = totals(&[(7, 0, 10), (7, 64, 16)]);
    reconcile_pages(&mut usage, Some(Pages { by_kind: true, ..counted(&[range(0, 4), file], &[]).unwrap() }), 1);
    let part = |kind| StackKey { part: Part::WHOLE.with_memory(kind), ..key(7) };
    assert_eq!(usage.by_stack[&part(MappingKind::Anonymous)].live().count, 4);
    assert_eq!(usage.by_stack[&part(MappingKind::File)].live().count, 16);
    assert_eq!(pages(&usage, 7), [0, 6, 6]);
    assert_eq!(usage.total.live().count, 20);
    assert_eq!(usage.total.alloc().count, 26);
}

#[test]
fn a_sample_is_scaled_and_has_a_variance() {
    let mut usage = totals(&[(7, 0, 100)]);
    usage.by_stack.get_mut(&key(7)).unwrap()[Quantity::MajorFaults] = 3;
    reconcile_pages(
        &mut usage,
        Some(Pages { one_in: 10, ..counted(&[range(0, 50), range(200, 1000)], &[]).unwrap() }),
        10,
    );
    assert_eq!(pages(&usage, 7), [500, 1000, 500]);
    let stack = usage.by_stack[&key(7)];
    assert_eq!((stack[Quantity::MajorFaults], stack[Quantity::LiveVariance]), (30, 50 * 10 * 9));
    // Pages mapped along with a page that is not in the sample have no stack.
    assert_eq!(resident(&usage), [850, 500, 0, 350]);
}

#[test]
fn resident_bytes_are_counted_by_the_stack_that_mapped_them() {
    let mut usage = totals(&[(7, 0, 100), (8, 100, 50), (7, 400, 10)]);
    set_resident_bytes(&mut usage, Some(&[range(0, 30), range(90, 120), range(149, 405)][..]));
    let resident = |stack| usage.by_stack[&key(stack)][Quantity::ResidentBytes] / PAGE.0;
    assert_eq!((resident(7), resident(8)), (45, 21));
    assert!(usage.touched.is_empty() && !usage.resident_is_unknown);
}

#[test]
fn resident_bytes_without_page_tables_are_unknown() {
    let mut usage = totals(&[(7, 0, 100)]);
    set_resident_bytes(&mut usage, None);
    assert!(usage.touched.is_empty() && usage.resident_is_unknown);
    let mut without_mappings = totals(&[]);
    set_resident_bytes(&mut without_mappings, None);
    assert!(!without_mappings.resident_is_unknown);
}

#[test]
fn a_sampled_huge_page_counts_whole_only_with_a_single_touch() {
    let large = ResidentRange { huge: true, ..range(512, 1024) };
    let reconciled = |touched: &[(u64, u64, u64)]| {
        let mut usage = totals(touched);
        reconcile_pages(&mut usage, Some(Pages { one_in: 10, ..counted(&[large], &[]).unwrap() }), 10);
        (pages(&usage, 7)[0], usage.by_stack[&key(7)][Quantity::LiveVariance], usage.resident.unwrap().sum().variance)
    };
    // Each of the 511 pages that were mapped along counts 512, because all of them are in the sample at once. The
    // touched page counts alone.
    let squares = 511 * 512 + 1;
    assert_eq!(reconciled(&[(7, 600, 1)]), (5120, squares * 10 * 9, squares * 10 * 9));
    assert_eq!(reconciled(&[(7, 600, 1), (7, 700, 2)]), (30, 3 * 10 * 9, 3 * 10 * 9));
}

/// Returns the totals of huge pages from page `begin` on. Stack 7 has touched them, and they were counted.
fn huge_totals(begin: u64, count: u64) -> ImageUsage {
    let mut usage = totals(&[(7, begin, count * PAGES_OF_HUGE.count)]);
    let stack = usage.by_stack.get_mut(&key(7)).unwrap();
    stack[Quantity::HugeLiveBytes] = count * HUGE;
    stack[Quantity::HugeAllocBytes] = count * HUGE;
    usage.touched[0].huge = true;
    usage
}

/// Returns resident pages in a sample of one page in 8, with huge pages that were counted.
fn counted_huge(now: &[ResidentRange]) -> Option<Pages<'_>> {
    Some(Pages { one_in: 8, counts_huge: true, ..counted(now, &[]).unwrap() })
}

/// Returns the number of pages from `begin` to `end` in the sample of [`counted_huge`].
fn in_sample(begin: u64, end: u64) -> u64 {
    (begin..end).filter(|&page| is_sampled(4711, at(page).0, 8)).count() as u64
}

#[test]
fn huge_pages_are_not_scaled_with_a_sample() {
    let mut usage = huge_totals(0, 3);
    let small = totals(&[(8, 4096, 10)]);
    usage.by_stack.extend(small.by_stack);
    usage.touched.extend(small.touched);
    let huge = ResidentRange { huge: true, ..range(0, 1024) };
    reconcile_pages(&mut usage, counted_huge(&[huge, range(4096, 4176)]), 8);
    assert_eq!((pages(&usage, 7), pages(&usage, 8)), ([1024, 1536, 512], [80, 80, 0]));
    let variances = [7, 8].map(|stack| usage.by_stack[&key(stack)][Quantity::LiveVariance]);
    assert_eq!(variances, [0, 10 * 8 * 7]);
    assert_eq!(resident(&usage), [1104, 1104, 0, 0]);
    let sum = usage.resident.unwrap().sum();
    assert_eq!((sum.counted, sum.variance), (Bytes(2 * HUGE), 10 * 8 * 7));
}

#[test]
fn a_split_huge_page_continues_as_its_sample() {
    let all = in_sample(0, 512);
    for left in [512, 100] {
        let mut usage = huge_totals(0, 1);
        reconcile_pages(&mut usage, counted_huge(&[range(0, left)]), 8);
        let live = in_sample(0, left);
        assert_eq!(pages(&usage, 7), [live * 8, all * 8, (all - live) * 8]);
        let stack = usage.by_stack[&key(7)];
        assert_eq!((stack[Quantity::LiveVariance], stack[Quantity::AllocVariance]), (live * 56, all * 56));
        assert_eq!((stack[Quantity::HugeLiveBytes], stack[Quantity::HugeAllocBytes]), (0, 0));
    }
    // Nothing is resident at the address of the huge page, so its count is kept.
    let mut usage = huge_totals(0, 1);
    reconcile_pages(&mut usage, counted_huge(&[range(512, 600)]), 8);
    assert_eq!(pages(&usage, 7), [0, 512, 512]);
}

#[test]
fn a_collapsed_huge_page_counts_as_its_touched_pages() {
    let large = |kind| ResidentRange { huge: true, kind, ..range(512, 1024) };
    let live = |kind| {
        let mut usage = totals(&[(7, 600, 1)]);
        reconcile_pages(&mut usage, counted_huge(&[large(kind)]), 8);
        pages(&usage, 7)[0]
    };
    // Huge pages of shared memory have no records of their own.
    assert_eq!([MappingKind::Anonymous, MappingKind::Shmem].map(live), [8, 4096]);
}

#[test]
fn counted_huge_pages_move_to_their_kind_of_memory() {
    let mut usage = huge_totals(0, 2);
    let huge = ResidentRange { huge: true, ..range(0, 512) };
    reconcile_pages(&mut usage, Some(Pages { by_kind: true, ..counted_huge(&[huge]).unwrap() }), 8);
    assert_eq!(pages(&usage, 7), [0, 512, 512]);
    let anonymous = StackKey { part: Part::WHOLE.with_memory(MappingKind::Anonymous), ..key(7) };
    let [live, alloc] = [usage.by_stack[&anonymous].live(), usage.by_stack[&anonymous].alloc()];
    assert_eq!((live, alloc), (PAGES_OF_HUGE, PAGES_OF_HUGE));
}

#[test]
fn a_negative_change_of_touches_is_raised() {
    let pages = |count: i64| {
        let count = count.cast_unsigned();
        Amount { bytes: Bytes(count.wrapping_mul(PAGE.0)), count }
    };
    let raised = |live, alloc| {
        let mut change = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, pages(live))
            .with_amount(Quantity::AllocBytes, pages(alloc));
        raise_touches(&mut change);
        change.alloc()
    };
    assert_eq!([raised(-3, -2), raised(5, -2), raised(1, 4)], [pages(0), pages(5), pages(4)]);
}

#[test]
fn removed_totals_of_a_sample_have_no_variance() {
    let pages = |count: i64| {
        let count = count.cast_unsigned();
        Amount { bytes: Bytes(count.wrapping_mul(PAGE.0)), count }
    };
    let touched = |count: i64| {
        let mut stack = Quantities::ZERO
            .with_amount(Quantity::AllocBytes, pages(count))
            .with(Quantity::AllocVariance, count.cast_unsigned());
        scale_stack(&mut stack, 8);
        stack
    };
    assert_eq!((touched(3).alloc(), touched(3)[Quantity::AllocVariance]), (pages(24), 168));
    // The totals of a stack and their removal cancel each other.
    let mut sum = touched(3);
    sum += touched(-3);
    assert!(sum.is_zero());
    let mut removed = touched(-3);
    raise_touches(&mut removed);
    assert_eq!((removed.alloc(), removed[Quantity::AllocVariance]), (pages(0), 0));
}
