//! Header of Go's table of functions (`pcHeader`, runtime/symtab.go).

use object::LittleEndian;
use object::elf::PT_LOAD;

use crate::elf::{Elf, ElfError, Sections, Source, notes};

const LE: LittleEndian = LittleEndian;

/// Names of the section, in a fixed and in a position-independent executable.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Magic number of Go 1.18 and 1.19, and of Go 1.20 and later (internal/abi/symtab.go).
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Size of the header in bytes.
const SIZE: u64 = 72;
/// Size of a pointer in bytes.
const POINTER: u8 = 8;
/// Maximum number of functions. The largest programs have about 500,000.
const MAX_FUNCTIONS: u64 = 1 << 22;
/// Number of bytes of data read at once. The table begins at a multiple of 8 bytes.
const CHUNK: u64 = 1 << 20;
/// Maximum number of places with the start of a header that are examined.
const MAX_CANDIDATES: usize = 1 << 16;

/// Header of the table of functions, with the place of its parts in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableHeader {
    /// Address of the header in the object.
    pub(super) address: u64,
    /// File offset of the header.
    pub(super) offset: u64,
    /// True for the layout of Go 1.20 and later.
    pub(super) is_from_1_20: bool,
    /// Size of the shortest instruction in bytes.
    pub(super) quantum: u64,
    /// Number of functions.
    pub(super) count: u64,
    /// Address of the code of Go; 0 if the header has none. Go 1.26 and later have none, and position-independent executables
    /// have a relocation in its place.
    pub(super) text: u64,
    /// Distance of each part from the header in bytes: names, numbers of files, names of files, tables of values, functions.
    pub(super) parts: [u64; 5],
}

impl TableHeader {
    /// Finds the header by its section. If a Go program has no section headers, or its linker has moved the table into another
    /// section, searches the file for the magic number.
    pub(super) fn find(elf: &Elf<impl Source>) -> Result<Option<Self>, ElfError> {
        let section = Sections::read(elf).and_then(|sections| {
            let section = SECTIONS.iter().find_map(|name| sections.named(name))?;
            Some((section.sh_addr.get(LE), section.sh_offset.get(LE), section.sh_size.get(LE)))
        });
        if let Some((address, offset, size)) = section {
            return Ok(Self::read(elf, address, offset, size));
        }
        if notes::is_go(elf)? { Self::search(elf) } else { Ok(None) }
    }

    /// Searches the segments. A hostile object has many segments with the same bytes, and many starts of headers.
    fn search(elf: &Elf<impl Source>) -> Result<Option<Self>, ElfError> {
        let (mut left, mut candidates) = (elf.file_size()?.saturating_mul(2), 0);
        for segment in elf.segments().iter().filter(|segment| segment.kind == PT_LOAD) {
            let Some(rest) = left.checked_sub(segment.file_size) else { return Ok(None) };
            left = rest;
            for done in (0..segment.file_size).step_by(CHUNK as usize) {
                let Some(offset) = segment.offset.checked_add(done) else { break };
                let bytes = elf.bytes_in_file(offset, CHUNK.min(segment.file_size - done))?;
                let starts = (0..).zip(bytes.as_chunks::<8>().0).filter(|(_, word)| is_start(**word));
                let starts = starts.take_while(|_| {
                    candidates += 1;
                    candidates <= MAX_CANDIDATES
                });
                let header = starts.map(|(index, _)| 8 * index).find_map(|at: u64| {
                    let inside = done + at;
                    let address = segment.virt.wrapping_add(inside);
                    Self::read(elf, address, offset + at, segment.file_size - inside)
                });
                if header.is_some() {
                    return Ok(header);
                }
            }
        }
        Ok(None)
    }

    /// Reads the header at a file offset; `None` if the bytes are no valid header. `size`: maximum size of the table in bytes.
    fn read(elf: &Elf<impl Source>, address: u64, offset: u64, size: u64) -> Option<Self> {
        let bytes = elf.bytes_in_file(offset, SIZE).ok()?;
        let (start, words) = bytes.split_first_chunk::<8>()?;
        let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [count, _, text, names, units, files, values, functions] = words[..] else { return None };
        let parts = [names, units, files, values, functions];
        // The list of functions has an address and an offset for each, and the address of the end.
        let end = count.checked_mul(8)?.checked_add(4)?.checked_add(functions)?;
        let is_valid = is_start(*start)
            && (1..=MAX_FUNCTIONS).contains(&count)
            && names >= SIZE
            && parts.is_sorted()
            && end <= size
            && offset.checked_add(size).is_some();
        is_valid.then(|| Self {
            address,
            offset,
            is_from_1_20: start[0] == 0xf1,
            quantum: start[6].into(),
            count,
            text,
            parts,
        })
    }
}

/// Returns true for the first eight bytes of a header: the magic number, two zeros, and the sizes of the shortest instruction and
/// of a pointer.
fn is_start(start: [u8; 8]) -> bool {
    let [a, b, c, d, 0, 0, 1 | 4, POINTER] = start else { return false };
    MAGICS.contains(&u32::from_le_bytes([a, b, c, d]))
}
