//! Position of an object's table in the BPF maps, and the conversion of the position for the BPF programs.

use memtrace_host::kernel::unwind_maps::{MAX_SEGMENTS, ObjectTable, Segment, mapping};
use memtrace_model::{Mapping, VirtOffset};
use memtrace_object::eh_frame::Code;

/// Position of an object's table, and the code that it covers.
#[derive(Clone)]
pub(super) struct Placement {
    pub(super) page_base: u32,
    pub(super) pages: u32,
    pub(super) origin: VirtOffset,
    pub(super) code: Vec<Code>,
}

impl Placement {
    pub(super) fn object_table(&self) -> ObjectTable {
        let mut segments = [Segment::default(); MAX_SEGMENTS];
        for (segment, code) in segments.iter_mut().zip(&self.code) {
            let offset = code.offset.0;
            *segment = Segment {
                offset,
                end: offset.saturating_add(code.size),
                shift: code.address.0.wrapping_sub(offset).wrapping_sub(self.origin.0),
            };
        }
        let pages_and_kind = self.pages | u32::from(mapping::TABLE) << 24;
        ObjectTable { page_base: self.page_base, pages_and_kind, segments }
    }

    /// Returns the value to subtract from an address in `mapping` to get the distance from the table's first page;
    /// `None` if the mapping contains none of the object's code.
    ///
    /// A mapping starts at a page boundary, but its code can start later. So the first segment that overlaps the
    /// mapping counts, not the segment at the first byte of the mapping.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let first = mapping.offset.0;
        let end = first.saturating_add(mapping.end.0.saturating_sub(mapping.start.0));
        let overlaps = |code: &&Code| code.offset.0 < end && first < code.offset.0.saturating_add(code.size);
        let code = self.code.iter().find(overlaps)?;
        let address = code.address.0.wrapping_sub(code.offset.0).wrapping_add(first);
        Some(mapping.start.0.wrapping_sub(address).wrapping_add(self.origin.0))
    }
}

/// Returns the map entry of an object without a table.
pub(super) fn without_table() -> ObjectTable {
    ObjectTable { pages_and_kind: u32::from(mapping::UNUSABLE) << 24, ..ObjectTable::default() }
}

/// Returns the map entry of a file with code that a process has generated.
pub(super) fn generated() -> ObjectTable {
    ObjectTable { pages_and_kind: u32::from(mapping::GENERATED) << 24, ..ObjectTable::default() }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{AbsAddr, FileOffset};

    use super::*;

    /// Two code segments: file offset, address, size. The first begins inside a page.
    const CODE: [(u64, u64, u64); 2] = [(0x1040, 0x40_2040, 0x1f00), (0x4000, 0x40_7000, 0x800)];

    fn placement() -> Placement {
        let code =
            CODE.map(|(offset, address, size)| Code { offset: FileOffset(offset), address: VirtOffset(address), size });
        Placement { page_base: 0, pages: 6, origin: VirtOffset(0x40_2000), code: code.to_vec() }
    }

    /// Returns the distance of `address` from the table's first page.
    fn distance(address: u64, start: u64, end: u64, offset: u64) -> Option<u64> {
        let mapping = Mapping { start: AbsAddr(start), end: AbsAddr(end), offset: FileOffset(offset), object: None };
        placement().bias(&mapping).map(|bias| address.wrapping_sub(bias))
    }

    #[test]
    fn address_counts_from_the_tables_first_page() {
        assert_eq!(distance(0x7f00_0000_1040, 0x7f00_0000_1000, 0x7f00_0000_3000, 0x1000), Some(0x40));
        assert_eq!(distance(0x7f00_0000_2f00, 0x7f00_0000_2000, 0x7f00_0000_3000, 0x2000), Some(0x1f00));
        assert_eq!(distance(0x7f00_0000_9010, 0x7f00_0000_9000, 0x7f00_0000_a000, 0x4000), Some(0x5010));
    }

    #[test]
    fn executable_may_be_mapped_below_its_own_addresses() {
        assert_eq!(distance(0x1_0040, 0x1_0000, 0x1_2000, 0x1000), Some(0x40));
    }

    #[test]
    fn mapping_without_code_has_no_table() {
        assert_eq!(distance(0x1000, 0x1000, 0x2000, 0x3000), None);
        assert_eq!(distance(0x1000, 0x1000, 0x2000, 0x5000), None);
        assert_eq!(distance(0x1000, 0x1000, 0x2000, 0), None);
    }
}
