use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use memtrace_common::unwind::{page, row};
use proptest::prelude::*;

use super::*;

struct Tables {
    mappings: Vec<Mapping>,
    pages: Vec<u64>,
    blobs: Vec<Box<[u32; BLOB_ROWS]>>,
}

impl Store for Tables {
    fn mapping(&self, index: u32) -> Option<&Mapping> {
        self.mappings.get(index as usize)
    }

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

/// Two objects: one of two pages at 0x10000, the other, of one page, at 0x40000; in between generated code. The second
/// object's rows are in the second blob. Another process' mapping is before and behind them.
fn tables() -> (Tables, Process) {
    let second = BLOB_ROWS as u32;
    let tables = Tables {
        mappings: vec![
            mapping(0, 1 << 20, 0, 0, mapping::TABLE),
            mapping(0x10000, 2, 0x10000, 10, mapping::TABLE),
            mapping(0x20000, 1, 0, 0, mapping::GENERATED),
            mapping(0x30000, 1, 0, 0, mapping::PENDING),
            mapping(0x38000, 1, 0, 0, mapping::UNUSABLE),
            mapping(0x40000, 1, 0x3f000, 20, mapping::TABLE),
            mapping(0, 1 << 20, 0, 0, mapping::TABLE),
        ],
        pages: {
            let mut pages = vec![0; 22];
            pages[10] = page(1, 3);
            pages[11] = page(4, 0);
            // The mapping begins with the object's second page.
            pages[21] = page(second + 1, 2);
            pages
        },
        blobs: vec![
            blob(&[(0, row(0, 0)), (1, row(0x100, 5)), (2, row(0x200, 6)), (3, row(0xfff, 7))]),
            blob(&[(0, row(0xff0, 8)), (1, row(0, 9)), (2, row(0x800, 10))]),
        ],
    };
    (tables, Process { base: 1, count: 5, generation: 1, reserved: 0 })
}

fn found(pc: u64) -> Found {
    let (tables, process) = tables();
    let from_the_first = find(&tables, &process, &mut { process.base }, pc);
    for last in 0..8 {
        assert_eq!(find(&tables, &process, &mut { last }, pc), from_the_first, "with {last} hit last");
    }
    from_the_first
}

#[test]
fn an_address_has_the_rule_of_the_last_row_at_or_before_it() {
    for (pc, rule) in [
        (0x10000, 0),
        (0x100ff, 0),
        (0x10100, 5),
        (0x101ff, 5),
        (0x10200, 6),
        (0x10ffe, 6),
        (0x10fff, 7),
        // The second page has no rows of its own: what held at the first one's end goes on.
        (0x11000, 7),
        (0x11fff, 7),
    ] {
        assert_eq!(found(pc), Found::Rule(rule), "{pc:#x}");
    }
}

#[test]
fn rows_of_another_blob_are_found_there() {
    let (mut tables, process) = tables();
    // The object's addresses are those in the process less the bias; its second page begins at 0x40000.
    tables.mappings[5].pages_and_kind = 2;
    for (pc, rule) in [(0x40000, 9), (0x407ff, 9), (0x40800, 10), (0x40fff, 10)] {
        assert_eq!(find(&tables, &process, &mut { 0 }, pc), Found::Rule(rule), "{pc:#x}");
    }
}

#[test]
fn what_has_no_table_says_which() {
    assert_eq!(found(0x20010), Found::Generated);
    assert_eq!(found(0x30010), Found::Nothing(End::TablePending));
    assert_eq!(found(0x38010), Found::Nothing(End::NoTable));
}

#[test]
fn addresses_between_and_around_mappings_are_in_none() {
    for pc in [0, 0xffff, 0x12000, 0x1ffff, 0x21000, 0x3ffff, 0x41000, u64::MAX] {
        assert_eq!(found(pc), Found::Nothing(End::NoMapping), "{pc:#x}");
    }
}

#[test]
fn a_page_that_the_object_does_not_have_has_no_row() {
    // The second object has one page, and the mapping begins behind it.
    assert_eq!(found(0x40000), Found::Nothing(End::NoRow));
}

#[test]
fn a_page_that_was_never_written_has_no_row() {
    let (mut tables, process) = tables();
    tables.pages[10] = 0;
    assert_eq!(find(&tables, &process, &mut { 0 }, 0x10100), Found::Nothing(End::NoRow));
    tables.pages.clear();
    assert_eq!(find(&tables, &process, &mut { 0 }, 0x10100), Found::Nothing(End::NoRow));
    let (mut tables, process) = self::tables();
    tables.blobs.clear();
    assert_eq!(find(&tables, &process, &mut { 0 }, 0x10100), Found::Nothing(End::NoRow));
}

#[test]
fn the_most_mappings_that_a_process_may_have_are_all_found() {
    let count = 1u32 << MAPPING_STEPS;
    let (mut tables, _) = tables();
    tables.mappings = (0..u64::from(count)).map(|index| mapping(index << 20, 1, 0, 0, mapping::GENERATED)).collect();
    let process = Process { base: 0, count, generation: 1, reserved: 0 };
    for index in 0..count {
        let mut last = count;
        assert_eq!(find(&tables, &process, &mut last, (u64::from(index) << 20) + 0xfff), Found::Generated);
        assert_eq!(last, index);
        assert_eq!(
            find(&tables, &process, &mut last, (u64::from(index) << 20) + 0x1000),
            Found::Nothing(End::NoMapping)
        );
    }
}

#[test]
fn the_most_rows_that_a_page_may_have_are_all_found() {
    let (mut tables, process) = tables();
    tables.pages[10] = page(1, 1 << PAGE_BITS);
    for address in 0..1 << PAGE_BITS {
        tables.blobs[0][1 + address as usize] = row(address, 100 + address as u32);
    }
    for address in 0..1 << PAGE_BITS {
        assert_eq!(find(&tables, &process, &mut { 1 }, 0x10000 + address), Found::Rule(100 + address as u32));
    }
}

proptest! {
    #[test]
    fn lookups_in_any_tables_end(
        words in proptest::collection::vec(any::<[u64; 3]>(), 1..20),
        pages in proptest::collection::vec(any::<u64>(), 0..20),
        rows in proptest::collection::vec(any::<u32>(), 0..200),
        (base, count, last) in (0u32..20, any::<u32>(), any::<u32>()),
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
        let process = Process { base, count, generation: 1, reserved: 0 };
        let begins = tables.mappings.iter().map(|mapping| mapping.begin);
        for pc in pcs.into_iter().chain(begins) {
            let _ = find(&tables, &process, &mut { last }, pc);
        }
    }
}
