//! Addresses of an object's functions, from the search table of `.eh_frame_hdr` or, if an object has none, from its
//! symbol table; and the size of its variables.

use object::elf::PT_GNU_EH_FRAME;

use super::file::Elf;
use super::source::Source;

/// Bound on functions; the largest libraries have about 200,000.
const MAX_FUNCTIONS: u64 = 1 << 22;

/// Alignment of mapped segments.
const PAGE: u64 = 4096;

// Linux Standard Base, Core specification, 10.6: DW_EH_PE_udata4, and DW_EH_PE_sdata4 relative to the table.
const UNSIGNED_4: u8 = 0x03;
const SIGNED_4_FROM_TABLE: u8 = 0x3b;

impl<S: Source> Elf<S> {
    /// Returns the addresses of all functions, sorted; none if the object has neither table.
    pub(crate) fn function_starts(&self) -> Vec<u64> {
        self.eh_frame_starts().or_else(|| self.symbol_table_starts().ok().flatten()).unwrap_or_default()
    }

    /// Returns the number of bytes of variables from the file's byte at `offset` on, including `.bss`, which is not in
    /// the file. The kernel maps whole pages, so that a mapping may begin before its segment.
    pub(crate) fn variables_from(&self, offset: u64) -> Option<u64> {
        self.loaded().filter(|segment| segment.writable).find_map(|segment| {
            let end = segment.offset.checked_add(segment.memory_size)?;
            let end_in_file = segment.offset.checked_add(segment.file_size)?;
            let first = segment.offset - segment.offset % PAGE;
            (first <= offset && offset < end_in_file).then(|| end - offset)
        })
    }

    fn eh_frame_starts(&self) -> Option<Vec<u64>> {
        let segment = self.segments().iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        let head = self.bytes(segment.offset, 12).ok()?;
        // Version, then the encodings of the pointer to .eh_frame, of the number of entries and of the entries.
        let [1, _, UNSIGNED_4, SIGNED_4_FROM_TABLE] = head[..4] else { return None };
        let count = u64::from(u32::from_le_bytes(head[8..12].try_into().ok()?));
        if count > MAX_FUNCTIONS || 12 + count * 8 > segment.file_size {
            return None;
        }
        let entries = self.bytes(segment.offset + 12, count * 8).ok()?;
        let start = |entry: &[u8; 8]| {
            let [a, b, c, d, ..] = *entry;
            segment.virt.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
        };
        let starts: Vec<u64> = entries.as_chunks::<8>().0.iter().map(start).collect();
        starts.is_sorted().then_some(starts)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::scratch::{Scratch, output};

    #[test]
    fn variables_end_as_printed_by_readelf() {
        let scratch = Scratch::new();
        let path =
            scratch.compile("gcc", "big", "char big[300000]; int one = 1; int main(void) { return big[one]; }", &[]);
        let headers = output("readelf", &["-lW".as_ref(), path.as_ref()]);
        // LOAD OFFSET VIRT PHYS FILESIZE MEMSIZE RW ALIGN
        let line = headers.lines().find(|line| line.contains("LOAD") && line.contains("RW")).unwrap();
        let fields: Vec<_> = line.split_whitespace().collect();
        let [offset, memory] = [1, 5].map(|at| u64::from_str_radix(&fields[at][2..], 16).unwrap());
        let file = File::open(path).unwrap();
        let elf = Elf::parse(&file).unwrap();
        let page = offset - offset % 4096;
        assert_eq!(elf.variables_from(page), Some(memory + offset - page));
        assert_eq!(elf.variables_from(page + 4096), Some(memory + offset - page - 4096));
        assert!(memory > 300_000);
        assert_eq!(elf.variables_from(0), None, "code");
        assert_eq!(elf.variables_from(u64::MAX), None);
    }
}
