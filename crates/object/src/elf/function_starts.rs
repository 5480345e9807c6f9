//! Addresses of an object's functions. They come from the search table of `.eh_frame_hdr`, or from the symbol table
//! if there is no valid search table.

use object::elf::PT_GNU_EH_FRAME;

use super::file::Elf;
use super::source::Source;
use super::symbol_table;

/// Maximum number of functions. The largest libraries have about 200,000.
const MAX_FUNCTIONS: u64 = 1 << 22;

// Encodings (Linux Standard Base, Core specification, 10.6): DW_EH_PE_udata4, and DW_EH_PE_sdata4 relative to the
// table.
const UNSIGNED_4: u8 = 0x03;
const SIGNED_4_FROM_TABLE: u8 = 0x3b;

/// Returns the addresses of all functions, sorted, or an empty list if the object has neither table.
pub fn find(elf: &Elf<impl Source>) -> Vec<u64> {
    eh_frame_starts(elf).or_else(|| symbol_table::function_starts(elf).ok().flatten()).unwrap_or_default()
}

/// Returns the addresses in the search table; `None` if the object has no valid one.
fn eh_frame_starts(elf: &Elf<impl Source>) -> Option<Vec<u64>> {
    let segment = elf.segments().iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
    let head = elf.bytes(segment.offset, 12).ok()?;
    // Version, then the encodings of the pointer to .eh_frame, of the number of entries and of the entries.
    let [1, _, UNSIGNED_4, SIGNED_4_FROM_TABLE] = head[..4] else { return None };
    let count = u64::from(u32::from_le_bytes(head[8..12].try_into().ok()?));
    if count > MAX_FUNCTIONS || 12 + count * 8 > segment.file_size {
        return None;
    }
    let entries = elf.bytes(segment.offset + 12, count * 8).ok()?;
    let start = |entry: &[u8; 8]| {
        let [a, b, c, d, ..] = *entry;
        segment.virt.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
    };
    let starts: Vec<u64> = entries.as_chunks::<8>().0.iter().map(start).collect();
    starts.is_sorted().then_some(starts)
}
