use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use memtrace_common::unwind::{Segment, page, row};
use proptest::prelude::*;

use super::*;

struct Tables {
    mappings: Vec<Mapping>,
    pages: Vec<u64>,
    blobs: Vec<Box<[u32; BLOB_ROWS]>>,
}

impl Store for Tables {
    fn page(&self, index: u32) -> Option<u64> {
        self.pages.get(index as usize).copied()
    }

    fn blob(&self, index: u32) -> Option<&[u32; BLOB_ROWS]> {
        self.blobs.get(index as usize).map(|blob| &**blob)
    }
}

fn blob(rows: &[(usize, u32)]) -> Box<[u32; BLOB_ROWS]> {
    let mut blob: Box<[u32; BLOB_ROWS]> = vec![0; BLOB_ROWS].into_boxed_slice().try_into().unwrap();
    for &(index, row) in rows {
        blob[index] = row;
    }
    blob
}

fn mapping(begin: u64, pages: u64, bias: u64, page_base: u32, kind: u8) -> Mapping {
    let pages_and_kind = pages as u32 | u32::from(kind) << 24;
    Mapping { begin, end: begin + (pages << PAGE_BITS), bias, page_base, pages_and_kind }
}

/// Returns two objects: one of two pages at 0x10000, and one of one page at 0x40000 with its rows in the second blob.
/// JIT code and two objects without a table are between them.
fn tables() -> Tables {
    let second = BLOB_ROWS as u32;
    Tables {
        mappings: vec![
            mapping(0x10000, 2, 0x10000, 10, mapping::TABLE),
            mapping(0x20000, 1, 0, 0, mapping::GENERATED),
            mapping(0x30000, 1, 0, 0, mapping::PENDING),
            mapping(0x38000, 1, 0, 0, mapping::UNUSABLE),
            mapping(0x40000, 1, 0x3f000, 20, mapping::TABLE),
        ],
        pages: {
            let mut pages = vec![0; 22];
            pages[10] = page(1, 3);
            pages[11] = page(4, 0);
            // The mapping starts at the object's second page.
            pages[21] = page(second + 1, 2);
            pages
        },
        blobs: vec![
            blob(&[(0, row(0, 0)), (1, row(0x100, 5)), (2, row(0x200, 6)), (3, row(0xfff, 7))]),
            blob(&[(0, row(0xff0, 8)), (1, row(0, 9)), (2, row(0x800, 10))]),
        ],
    }
}

/// Looks up `pc`; `None` if it is in no mapping.
fn find_in(tables: &Tables, pc: u64) -> Option<RuleSearch> {
    let mapping = tables.mappings.iter().find(|mapping| holds(mapping, pc))?;
    Some(find(tables, mapping, pc))
}

fn lookup_rule(pc: u64) -> Option<RuleSearch> {
    find_in(&tables(), pc)
}

#[test]
fn address_gets_the_rule_of_the_last_row_at_or_before_it() {
    for (pc, rule) in [
        (0x10000, 0),
        (0x100ff, 0),
        (0x10100, 5),
        (0x101ff, 5),
        (0x10200, 6),
        (0x10ffe, 6),
        (0x10fff, 7),
        // The second page has no rows: the last row of the first page applies.
        (0x11000, 7),
        (0x11fff, 7),
    ] {
        assert_eq!(lookup_rule(pc), Some(RuleSearch::Rule(rule)), "{pc:#x}");
    }
}

#[test]
fn rows_in_a_second_blob_are_found() {
    let mut tables = tables();
    // An address in the object is the process's address minus the bias: the object's second page is at 0x40000.
    tables.mappings[4].pages_and_kind = 2;
    for (pc, rule) in [(0x40000, 9), (0x407ff, 9), (0x40800, 10), (0x40fff, 10)] {
        assert_eq!(find_in(&tables, pc), Some(RuleSearch::Rule(rule)), "{pc:#x}");
    }
}

#[test]
fn mapping_without_a_table_gives_its_reason() {
    assert_eq!(lookup_rule(0x20010), Some(RuleSearch::Generated));
    assert_eq!(lookup_rule(0x30010), Some(RuleSearch::NoRule(End::TablePending)));
    assert_eq!(lookup_rule(0x38010), Some(RuleSearch::NoRule(End::NoTable)));
}

#[test]
fn addresses_outside_mappings_are_not_found() {
    for pc in [0, 0xffff, 0x12000, 0x1ffff, 0x21000, 0x3ffff, 0x41000, u64::MAX] {
        assert_eq!(lookup_rule(pc), None, "{pc:#x}");
    }
}

#[test]
fn page_beyond_the_object_has_no_row() {
    // The second object has one page, and the mapping starts after it.
    assert_eq!(lookup_rule(0x40000), Some(RuleSearch::NoRule(End::NoRow)));
}

#[test]
fn unwritten_page_has_no_row() {
    let mut tables = tables();
    tables.pages[10] = 0;
    assert_eq!(find_in(&tables, 0x10100), Some(RuleSearch::NoRule(End::NoRow)));
    tables.pages.clear();
    assert_eq!(find_in(&tables, 0x10100), Some(RuleSearch::NoRule(End::NoRow)));
    let mut tables = self::tables();
    tables.blobs.clear();
    assert_eq!(find_in(&tables, 0x10100), Some(RuleSearch::NoRule(End::NoRow)));
}

#[test]
fn page_whose_rows_are_not_written_yet_is_pending() {
    let mut tables = tables();
    tables.pages[10] = PENDING_PAGE;
    assert_eq!(find_in(&tables, 0x10100), Some(RuleSearch::NoRule(End::TablePending)));
    assert_eq!(find_in(&tables, 0x11000), Some(RuleSearch::Rule(7)));
}

#[test]
fn maximum_number_of_rows_is_searched() {
    let mut tables = tables();
    tables.pages[10] = page(1, 1 << PAGE_BITS);
    for address in 0..1 << PAGE_BITS {
        tables.blobs[0][1 + address as usize] = row(address, 100 + address as u32);
    }
    for address in 0..1 << PAGE_BITS {
        assert_eq!(find_in(&tables, 0x10000 + address), Some(RuleSearch::Rule(100 + address as u32)));
    }
}

/// Returns an object with two segments of code, at the file offsets 0x1000 and 0x5800. Their virtual addresses are
/// higher than the file offsets by 0x10000 and 0x20000.
fn object(kind: u8) -> ObjectTable {
    let mut object = ObjectTable { page_base: 7, pages_and_kind: 40 | u32::from(kind) << 24, ..ObjectTable::default() };
    object.segments[0] = Segment { offset: 0x1000, end: 0x3000, shift: 0x1_0000 };
    object.segments[1] = Segment { offset: 0x5800, end: 0x6000, shift: 0x2_0000 };
    object
}

#[test]
fn vma_gives_the_mapping_of_the_segment_around_pc() {
    let object = object(mapping::TABLE);
    let vma = VmaRange { begin: 0x7000_0000, end: 0x7000_6000, offset: 0x1000 };
    for (pc, begin, end, address) in [
        (0x7000_0000, 0x7000_0000, 0x7000_2000, 0x1_1000),
        (0x7000_1fff, 0x7000_0000, 0x7000_2000, 0x1_2fff),
        (0x7000_4800, 0x7000_4800, 0x7000_5000, 0x2_5800),
        (0x7000_4fff, 0x7000_4800, 0x7000_5000, 0x2_5fff),
    ] {
        let made = super::mapping(&object, &vma, pc);
        assert_eq!((made.begin, made.end), (begin, end), "{pc:#x}");
        assert_eq!((made.page_base, made.pages_and_kind), (7, 40), "{pc:#x}");
        assert_eq!(pc.wrapping_sub(made.bias), address, "{pc:#x}");
    }
    // Only the middle of the segment is mapped.
    let part = VmaRange { begin: 0x1000, end: 0x2000, offset: 0x2000 };
    let made = super::mapping(&object, &part, 0x1234);
    assert_eq!((made.begin, made.end, 0x1234u64.wrapping_sub(made.bias)), (0x1000, 0x2000, 0x1_2234));
}

#[test]
fn vma_without_code_or_table_is_marked_unusable() {
    let vma = VmaRange { begin: 0x7000_0000, end: 0x7000_6000, offset: 0x1000 };
    let made = super::mapping(&object(mapping::TABLE), &vma, 0x7000_2000);
    assert!(holds(&made, 0x7000_2000) && !holds(&made, 0x7000_1fff) && !holds(&made, 0x7000_4800));
    assert_eq!(made.pages_and_kind >> 24, u32::from(mapping::UNUSABLE));
    for kind in [mapping::PENDING, mapping::UNUSABLE, mapping::GENERATED] {
        let made = super::mapping(&object(kind), &vma, 0x7000_2000);
        assert_eq!((made.begin, made.end), (vma.begin, vma.end));
        assert_eq!(made.pages_and_kind >> 24, u32::from(kind));
    }
}

proptest! {
    #[test]
    fn lookups_in_arbitrary_tables_terminate(
        words in proptest::collection::vec(any::<[u64; 3]>(), 1..20),
        pages in proptest::collection::vec(any::<u64>(), 0..20),
        rows in proptest::collection::vec(any::<u32>(), 0..200),
        pcs in proptest::collection::vec(any::<u64>(), 10),
    ) {
        let rows: Vec<_> = rows.into_iter().enumerate().collect();
        let mappings = words.iter().map(|&[begin, length, other]| Mapping {
            begin,
            end: begin.wrapping_add(length),
            bias: other,
            page_base: other as u32 % 20,
            pages_and_kind: 0xffff,
        });
        let tables = Tables { mappings: mappings.collect(), pages, blobs: vec![blob(&rows)] };
        let begins = tables.mappings.iter().map(|mapping| mapping.begin);
        for pc in pcs.into_iter().chain(begins) {
            let _ = find_in(&tables, pc);
        }
    }
}
