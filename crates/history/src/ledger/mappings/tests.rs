use memtrace_model::{PartKeys, StackId};

use super::super::Settings;
use super::*;

const TID: Tid = Tid(7);
const BASE: u64 = 0x7f00_0000_0000;

fn key(stack: u64) -> StackKey {
    StackId(stack).into()
}

/// Mappings, with methods that count addresses in pages from [`BASE`] on.
struct Story {
    mappings: Mappings,
    budget: Budget,
}

impl Story {
    fn new() -> Self {
        let settings = Settings {
            blocks: 100,
            stacks: 100,
            processes: 1,
            track_peak: false,
            older: None,
            lifetimes: false,
            page_sample: 1,
            parts: PartKeys::NONE,
            accounts: None,
        };
        Self { mappings: Mappings::default(), budget: Budget::new(&settings) }
    }

    fn map(mut self, begin: u64, count: u64, stack: u64) -> Self {
        self.mappings.map(at(begin), Bytes(count * PAGE.0), key(stack), &mut self.budget);
        self
    }

    fn unmap_tentatively(mut self, begin: u64, count: u64) -> Self {
        self.mappings.unmap_tentatively(TID, at(begin), Bytes(count * PAGE.0), &mut self.budget);
        self
    }

    fn undo_unmap(mut self) -> Self {
        self.mappings.undo_unmap(TID, &mut self.budget);
        self
    }

    fn move_range(mut self, old: [u64; 2], new: [u64; 2], keeps: bool, stack: u64) -> Self {
        let of = |[begin, count]: [u64; 2]| [at(begin).0, count * PAGE.0];
        self.mappings.move_range(TID, of(old), of(new), keeps, key(stack), &mut self.budget);
        self
    }

    /// Returns the mapped ranges: first page, number of pages, stack. Checks the totals.
    fn mapped(&self) -> Vec<(u64, u64, u64)> {
        let usage = self.mappings.usage(None);
        let mut by_stack: BTreeMap<StackKey, u64> = BTreeMap::new();
        for range in &usage.touched {
            *by_stack.entry(range.key).or_default() += range.pages;
        }
        for (key, stack) in &usage.by_stack {
            let live = stack.live();
            assert_eq!((live.count, live.bytes.0), (by_stack.get(key).copied().unwrap_or(0), live.count * PAGE.0));
            assert_eq!(stack.alloc() - stack.free(), live);
        }
        assert_eq!(self.budget.mapped_ranges, self.mappings.count());
        usage.touched.iter().map(|range| ((range.begin.0 - BASE) / PAGE.0, range.pages, range.key.stack.0)).collect()
    }

    /// Returns the number of pages that a stack has mapped in total.
    fn alloc(&self, stack: u64) -> u64 {
        self.mappings.usage(None).by_stack[&key(stack)].alloc().count
    }
}

fn at(page: u64) -> AbsAddr {
    AbsAddr(BASE + page * PAGE.0)
}

#[test]
fn an_unmap_in_the_middle_leaves_both_ends() {
    let story = Story::new().map(0, 10, 5).unmap_tentatively(3, 4);
    assert_eq!(story.mapped(), [(0, 3, 5), (7, 3, 5)]);
    let story = story.unmap_tentatively(0, 8);
    assert_eq!(story.mapped(), [(8, 2, 5)]);
    assert_eq!((story.alloc(5), story.mappings.usage(None).unmatched_frees), (10, 1));
}

#[test]
fn a_mapping_replaces_earlier_ones_at_its_addresses() {
    let story = Story::new().map(0, 10, 5).map(2, 3, 6);
    assert_eq!(story.mapped(), [(0, 2, 5), (2, 3, 6), (5, 5, 5)]);
}

#[test]
fn a_failed_unmap_is_undone() {
    let story = Story::new().map(0, 4, 5).map(4, 4, 6).unmap_tentatively(2, 4);
    assert_eq!(story.mapped(), [(0, 2, 5), (6, 2, 6)]);
    let story = story.undo_unmap();
    assert_eq!(story.mapped(), [(0, 2, 5), (2, 2, 5), (4, 2, 6), (6, 2, 6)]);
    assert_eq!((story.alloc(5), story.alloc(6)), (4, 4));
}

#[test]
fn a_moved_mapping_keeps_its_stack_and_growth_has_another() {
    let story = Story::new().map(0, 4, 5).unmap_tentatively(0, 4).move_range([0, 4], [100, 6], false, 6);
    assert_eq!(story.mapped(), [(100, 4, 5), (104, 2, 6)]);
    assert_eq!((story.alloc(5), story.alloc(6)), (4, 2));
    // The mapping shrinks in place.
    let story = story.unmap_tentatively(100, 6).move_range([100, 6], [100, 3], false, 7);
    assert_eq!(story.mapped(), [(100, 3, 5)]);
}

#[test]
fn a_kept_range_is_mapped_twice() {
    let story = Story::new().map(0, 4, 5).unmap_tentatively(0, 4).move_range([0, 4], [100, 4], true, 6);
    assert_eq!(story.mapped(), [(0, 4, 5), (100, 4, 6)]);
}

#[test]
fn an_unmap_of_an_unknown_mapping_is_unmatched() {
    let story = Story::new().unmap_tentatively(0, 4).move_range([0, 4], [0, 6], false, 6);
    assert_eq!(story.mapped(), [(4, 2, 6)]);
    assert_eq!(story.mappings.usage(None).unmatched_frees, 1);
}

#[test]
fn a_forked_child_has_independent_mappings() {
    let mut story = Story::new().map(0, 4, 5);
    let mut child = Story { mappings: *story.mappings.fork(&mut story.budget).unwrap(), ..Story::new() };
    child.budget.mapped_ranges = child.mappings.count();
    story.budget.mapped_ranges -= child.mappings.count();
    let (story, child) = (story.unmap_tentatively(0, 2), child.map(10, 1, 6));
    assert_eq!((story.mapped(), child.mapped()), (vec![(2, 2, 5)], vec![(0, 4, 5), (10, 1, 6)]));
}

#[test]
fn an_ended_image_has_no_mappings() {
    let usage = Story::new().map(0, 4, 5).mappings.usage(Some(ImageEnd::Exit));
    assert_eq!((usage.total.live().count, usage.total.alloc().count), (0, 4));
    assert!(usage.touched.is_empty());
}

#[test]
fn a_stack_of_a_tentative_unmap_is_not_merged() {
    let mut story = Story::new().map(0, 4, 10).unmap_tentatively(0, 4);
    assert_eq!(story.mappings.idle().count(), 0);
    story = story.undo_unmap().unmap_tentatively(0, 4).unmap_tentatively(9, 1);
    let idle: Vec<_> = story.mappings.idle().map(|(key, usage)| (key, usage.alloc().bytes)).collect();
    assert_eq!(idle, [(key(10), Bytes(4 * PAGE.0))]);
    let before = story.mappings.usage(None);
    assert!(story.mappings.merge_stack(key(10)));
    let after = story.mappings.usage(None);
    assert_eq!(after.by_stack[&StackId::OTHER.into()], before.by_stack[&key(10)]);
    assert_eq!((after.total, after.by_stack.len()), (before.total, 1));
}

#[test]
fn move_onto_the_kept_range_leaves_no_overlap() {
    let story = Story::new().map(0, 4, 5).unmap_tentatively(0, 4).move_range([0, 4], [2, 4], true, 6);
    assert_eq!(story.mapped(), [(0, 2, 5), (2, 4, 6)]);
}

#[test]
fn growth_follows_the_moved_part_of_a_larger_unmap() {
    let story = Story::new().map(0, 8, 5).unmap_tentatively(0, 8).move_range([0, 2], [20, 6], false, 6);
    assert_eq!(story.mapped(), [(20, 2, 5), (22, 4, 6)]);
}
