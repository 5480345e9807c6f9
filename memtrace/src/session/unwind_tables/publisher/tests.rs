use super::*;
use crate::model::{AbsAddr, FileOffset};

/// An object with two parts of code: file offset, address, size. The first begins in the midst of a page.
const CODE: [(u64, u64, u64); 2] = [(0x1040, 0x40_2040, 0x1f00), (0x4000, 0x40_7000, 0x800)];

fn placed() -> Placed {
    let code =
        CODE.map(|(offset, address, size)| Code { offset: FileOffset(offset), address: VirtOffset(address), size });
    Placed { page_base: 0, pages: 6, origin: VirtOffset(0x40_2000), code: code.to_vec() }
}

/// Where `address` lies, counted from the table's first page.
fn looked_up(address: u64, start: u64, end: u64, offset: u64) -> Option<u64> {
    let mapping = Mapping { start: AbsAddr(start), end: AbsAddr(end), offset: FileOffset(offset), object: None };
    placed().bias(&mapping).map(|bias| address.wrapping_sub(bias))
}

#[test]
fn an_address_is_counted_from_the_tables_first_page() {
    assert_eq!(looked_up(0x7f00_0000_1040, 0x7f00_0000_1000, 0x7f00_0000_3000, 0x1000), Some(0x40));
    assert_eq!(looked_up(0x7f00_0000_2f00, 0x7f00_0000_2000, 0x7f00_0000_3000, 0x2000), Some(0x1f00));
    assert_eq!(looked_up(0x7f00_0000_9010, 0x7f00_0000_9000, 0x7f00_0000_a000, 0x4000), Some(0x5010));
}

#[test]
fn a_program_may_lie_below_its_own_addresses() {
    assert_eq!(looked_up(0x1_0040, 0x1_0000, 0x1_2000, 0x1000), Some(0x40));
}

#[test]
fn a_mapping_without_any_of_the_code_has_no_table() {
    assert_eq!(looked_up(0x1000, 0x1000, 0x2000, 0x3000), None);
    assert_eq!(looked_up(0x1000, 0x1000, 0x2000, 0x5000), None);
    assert_eq!(looked_up(0x1000, 0x1000, 0x2000, 0), None);
}

#[test]
fn code_without_a_file_is_generated_and_that_of_an_unread_file_unusable() {
    let object = Object { path: PathBuf::from("/lib/libx.so"), handle: None, build_id: None, root: None };
    let mapping = |object| Mapping { start: AbsAddr(0x1000), end: AbsAddr(0x2000), offset: FileOffset(0), object };
    let kind = |one| Unwinding::new(None).mapping(&one).pages_and_kind >> 24;
    assert_eq!(kind(mapping(None)), u32::from(mapping::GENERATED));
    assert_eq!(kind(mapping(Some(Arc::new(object)))), u32::from(mapping::UNUSABLE));
}
