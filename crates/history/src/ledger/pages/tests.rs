use memtrace_model::{PartKeys, StackId};

use super::super::budget::Settings;
use super::*;

const P: AbsAddr = AbsAddr(0x7f00_0000_5000);
const READ: Touch = Touch { present: false, write: false, huge: false };
const WRITE: Touch = Touch { present: false, write: true, huge: false };
const COPY: Touch = Touch { present: true, write: true, huge: false };
const HUGE_WRITE: Touch = Touch { huge: true, ..WRITE };
const HUGE_COPY: Touch = Touch { huge: true, ..COPY };
const PID: Pid = Pid(4711);
/// First page of a huge page.
const H: AbsAddr = AbsAddr(0x7f00_0020_0000);

fn budget(blocks: u64) -> Budget {
    sampled_budget(blocks, 1)
}

fn sampled_budget(blocks: u64, page_sample: u32) -> Budget {
    Budget::new(&Settings {
        blocks,
        stacks: 100,
        processes: 1,
        track_peak: false,
        older: None,
        lifetimes: false,
        page_sample,
        parts: PartKeys::NONE,
        accounts: None,
    })
}

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

/// Returns the number of live pages and the number of touches of a stack.
fn numbers(pages: &Pages, stack: u64) -> (u64, u64) {
    let usage = pages.usage(None).by_stack[&key(stack)];
    assert_eq!(usage.live().bytes, Bytes(usage.live().count * PAGE.0));
    (usage.live().count, usage.alloc().count)
}

/// Returns the stack that has page `P` after these touches by stacks 10, 11 and so on.
fn owner(touches: &[Touch]) -> StackKey {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    for (stack, touch) in (10..).zip(touches) {
        pages.touch(PID, P, *touch, key(stack), &mut budget);
    }
    pages.usage(None).touched[0].key
}

#[test]
fn a_page_is_attributed_to_the_fault_that_provided_it() {
    assert_eq!(owner(&[WRITE]), key(10));
    // The page was released in between.
    assert_eq!(owner(&[WRITE, READ]), key(11));
    // The first write to a page that was only read.
    assert_eq!(owner(&[READ, COPY]), key(11));
    assert_eq!(owner(&[READ, COPY, COPY]), key(11));
    // A write after a fork: the process had written to the page before.
    assert_eq!(owner(&[WRITE, COPY]), key(10));
    // The first touch was before tracing began.
    assert_eq!(owner(&[COPY]), key(10));
}

/// The sample contains all touches of a page or none, so three touches of one page have a larger variance than touches of
/// three pages.
#[test]
fn repeated_touches_of_a_page_increase_the_variance() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    for page in [P.0, P.0, P.0, P.0 + PAGE.0] {
        pages.touch(PID, AbsAddr(page), WRITE, key(10), &mut budget);
    }
    let squares = |pages: &Pages, ended| pages.usage(ended).by_stack[&key(10)][Quantity::AllocVariance];
    assert_eq!(squares(&pages, None), 3 * 3 + 1);
    // A forked child has two pages with one touch each.
    let mut copy = pages.fork(&mut budget).unwrap();
    assert_eq!(squares(&copy, None), 1 + 1);
    copy.touch(PID, P, READ, key(10), &mut budget);
    assert_eq!(squares(&copy, None), 2 * 2 + 1);
    assert_eq!(squares(&copy, Some(ImageEnd::Exit)), 3);
}

#[test]
fn repeated_touches_count_as_release_and_allocation() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    pages.touch(PID, P, WRITE, key(10), &mut budget);
    pages.touch(PID, AbsAddr(P.0 + PAGE.0 + 123), WRITE, key(10), &mut budget);
    pages.touch(PID, P, WRITE, key(11), &mut budget);
    assert_eq!((numbers(&pages, 10), numbers(&pages, 11)), ((1, 2), (1, 1)));
    assert_eq!((pages.count(), budget.pages), (2, 2));
    let touched = |begin, stack| Touched { begin: AbsAddr(begin), pages: 1, key: key(stack), huge: false };
    assert_eq!(pages.usage(None).touched, [touched(P.0, 11), touched(P.0 + PAGE.0, 10)]);
}

#[test]
fn adjacent_pages_of_one_stack_are_merged() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    for page in [2, 0, 1, 4] {
        pages.touch(PID, AbsAddr(P.0 + page * PAGE.0), WRITE, key(10), &mut budget);
    }
    let touched = |page, pages| Touched { begin: AbsAddr(P.0 + page * PAGE.0), pages, key: key(10), huge: false };
    assert_eq!(pages.usage(None).touched, [touched(0, 3), touched(4, 1)]);
}

#[test]
fn major_faults_count_for_the_stack_of_the_page() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    pages.touch(PID, P, READ, key(10), &mut budget);
    pages.add_major_fault(AbsAddr(P.0 + 8));
    pages.add_major_fault(AbsAddr(P.0 + PAGE.0));
    assert_eq!(pages.usage(None).by_stack[&key(10)][Quantity::MajorFaults], 1);
}

#[test]
fn a_forked_child_has_the_same_pages_until_it_writes() {
    let (mut parent, mut budget) = (Pages::default(), budget(10));
    parent.touch(PID, P, WRITE, key(10), &mut budget);
    parent.touch(PID, AbsAddr(P.0 + PAGE.0), WRITE, key(10), &mut budget);
    let mut child = parent.fork(&mut budget).unwrap();
    assert_eq!(budget.pages, 4);
    child.touch(PID, P, COPY, key(11), &mut budget);
    parent.touch(PID, P, COPY, key(12), &mut budget);
    assert_eq!((numbers(&child, 10), numbers(&child, 11)), ((1, 2), (1, 1)));
    assert_eq!(numbers(&parent, 10), (2, 2));
    assert!(!parent.usage(None).by_stack.contains_key(&key(12)));
}

#[test]
fn pages_beyond_the_maximum_are_lost() {
    let (mut pages, mut budget) = (Pages::default(), budget(1));
    pages.touch(PID, P, WRITE, key(10), &mut budget);
    pages.touch(PID, AbsAddr(P.0 + PAGE.0), WRITE, key(10), &mut budget);
    assert!(pages.fork(&mut budget).is_none());
    assert_eq!(budget.losses.get(LossReason::LedgerFull), 2);
    assert_eq!(pages.count(), 1);
}

#[test]
fn an_ended_image_has_released_all_pages() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    pages.touch(PID, P, WRITE, key(10), &mut budget);
    let usage = pages.usage(Some(ImageEnd::Exit));
    assert_eq!((usage.total.live().count, usage.total.alloc().count, usage.total.free().count), (0, 1, 1));
    assert!(usage.touched.is_empty());
}

#[test]
fn moved_pages_keep_their_stack() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    let page = |number| AbsAddr(P.0 + number * PAGE.0);
    pages.touch(PID, page(0), WRITE, key(10), &mut budget);
    pages.touch(PID, page(2), READ, key(11), &mut budget);
    pages.touch(PID, page(100), WRITE, key(12), &mut budget);
    pages.move_range(PID, [page(0), page(100)], Bytes(3 * PAGE.0), &mut budget);
    assert_eq!((pages.count(), budget.pages), (2, 2));
    let touched = |number, stack| Touched { begin: page(number), pages: 1, key: key(stack), huge: false };
    assert_eq!(pages.usage(None).touched, [touched(100, 10), touched(102, 11)]);
    assert_eq!(numbers(&pages, 12), (0, 1));
    // The state moves with the page.
    pages.touch(PID, page(102), COPY, key(13), &mut budget);
    pages.touch(PID, page(100), COPY, key(13), &mut budget);
    assert_eq!((numbers(&pages, 10), numbers(&pages, 13)), ((1, 1), (1, 1)));
}

#[test]
fn an_ended_child_reports_only_its_own_touches() {
    let (mut parent, mut budget) = (Pages::default(), budget(10));
    parent.touch(PID, P, WRITE, key(10), &mut budget);
    let mut child = parent.fork(&mut budget).unwrap();
    child.touch(PID, AbsAddr(P.0 + PAGE.0), WRITE, key(11), &mut budget);
    let usage = child.usage(Some(ImageEnd::Exec));
    assert_eq!(usage.by_stack.keys().collect::<Vec<_>>(), [&key(11)]);
    assert_eq!(usage.total.alloc().count, 1);
}

#[test]
fn touched_pages_of_a_large_reservation_are_moved() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    let page = |number| AbsAddr(P.0 + number * PAGE.0);
    for number in [3, 70_000] {
        pages.touch(PID, page(number), WRITE, key(10), &mut budget);
    }
    pages.move_range(PID, [page(0), page(1 << 40)], Bytes(PAGE.0 << 38), &mut budget);
    let touched = |number: u64| Touched { begin: page((1 << 40) + number), pages: 1, key: key(10), huge: false };
    assert_eq!(pages.usage(None).touched, [touched(3), touched(70_000)]);
}

#[test]
fn a_merged_stack_adds_its_touches_to_the_others() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    pages.touch(PID, P, READ, key(10), &mut budget);
    pages.add_major_fault(P);
    pages.touch(PID, P, WRITE, key(11), &mut budget);
    let before = pages.usage(None);
    let idle: Vec<_> = pages.totals().idle(|_| false).map(|(key, usage)| (key, usage.alloc().bytes)).collect();
    assert_eq!(idle, [(key(10), PAGE)]);
    assert!(pages.merge_stack(key(10)) && !pages.merge_stack(key(10)));
    let after = pages.usage(None);
    let other = StackKey::from(StackId::OTHER);
    assert_eq!(after.by_stack.keys().collect::<Vec<_>>(), [&other, &key(11)]);
    assert_eq!(after.by_stack[&other], before.by_stack[&key(10)]);
    assert_eq!((after.total, after.merged_stacks), (before.total, 1));
    // A vacant index has the key [`StackId::FAILED`] too, but the totals of `FAILED` are not vacant.
    let failed = StackKey::from(StackId::FAILED);
    pages.touch(PID, AbsAddr(P.0 + 2 * PAGE.0), WRITE, failed, &mut budget);
    pages.touch(PID, AbsAddr(P.0 + 3 * PAGE.0), WRITE, key(13), &mut budget);
    pages.touch(PID, AbsAddr(P.0 + 3 * PAGE.0), WRITE, key(11), &mut budget);
    assert!(pages.merge_stack(key(13)));
    assert_eq!(pages.usage(None).by_stack[&failed][Quantity::AllocVariance], 1);
    // The index of the merged stack is used again.
    pages.touch(PID, AbsAddr(P.0 + PAGE.0), WRITE, key(12), &mut budget);
    assert_eq!((numbers(&pages, 12), pages.usage(None).by_stack[&key(12)][Quantity::MajorFaults]), ((1, 1), 0));
}

/// Returns the address of a small page in the huge page at `H`, or after it.
fn inside(number: u64) -> AbsAddr {
    AbsAddr(H.0 + number * PAGE.0)
}

/// Returns the bytes of live and of touched huge pages of a stack.
fn huge_bytes(pages: &Pages, stack: u64) -> [u64; 2] {
    let usage = pages.usage(None).by_stack[&key(stack)];
    [usage[Quantity::HugeLiveBytes], usage[Quantity::HugeAllocBytes]]
}

fn huge_range(begin: AbsAddr, stack: u64) -> Touched {
    Touched { begin, pages: PAGES_OF_HUGE, key: key(stack), huge: true }
}

#[test]
fn a_huge_page_counts_once_at_its_fault() {
    let (mut pages, mut budget) = (Pages::default(), sampled_budget(10, 64));
    // The page of the fault is in the sample.
    pages.touch(PID, inside(77), WRITE, key(10), &mut budget);
    pages.touch(PID, inside(77), HUGE_WRITE, key(10), &mut budget);
    assert_eq!(numbers(&pages, 10), (512, 512));
    assert_eq!(huge_bytes(&pages, 10), [HUGE_PAGE.0; 2]);
    assert_eq!(pages.usage(None).by_stack[&key(10)][Quantity::AllocVariance], 0);
    assert_eq!((pages.count(), budget.pages), (1, 1));
    assert_eq!(pages.usage(None).touched, [huge_range(H, 10)]);
    // A write to the present page changes nothing.
    pages.touch(PID, inside(3), COPY, key(11), &mut budget);
    pages.touch(PID, inside(3), HUGE_COPY, key(11), &mut budget);
    assert_eq!((numbers(&pages, 10), pages.usage(None).by_stack.len()), ((512, 512), 1));
}

#[test]
fn a_huge_page_releases_the_small_pages_before_it() {
    let (mut pages, mut budget) = (Pages::default(), budget(10));
    for page in [1, 2] {
        pages.touch(PID, inside(page), WRITE, key(10), &mut budget);
    }
    pages.touch(PID, inside(2), WRITE, key(11), &mut budget);
    pages.touch(PID, inside(2), HUGE_WRITE, key(11), &mut budget);
    assert_eq!((numbers(&pages, 10), numbers(&pages, 11)), ((0, 2), (512, 512)));
    assert_eq!((pages.count(), budget.pages), (1, 1));
}

#[test]
fn a_huge_page_that_is_mapped_again_was_released() {
    let (mut pages, mut budget) = (Pages::default(), sampled_budget(10, 64));
    pages.touch(PID, inside(0), HUGE_WRITE, key(10), &mut budget);
    pages.touch(PID, inside(9), HUGE_WRITE, key(11), &mut budget);
    assert_eq!((numbers(&pages, 10), huge_bytes(&pages, 10)), ((0, 512), [0, HUGE_PAGE.0]));
    assert_eq!((numbers(&pages, 11), huge_bytes(&pages, 11)), ((512, 512), [HUGE_PAGE.0; 2]));
    let ended = pages.usage(Some(ImageEnd::Exit)).by_stack[&key(11)];
    assert_eq!([ended[Quantity::HugeLiveBytes], ended[Quantity::HugeAllocBytes]], [0, HUGE_PAGE.0]);
}

#[test]
fn a_fault_inside_of_a_huge_page_splits_it_into_its_sample() {
    for one_in in [1, 8] {
        let (mut pages, mut budget) = (Pages::default(), sampled_budget(1000, one_in));
        let sampled: Vec<_> = pages_of(H).filter(|page| is_sampled(PID.0, page.0, one_in)).collect();
        let count = sampled.len() as u64;
        pages.touch(PID, sampled[0], HUGE_WRITE, key(10), &mut budget);
        pages.touch(PID, sampled[1], WRITE, key(11), &mut budget);
        assert_eq!((numbers(&pages, 10), numbers(&pages, 11)), ((count - 1, count), (1, 1)));
        assert_eq!((huge_bytes(&pages, 10), budget.pages), ([0, 0], count));
        assert_eq!(pages.usage(None).by_stack[&key(10)][Quantity::AllocVariance], count);
        assert!(pages.usage(None).touched.iter().all(|touched| !touched.huge));
    }
}

#[test]
fn a_huge_page_moves_as_a_whole_or_is_split() {
    let moved = |from: u64, to: u64, count: u64| {
        let (mut pages, mut budget) = (Pages::default(), budget(1000));
        pages.touch(PID, inside(0), HUGE_WRITE, key(10), &mut budget);
        pages.touch(PID, inside(5 * 512 + 1), WRITE, key(11), &mut budget);
        pages.move_range(PID, [inside(from), inside(to)], Bytes(count * PAGE.0), &mut budget);
        assert_eq!(budget.pages, pages.count());
        pages.usage(None).touched
    };
    let small = |begin, pages| Touched { begin: inside(begin), pages, key: key(10), huge: false };
    // The page of the other stack was at the new address.
    assert_eq!(moved(0, 5 * 512, 512), [huge_range(inside(5 * 512), 10)]);
    assert_eq!(moved(0, 512 + 1, 512)[0], small(512 + 1, 512));
    // The moved part is next to the rest.
    assert_eq!(moved(0, 512, 100)[0], small(100, 512));
}

#[test]
fn a_forked_child_has_the_same_huge_pages_until_it_writes() {
    let (mut parent, mut budget) = (Pages::default(), budget(1000));
    parent.touch(PID, inside(0), HUGE_WRITE, key(10), &mut budget);
    let mut child = parent.fork(&mut budget).unwrap();
    assert_eq!((budget.pages, numbers(&child, 10)), (2, (512, 512)));
    // The kernel splits the shared page, and copies one small page.
    child.touch(PID, inside(7), COPY, key(11), &mut budget);
    assert_eq!((numbers(&child, 10), numbers(&child, 11)), ((511, 512), (1, 1)));
    let usage = child.usage(Some(ImageEnd::Exit));
    assert_eq!(usage.by_stack.keys().collect::<Vec<_>>(), [&key(11)]);
    assert_eq!(usage.total.alloc().count, 1);
    // The parent's page belongs to the parent alone again, so a write makes it writable.
    parent.touch(PID, inside(0), COPY, key(12), &mut budget);
    parent.touch(PID, inside(0), HUGE_COPY, key(12), &mut budget);
    assert_eq!(numbers(&parent, 10), (512, 512));
}
