use super::*;
use crate::model::{AbsAddr, StackId, StackUsage};

const BASE: u64 = 0x7f00_0000_0000;

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

fn at(page: u64) -> AbsAddr {
    AbsAddr(BASE + page * PAGE.0)
}

/// Books in which each `(stack, first, pages)` was touched.
fn books(touched: &[(u64, u64, u64)]) -> ImageUsage {
    let mut usage = ImageUsage::default();
    for &(stack, begin, pages) in touched {
        let amount = Amount { bytes: Bytes(pages * PAGE.0), count: pages };
        let of_stack: &mut StackUsage = usage.by_stack.entry(key(stack)).or_default();
        of_stack.usage += Usage { live: amount, alloc: amount, free: Amount::default(), ..Usage::default() };
        usage.touched.push(Touched { begin: at(begin), pages, key: key(stack) });
    }
    usage
}

fn range(begin: u64, end: u64) -> ResidentRange {
    ResidentRange { begin: at(begin), end: at(end), kind: MappingKind::Anonymous, huge: false }
}

fn counted<'a>(now: &'a [ResidentRange], before: &'a [ResidentRange]) -> Option<Pages<'a>> {
    Some(Pages { now, before, one_in: 1, by_kind: false })
}

/// Live, touched and released pages of a stack.
fn pages(usage: &ImageUsage, stack: u64) -> [u64; 3] {
    let Usage { live, alloc, free, .. } = usage.by_stack[&key(stack)].usage;
    for amount in [live, alloc, free] {
        assert_eq!(amount.bytes.0, amount.count * PAGE.0);
    }
    [live.count, alloc.count, free.count]
}

/// Total, with a stack, before and other pages.
fn resident(usage: &ImageUsage) -> [u64; 4] {
    let sum = usage.resident.as_ref().unwrap().sum();
    [sum.total, sum.with_stack, sum.before, sum.other()].map(|bytes| bytes.0 / PAGE.0)
}

#[test]
fn what_was_touched_and_is_there_is_live_and_the_rest_was_released() {
    let mut usage = books(&[(7, 0, 100), (8, 100, 50), (9, 400, 10)]);
    settle(&mut usage, counted(&[range(0, 30), range(90, 120), range(149, 150)], &[]), 1);
    assert_eq!(pages(&usage, 7), [40, 100, 60]);
    assert_eq!(pages(&usage, 8), [21, 50, 29]);
    assert_eq!(pages(&usage, 9), [0, 10, 10]);
    assert_eq!(usage.total.live.count, 61);
    assert_eq!(resident(&usage), [61, 61, 0, 0]);
    assert!(usage.touched.is_empty());
}

#[test]
fn what_was_there_before_belongs_to_nobody_unless_it_is_touched_anew() {
    let mut usage = books(&[(7, 4, 2)]);
    settle(&mut usage, counted(&[range(0, 16)], &[range(0, 16)]), 1);
    assert_eq!(pages(&usage, 7), [2, 2, 0]);
    assert_eq!(resident(&usage), [16, 2, 14, 0]);
}

#[test]
fn what_comes_along_within_the_window_belongs_to_whose_touch_is_nearest_before_it_or_else_behind() {
    let mut usage = books(&[(7, 3, 1), (8, 10, 1)]);
    settle(&mut usage, counted(&[range(0, 32)], &[range(12, 13)]), 1);
    // Pages 0 to 2 and 4 to 9 are 7's; 11 and 13 to 15 are 8's. Behind page 16 nobody has touched anything.
    assert_eq!(pages(&usage, 7), [10, 10, 0]);
    assert_eq!(pages(&usage, 8), [5, 5, 0]);
    assert_eq!(resident(&usage), [32, 15, 1, 16]);
}

#[test]
fn a_page_that_is_gone_has_still_brought_those_around_it() {
    let mut usage = books(&[(7, 3, 1)]);
    settle(&mut usage, counted(&[range(4, 16)], &[]), 1);
    assert_eq!(pages(&usage, 7), [12, 13, 1]);
}

#[test]
fn a_large_page_belongs_to_whoever_touched_it_first_anywhere() {
    let huge = |begin, end| ResidentRange { huge: true, ..range(begin, end) };
    let mut usage = books(&[(7, 300, 1), (8, 512, 1)]);
    settle(&mut usage, counted(&[huge(0, 1536)], &[]), 1);
    assert_eq!(pages(&usage, 7), [512, 512, 0]);
    assert_eq!(pages(&usage, 8), [512, 512, 0]);
    assert_eq!(resident(&usage), [1536, 1024, 0, 512]);
}

#[test]
fn what_has_ended_has_nothing_resident_and_keeps_its_numbers() {
    let mut usage = books(&[(7, 0, 4)]);
    usage.by_stack.get_mut(&key(7)).unwrap().usage = Usage {
        live: Amount::default(),
        alloc: Amount { bytes: Bytes(4 * PAGE.0), count: 4 },
        free: Amount { bytes: Bytes(4 * PAGE.0), count: 4 },
        ..Usage::default()
    };
    settle(&mut usage, None, 1);
    assert_eq!(pages(&usage, 7), [0, 4, 4]);
    assert_eq!(usage.resident, None);
}

#[test]
fn kinds_of_memory_are_told_apart_and_what_was_released_is_of_none() {
    let file = ResidentRange { kind: MappingKind::File, ..range(64, 80) };
    let mut usage = books(&[(7, 0, 10), (7, 64, 16)]);
    settle(&mut usage, Some(Pages { by_kind: true, ..counted(&[range(0, 4), file], &[]).unwrap() }), 1);
    let part = |kind| StackKey { part: Partition::Memory(kind), ..key(7) };
    assert_eq!(usage.by_stack[&part(MappingKind::Anonymous)].usage.live.count, 4);
    assert_eq!(usage.by_stack[&part(MappingKind::File)].usage.live.count, 16);
    assert_eq!(pages(&usage, 7), [0, 6, 6]);
    assert_eq!(usage.total.live.count, 20);
    assert_eq!(usage.total.alloc.count, 26);
}

#[test]
fn a_sample_stands_for_all_and_says_how_far_it_may_be_off() {
    let mut usage = books(&[(7, 0, 100)]);
    usage.by_stack.get_mut(&key(7)).unwrap().major_faults = 3;
    settle(&mut usage, Some(Pages { one_in: 10, ..counted(&[range(0, 50), range(200, 1000)], &[]).unwrap() }), 10);
    assert_eq!(pages(&usage, 7), [500, 1000, 500]);
    let stack = usage.by_stack[&key(7)];
    assert_eq!((stack.major_faults, stack.variance.live), (30, 50 * 10 * 9));
    // What came along with a page that is not in the sample has no stack.
    assert_eq!(resident(&usage), [850, 500, 0, 350]);
}

#[test]
fn of_what_is_mapped_it_is_known_how_much_is_resident() {
    let mut usage = books(&[(7, 0, 100), (8, 100, 50), (7, 400, 10)]);
    note_resident(&mut usage, &[range(0, 30), range(90, 120), range(149, 405)]);
    let resident = |stack| usage.by_stack[&key(stack)].resident.0 / PAGE.0;
    assert_eq!((resident(7), resident(8)), (45, 21));
    assert!(usage.touched.is_empty());
}

#[test]
fn a_large_page_in_a_sample_is_whole_where_one_touch_brought_it_and_not_where_small_pages_were_put_together() {
    let large = ResidentRange { huge: true, ..range(512, 1024) };
    let settled = |touched: &[(u64, u64, u64)]| {
        let mut usage = books(touched);
        settle(&mut usage, Some(Pages { one_in: 10, ..counted(&[large], &[]).unwrap() }), 10);
        (pages(&usage, 7)[0], usage.by_stack[&key(7)].variance.live, usage.resident.unwrap().sum().variance)
    };
    // 512 pages that are in the sample all at once: the square of their number but for the one that was touched, which stands
    // for itself.
    let squares = 511 * 512 + 1;
    assert_eq!(settled(&[(7, 600, 1)]), (5120, squares * 10 * 9, squares * 10 * 9));
    assert_eq!(settled(&[(7, 600, 1), (7, 700, 2)]), (30, 3 * 10 * 9, 3 * 10 * 9));
}
