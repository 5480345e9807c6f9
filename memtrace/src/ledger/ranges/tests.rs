use super::super::Settings;
use super::*;
use crate::model::{PartitionBy, StackId};

const TID: Tid = Tid(7);
const BASE: u64 = 0x7f00_0000_0000;

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

/// Ranges, in pages from [`BASE`] on.
struct Story {
    ranges: Ranges,
    room: Room,
}

impl Story {
    fn new() -> Self {
        let settings = Settings {
            blocks: 100,
            stacks: 100,
            processes: 1,
            track_peak: false,
            older: None,
            parts: PartitionBy::Whole,
        };
        Self { ranges: Ranges::default(), room: Room::new(&settings) }
    }

    fn map(mut self, begin: u64, count: u64, stack: u64) -> Self {
        self.ranges.map(at(begin), Bytes(count * PAGE.0), key(stack), &mut self.room);
        self
    }

    fn park(mut self, begin: u64, count: u64) -> Self {
        self.ranges.park(TID, at(begin), Bytes(count * PAGE.0), &mut self.room);
        self
    }

    fn restore(mut self) -> Self {
        self.ranges.restore(TID, &mut self.room);
        self
    }

    fn moved(mut self, old: [u64; 2], new: [u64; 2], keeps: bool, stack: u64) -> Self {
        let of = |[begin, count]: [u64; 2]| [at(begin).0, count * PAGE.0];
        self.ranges.moved(TID, of(old), of(new), keeps, key(stack), &mut self.room);
        self
    }

    /// What is mapped: first page, pages and stack. The books say the same.
    fn mapped(&self) -> Vec<(u64, u64, u64)> {
        let usage = self.ranges.usage(None);
        let mut by_stack: BTreeMap<StackKey, u64> = BTreeMap::new();
        for range in &usage.touched {
            *by_stack.entry(range.key).or_default() += range.pages;
        }
        for (key, stack) in &usage.by_stack {
            let live = stack.usage.live;
            assert_eq!((live.count, live.bytes.0), (by_stack.get(key).copied().unwrap_or(0), live.count * PAGE.0));
            assert_eq!(stack.usage.alloc - stack.usage.free, live);
        }
        assert_eq!(self.room.ranges, self.ranges.count());
        usage.touched.iter().map(|range| ((range.begin.0 - BASE) / PAGE.0, range.pages, range.key.stack.0)).collect()
    }

    /// Pages that a stack has mapped in all.
    fn alloc(&self, stack: u64) -> u64 {
        self.ranges.usage(None).by_stack[&key(stack)].usage.alloc.count
    }
}

fn at(page: u64) -> AbsAddr {
    AbsAddr(BASE + page * PAGE.0)
}

#[test]
fn what_is_unmapped_in_the_middle_leaves_both_ends() {
    let story = Story::new().map(0, 10, 5).park(3, 4);
    assert_eq!(story.mapped(), [(0, 3, 5), (7, 3, 5)]);
    let story = story.park(0, 8);
    assert_eq!(story.mapped(), [(8, 2, 5)]);
    assert_eq!((story.alloc(5), story.ranges.usage(None).unmatched_frees), (10, 1));
}

#[test]
fn what_is_mapped_over_something_takes_its_place() {
    let story = Story::new().map(0, 10, 5).map(2, 3, 6);
    assert_eq!(story.mapped(), [(0, 2, 5), (2, 3, 6), (5, 5, 5)]);
}

#[test]
fn what_failed_changes_nothing() {
    let story = Story::new().map(0, 4, 5).map(4, 4, 6).park(2, 4);
    assert_eq!(story.mapped(), [(0, 2, 5), (6, 2, 6)]);
    let story = story.restore();
    assert_eq!(story.mapped(), [(0, 2, 5), (2, 2, 5), (4, 2, 6), (6, 2, 6)]);
    assert_eq!((story.alloc(5), story.alloc(6)), (4, 4));
}

#[test]
fn what_is_moved_stays_whose_it_was_and_what_it_grows_by_is_the_movers() {
    let story = Story::new().map(0, 4, 5).park(0, 4).moved([0, 4], [100, 6], false, 6);
    assert_eq!(story.mapped(), [(100, 4, 5), (104, 2, 6)]);
    assert_eq!((story.alloc(5), story.alloc(6)), (4, 2));
    // In its place, and smaller.
    let story = story.park(100, 6).moved([100, 6], [100, 3], false, 7);
    assert_eq!(story.mapped(), [(100, 3, 5)]);
}

#[test]
fn what_is_kept_where_it_was_is_there_twice() {
    let story = Story::new().map(0, 4, 5).park(0, 4).moved([0, 4], [100, 4], true, 6);
    assert_eq!(story.mapped(), [(0, 4, 5), (100, 4, 6)]);
}

#[test]
fn what_was_mapped_before_tracing_began_is_unknown_when_it_goes_and_its_growth_is_not() {
    let story = Story::new().park(0, 4).moved([0, 4], [0, 6], false, 6);
    assert_eq!(story.mapped(), [(4, 2, 6)]);
    assert_eq!(story.ranges.usage(None).unmatched_frees, 1);
}

#[test]
fn a_copy_has_the_same_and_goes_its_own_way() {
    let mut story = Story::new().map(0, 4, 5);
    let mut copy = Story { ranges: *story.ranges.copied(&mut story.room).unwrap(), ..Story::new() };
    copy.room.ranges = copy.ranges.count();
    story.room.ranges -= copy.ranges.count();
    let (story, copy) = (story.park(0, 2), copy.map(10, 1, 6));
    assert_eq!((story.mapped(), copy.mapped()), (vec![(2, 2, 5)], vec![(0, 4, 5), (10, 1, 6)]));
}

#[test]
fn at_its_end_an_image_has_nothing_mapped() {
    let usage = Story::new().map(0, 4, 5).ranges.usage(Some(ImageEnd::Exit));
    assert_eq!((usage.total.live.count, usage.total.alloc.count), (0, 4));
    assert!(usage.touched.is_empty());
}
