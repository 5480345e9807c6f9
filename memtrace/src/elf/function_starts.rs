//! Where functions begin: by the table through which exceptions find their frames' descriptions, which statically linked
//! programs may do without, or by the table of all symbols.

use object::elf::PT_GNU_EH_FRAME;

use super::file::Elf;
use super::source::Source;

/// The most functions that are looked at; the largest libraries have some 200,000.
const MAX_FUNCTIONS: u64 = 1 << 22;

/// Segments are mapped from a multiple of this on.
const PAGE: u64 = 4096;

// Linux Standard Base, Core specification, 10.6: pointers of 4 bytes, unsigned, and signed from the table's own beginning.
const UNSIGNED_4: u8 = 0x03;
const SIGNED_4_FROM_TABLE: u8 = 0x3b;

impl<S: Source> Elf<S> {
    /// The addresses at which functions begin, in their order; none where the object does not tell.
    pub(crate) fn function_starts(&self) -> Vec<u64> {
        self.read_starts().or_else(|| self.listed_starts().ok().flatten()).unwrap_or_default()
    }

    /// How many bytes of variables follow from the file's byte at `offset` on, those included that the file has no bytes for
    /// (`.bss`). The kernel maps whole pages, so that a mapping may begin before its segment does.
    pub(crate) fn variables_from(&self, offset: u64) -> Option<u64> {
        self.loaded().filter(|segment| segment.writable).find_map(|segment| {
            let end = segment.offset.checked_add(segment.memory_size)?;
            let end_in_file = segment.offset.checked_add(segment.file_size)?;
            let first = segment.offset - segment.offset % PAGE;
            (first <= offset && offset < end_in_file).then(|| end - offset)
        })
    }

    fn read_starts(&self) -> Option<Vec<u64>> {
        let segment = self.segments().iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
        let head = self.bytes(segment.offset, 12).ok()?;
        // Version, then how the pointer to the descriptions, the number of entries and the entries are written.
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
    fn variables_end_where_readelf_says() {
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
        assert_eq!(elf.variables_from(0), None, "there is code");
        assert_eq!(elf.variables_from(u64::MAX), None);
    }
}
