use std::sync::Arc;

use gimli::write::CallFrameInstruction as Instruction;
use memtrace_common::unwind::{RULE_BITS, Rule};

use super::*;
use crate::eh_frame::contents::ObjectContents;
use crate::eh_frame::descriptions::Descriptions;
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, first};
use crate::elf::Machine;

const LIMITS: Limits = Limits { blobs: 8, pages: 1 << 16 };

/// Contents of the BPF maps, as user space writes them.
struct Maps {
    blobs: Vec<Vec<Option<u32>>>,
    pages: Vec<Option<u64>>,
    rules: Vec<Rule>,
}

impl Maps {
    fn new(limits: Limits) -> Self {
        Self {
            blobs: vec![vec![None; BLOB_ROWS]; limits.blobs as usize],
            pages: vec![None; limits.pages as usize],
            rules: Vec::new(),
        }
    }

    fn write(&mut self, layout: &Layout, plan: &Plan) {
        assert!(layout.rules().rules().starts_with(&self.rules), "existing rules keep their numbers");
        self.rules = layout.rules().rules().to_vec();
        for chunk in &plan.chunks {
            for (index, row) in chunk.rows.iter().enumerate() {
                let place = &mut self.blobs[chunk.blob as usize][chunk.offset as usize + index];
                assert_eq!(place.replace(*row), None, "nothing is written twice");
            }
        }
        for (index, page) in plan.pages.iter().enumerate() {
            assert_eq!(self.pages[plan.page_base as usize + index].replace(*page), None);
        }
    }

    /// Looks up the rule at an object's `address` as `memtrace_common::unwind` specifies.
    fn rule_at(&self, plan: &Plan, address: u64) -> Rule {
        let Some(distance) = address.checked_sub(plan.origin.0) else { return Rule::default() };
        let number = usize::try_from(distance >> PAGE_BITS).unwrap();
        if number >= plan.pages.len() {
            return Rule::default();
        }
        let entry = self.pages[plan.page_base as usize + number].expect("a page that was written");
        let (first, count) = ((entry & u64::from(u32::MAX)) as usize, (entry >> 32) as usize);
        let blob = &self.blobs[first / BLOB_ROWS];
        let first = first % BLOB_ROWS;
        assert!(first > 0 && first + count <= BLOB_ROWS, "a page and the row before it lie in one blob");
        let low = u32::try_from(distance % (1 << PAGE_BITS)).unwrap();
        let after = blob[first..first + count].partition_point(|row| row.expect("written") >> RULE_BITS <= low);
        let row = blob[first + after - 1].expect("a row that was written");
        self.rules[(row & ((1 << RULE_BITS) - 1)) as usize]
    }
}

/// Returns the table of `code` bytes of code. It has a row every `step` bytes, and adjacent rows have different
/// rules.
fn table(code: u32, step: u32) -> Table {
    let mut object = Object::new(Machine::X86_64, code);
    let changes =
        (0..code / step).map(|row| (row * step, Instruction::CfaOffset(i32::try_from(row % 50 * 8).unwrap())));
    object.function(0, code, changes.collect());
    Table::from_bytes(&object.file(FoundBy::Sections)).unwrap()
}

/// Returns the number of blobs up to the last one in use.
fn blobs(layout: &Layout) -> u32 {
    let all = layout.limits.blobs << BLOB_BITS;
    let last = layout.rows.blocks().last().filter(|last| last.first + last.count == all);
    last.map_or(all, |last| last.first).div_ceil(BLOB_ROWS as u32)
}

/// Returns the number of pages in use.
fn pages(layout: &Layout) -> usize {
    (layout.limits.pages - layout.pages.count()) as usize
}

fn assert_same(maps: &Maps, plan: &Plan, table: &Table) {
    for (address, _) in table.rows() {
        for address in [address.0 - 1, address.0, address.0 + 1] {
            assert_eq!(maps.rule_at(plan, address), table.rule_at(VirtOffset(address)), "{address:#x}");
        }
    }
}

#[test]
fn maps_and_table_agree_at_every_address() {
    let tables = [table(0x3000, 7), table(0x100, 1), table(0x9000, 0x5000), table(0x5000, 64)];
    let (mut layout, mut maps) = (Layout::new(LIMITS), Maps::new(LIMITS));
    let plans = tables.each_ref().map(|table| {
        let plan = layout.place(table).unwrap();
        maps.write(&layout, &plan);
        plan
    });
    for (plan, table) in plans.iter().zip(&tables) {
        assert_same(&maps, plan, table);
        for address in (0..=TEXT + 0xA000).step_by(0x333).chain([u64::MAX]) {
            assert_eq!(maps.rule_at(plan, address), table.rule_at(VirtOffset(address)), "{address:#x}");
        }
    }
    assert_eq!(blobs(&layout), 1);
    assert_eq!(pages(&layout), plans.iter().map(|plan| plan.pages.len()).sum::<usize>());
}

#[test]
fn a_table_continues_in_the_next_blob() {
    // 100 pages with a row for every byte fill one blob and a half.
    let large = table(100 << PAGE_BITS, 1);
    let (mut layout, mut maps) = (Layout::new(LIMITS), Maps::new(LIMITS));
    for _ in 0..3 {
        let plan = layout.place(&large).unwrap();
        maps.write(&layout, &plan);
        assert!(plan.chunks.len() >= 2);
        assert_same(&maps, &plan, &large);
    }
    assert_eq!(blobs(&layout), 5);
}

#[test]
fn pages_can_be_placed_before_their_table() {
    let mut object = Object::new(Machine::X86_64, 0x9000);
    object.function(
        0x80,
        0x5000,
        (0..0x500_u32).map(|row| (row * 16, Instruction::CfaOffset(16 + 8 * (row % 2).cast_signed()))).collect(),
    );
    object.function(0x7ff8, 0x20, first(Instruction::CfaOffset(32)));
    let file = object.file(FoundBy::Sections);
    let table = Table::from_bytes(&file).unwrap();
    let mut descriptions = Descriptions::find(Arc::new(ObjectContents::find(file.as_slice()).unwrap())).unwrap();

    let (mut layout, mut maps) = (Layout::new(LIMITS), Maps::new(LIMITS));
    let other = layout.place(&self::table(0x3000, 7)).unwrap();
    maps.write(&layout, &other);
    let page_base = layout.reserve(table.pages()).unwrap();
    let mut plan = Plan { chunks: Vec::new(), page_base, pages: Vec::new(), origin: table.origin() };
    plan.pages = vec![0; table.pages() as usize];
    // Walks need the pages in any order.
    for number in (0..table.pages()).rev() {
        let page = layout.place_page(page_base, &descriptions.page(number).unwrap()).unwrap();
        plan.pages[number as usize] = page.page;
        plan.chunks.extend(page.chunks);
    }
    maps.write(&layout, &plan);
    assert_same(&maps, &plan, &table);

    let whole = layout.place_at(&table, page_base).unwrap();
    assert_eq!((whole.page_base, whole.pages.len()), (page_base, plan.pages.len()));
    // The table replaces the pages.
    maps.pages.fill(None);
    maps.write(&layout, &whole);
    assert_same(&maps, &whole, &table);
    layout.release(page_base, table.pages());
    layout.release(other.page_base, other.pages.len() as u32);
    let empty = Layout::new(LIMITS);
    assert_eq!((layout.rows, layout.pages), (empty.rows, empty.pages), "pages and table are freed together");
}

#[test]
fn a_blob_can_be_filled_to_its_last_row() {
    // The row before the first page, 63 pages of 4096 rows and one page of 4095 rows fill a blob. The last page of
    // the table has one row, which ends the table.
    let mut object = Object::new(Machine::X86_64, (64 << PAGE_BITS) + 16);
    let end = (64 << PAGE_BITS) - 1;
    let changes = (0..end).map(|row| (row, Instruction::CfaOffset(if row % 2 == 0 { 16 } else { 24 })));
    object.function(0, (64 << PAGE_BITS) + 8, changes.collect());
    let table = Table::from_bytes(&object.file(FoundBy::Sections)).unwrap();
    let (mut layout, mut maps) = (Layout::new(LIMITS), Maps::new(LIMITS));
    let plan = layout.place(&table).unwrap();
    maps.write(&layout, &plan);
    assert_eq!(plan.chunks.iter().map(|chunk| chunk.rows.len()).collect::<Vec<_>>(), [BLOB_ROWS, 2]);
    assert_same(&maps, &plan, &table);
}

#[test]
fn known_rules_are_not_added_again() {
    let mut layout = Layout::new(LIMITS);
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 0x80, first(Instruction::CfaOffset(16)));
    let table = Table::from_bytes(&object.file(FoundBy::Sections)).unwrap();
    assert_eq!(layout.rules().rules().len(), 2, "two rules are always present");
    layout.place(&table).unwrap();
    let rules = layout.rules().rules().len();
    assert!(rules > 2);
    let again = layout.place(&table).unwrap();
    assert_eq!(layout.rules().rules().len(), rules);
    assert_eq!(again.page_base, 1);
}

#[test]
fn a_table_that_does_not_fit_changes_nothing() {
    let (small, large) = (table(0x3000, 16), table(100 << PAGE_BITS, 1));
    let mut layout = Layout::new(Limits { blobs: 1, pages: 120 });
    layout.place(&small).unwrap();
    let before = (layout.rows.clone(), layout.pages.clone());
    assert_eq!(layout.place(&large).unwrap_err(), Full::Rows);
    assert_eq!((&layout.rows, &layout.pages), (&before.0, &before.1));
    let mut layout = Layout::new(Limits { blobs: 8, pages: 99 });
    assert_eq!(layout.place(&large).unwrap_err(), Full::Pages);
    assert!(layout.place(&small).is_ok());
}

#[test]
fn an_object_without_rows_takes_no_space() {
    let empty = Table::from_bytes(&Object::new(Machine::X86_64, 0x100).file(FoundBy::Sections));
    let mut layout = Layout::new(LIMITS);
    let plan = layout.place(&empty.unwrap()).unwrap();
    assert_eq!((plan.pages.len(), plan.chunks.len(), blobs(&layout), pages(&layout)), (0, 0, 0, 0));
}

#[test]
fn space_that_was_freed_is_used_again() {
    let tables = [table(0x3000, 7), table(30 << PAGE_BITS, 1), table(0x5000, 64)];
    let mut layout = Layout::new(Limits { blobs: 1, pages: 60 });
    let empty = layout.clone();
    let [small, large, last] = &tables;
    let plans = tables.each_ref().map(|table| layout.place(table).unwrap());
    assert_eq!(layout.place(large).unwrap_err(), Full::Pages);
    let free = layout.free_share();
    assert!(free < 0.5, "{free}");
    layout.release(plans[1].page_base, large.pages());
    assert!(layout.free_share() > free);
    // Three tables fit into the place of one, between the others.
    let again = [small, small, last].map(|table| (table, layout.place(table).unwrap()));
    let mut maps = Maps::new(Limits { blobs: 1, pages: 60 });
    maps.write(&layout, &plans[0]);
    maps.write(&layout, &plans[2]);
    for (table, plan) in &again {
        maps.write(&layout, plan);
        assert_same(&maps, plan, table);
    }
    assert_same(&maps, &plans[0], small);
    assert_same(&maps, &plans[2], last);
    for (plan, table) in [(&plans[0], small), (&plans[2], last)] {
        layout.release(plan.page_base, table.pages());
    }
    again.iter().for_each(|(table, plan)| layout.release(plan.page_base, table.pages()));
    assert_eq!((layout.rows, layout.pages), (empty.rows, empty.pages), "nothing is lost");
}

#[test]
fn a_table_is_split_over_free_blocks() {
    let small = table(4 << PAGE_BITS, 1);
    let mut layout = Layout::new(Limits { blobs: 1, pages: 1000 });
    let mut plans = Vec::new();
    while let Ok(plan) = layout.place(&small) {
        plans.push(plan);
    }
    for plan in plans.iter().step_by(2) {
        layout.release(plan.page_base, small.pages());
    }
    let large = table(7 << PAGE_BITS, 1);
    let plan = layout.place(&large).unwrap();
    assert!(plan.chunks.len() >= 2, "{}", plan.chunks.len());
    let mut maps = Maps::new(Limits { blobs: 1, pages: 1000 });
    maps.write(&layout, &plan);
    assert_same(&maps, &plan, &large);
}
