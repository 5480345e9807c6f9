use super::super::Settings;
use super::*;
use crate::model::{PartitionBy, StackId};

const P: AbsAddr = AbsAddr(0x7f00_0000_5000);
const READ: Touch = Touch { present: false, write: false };
const WRITE: Touch = Touch { present: false, write: true };
const COPY: Touch = Touch { present: true, write: true };

fn room(blocks: u64) -> Room {
    Room::new(&Settings {
        blocks,
        stacks: 100,
        processes: 1,
        track_peak: false,
        older: None,
        parts: PartitionBy::Whole,
    })
}

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

/// Live and touched pages of a stack.
fn numbers(pages: &Pages, stack: u64) -> (u64, u64) {
    let usage = pages.usage(None).by_stack[&key(stack)].usage;
    assert_eq!(usage.live.bytes, Bytes(usage.live.count * PAGE.0));
    (usage.live.count, usage.alloc.count)
}

/// Who has page `P` after these touches, by stacks numbered from 10 on.
fn owner(touches: &[Touch]) -> StackKey {
    let (mut pages, mut room) = (Pages::default(), room(10));
    for (stack, touch) in (10..).zip(touches) {
        pages.touch(P, *touch, key(stack), &mut room);
    }
    pages.usage(None).touched[0].key
}

#[test]
fn a_page_belongs_to_who_made_it_the_process_own() {
    assert_eq!(owner(&[WRITE]), key(10));
    // It was gone, and is another one.
    assert_eq!(owner(&[WRITE, READ]), key(11));
    // What is only read is nobody's in particular, until it is written to.
    assert_eq!(owner(&[READ, COPY]), key(11));
    assert_eq!(owner(&[READ, COPY, COPY]), key(11));
    // Others have had it as a copy, and it is still whose it was.
    assert_eq!(owner(&[WRITE, COPY]), key(10));
    // From before tracing began.
    assert_eq!(owner(&[COPY]), key(10));
}

/// All touches of a page are in a sample, or none: three of one page say less than three of three pages.
#[test]
fn a_page_that_comes_and_goes_makes_an_estimate_less_certain() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    for page in [P.0, P.0, P.0, P.0 + PAGE.0] {
        pages.touch(AbsAddr(page), WRITE, key(10), &mut room);
    }
    let squares = |pages: &Pages, ended| pages.usage(ended).by_stack[&key(10)].variance.alloc;
    assert_eq!(squares(&pages, None), 3 * 3 + 1);
    // A copy has two pages, and knows nothing of what was before.
    let mut copy = pages.copied(&mut room).unwrap();
    assert_eq!(squares(&copy, None), 1 + 1);
    copy.touch(P, READ, key(10), &mut room);
    assert_eq!(squares(&copy, None), 2 * 2 + 1);
    assert_eq!(squares(&copy, Some(ImageEnd::Exit)), 3);
}

#[test]
fn touches_are_added_up_and_what_was_touched_anew_was_released() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    pages.touch(P, WRITE, key(10), &mut room);
    pages.touch(AbsAddr(P.0 + PAGE.0 + 123), WRITE, key(10), &mut room);
    pages.touch(P, WRITE, key(11), &mut room);
    assert_eq!((numbers(&pages, 10), numbers(&pages, 11)), ((1, 2), (1, 1)));
    assert_eq!((pages.count(), room.pages), (2, 2));
    let touched = |begin, stack| Touched { begin: AbsAddr(begin), pages: 1, key: key(stack) };
    assert_eq!(pages.usage(None).touched, [touched(P.0, 11), touched(P.0 + PAGE.0, 10)]);
}

#[test]
fn pages_side_by_side_of_one_stack_are_told_as_one() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    for page in [2, 0, 1, 4] {
        pages.touch(AbsAddr(P.0 + page * PAGE.0), WRITE, key(10), &mut room);
    }
    let touched = |page, pages| Touched { begin: AbsAddr(P.0 + page * PAGE.0), pages, key: key(10) };
    assert_eq!(pages.usage(None).touched, [touched(0, 3), touched(4, 1)]);
}

#[test]
fn what_waited_counts_for_the_stack_that_has_the_page() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    pages.touch(P, READ, key(10), &mut room);
    pages.waited(AbsAddr(P.0 + 8));
    pages.waited(AbsAddr(P.0 + PAGE.0));
    assert_eq!(pages.usage(None).by_stack[&key(10)].major_faults, 1);
}

#[test]
fn a_copy_has_the_same_pages_until_it_writes_to_them() {
    let (mut parent, mut room) = (Pages::default(), room(10));
    parent.touch(P, WRITE, key(10), &mut room);
    parent.touch(AbsAddr(P.0 + PAGE.0), WRITE, key(10), &mut room);
    let mut child = parent.copied(&mut room).unwrap();
    assert_eq!(room.pages, 4);
    child.touch(P, COPY, key(11), &mut room);
    parent.touch(P, COPY, key(12), &mut room);
    assert_eq!((numbers(&child, 10), numbers(&child, 11)), ((1, 2), (1, 1)));
    assert_eq!(numbers(&parent, 10), (2, 2));
    assert!(!parent.usage(None).by_stack.contains_key(&key(12)));
}

#[test]
fn beyond_the_bound_pages_are_counted_as_lost() {
    let (mut pages, mut room) = (Pages::default(), room(1));
    pages.touch(P, WRITE, key(10), &mut room);
    pages.touch(AbsAddr(P.0 + PAGE.0), WRITE, key(10), &mut room);
    assert!(pages.copied(&mut room).is_none());
    assert_eq!(room.losses.get(LossReason::LedgerFull), 2);
    assert_eq!(pages.count(), 1);
}

#[test]
fn at_its_end_an_image_has_released_everything() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    pages.touch(P, WRITE, key(10), &mut room);
    let usage = pages.usage(Some(ImageEnd::Exit));
    assert_eq!((usage.total.live.count, usage.total.alloc.count, usage.total.free.count), (0, 1, 1));
    assert!(usage.touched.is_empty());
}

#[test]
fn pages_that_are_moved_stay_whose_they_are() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    let page = |number| AbsAddr(P.0 + number * PAGE.0);
    pages.touch(page(0), WRITE, key(10), &mut room);
    pages.touch(page(2), READ, key(11), &mut room);
    pages.touch(page(100), WRITE, key(12), &mut room);
    pages.moved(page(0), page(100), Bytes(3 * PAGE.0), &mut room);
    assert_eq!((pages.count(), room.pages), (2, 2));
    let touched = |number, stack| Touched { begin: page(number), pages: 1, key: key(stack) };
    assert_eq!(pages.usage(None).touched, [touched(100, 10), touched(102, 11)]);
    assert_eq!(numbers(&pages, 12), (0, 1));
    // Whether it was written to is known where it lies now.
    pages.touch(page(102), COPY, key(13), &mut room);
    pages.touch(page(100), COPY, key(13), &mut room);
    assert_eq!((numbers(&pages, 10), numbers(&pages, 13)), ((1, 1), (1, 1)));
}

#[test]
fn a_copy_that_has_ended_tells_what_it_did_itself() {
    let (mut parent, mut room) = (Pages::default(), room(10));
    parent.touch(P, WRITE, key(10), &mut room);
    let mut child = parent.copied(&mut room).unwrap();
    child.touch(AbsAddr(P.0 + PAGE.0), WRITE, key(11), &mut room);
    let usage = child.usage(Some(ImageEnd::Exec));
    assert_eq!(usage.by_stack.keys().collect::<Vec<_>>(), [&key(11)]);
    assert_eq!(usage.total.alloc.count, 1);
}

#[test]
fn of_a_large_reserve_that_is_moved_what_was_touched_is_moved_with_it() {
    let (mut pages, mut room) = (Pages::default(), room(10));
    let page = |number| AbsAddr(P.0 + number * PAGE.0);
    for number in [3, 70_000] {
        pages.touch(page(number), WRITE, key(10), &mut room);
    }
    pages.moved(page(0), page(1 << 40), Bytes(PAGE.0 << 38), &mut room);
    let touched = |number: u64| Touched { begin: page((1 << 40) + number), pages: 1, key: key(10) };
    assert_eq!(pages.usage(None).touched, [touched(3), touched(70_000)]);
}
