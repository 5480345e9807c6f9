//! Segments of an object: its program headers.

use memtrace_model::{FileOffset, VirtOffset};
use object::LittleEndian;
use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD, ProgramHeader64, ProgramType};
use object::pod;

use super::error::{BEYOND, ElfError};
use super::source::{LE, Source, fill};

/// Maximum size of the program headers in bytes: the kernel's limit (`load_elf_phdrs`, fs/binfmt_elf.c).
const MAX_PROGRAM_HEADERS: usize = 65536;

/// Alignment of mapped segments in bytes.
const PAGE: u64 = 4096;

/// One program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub kind: ProgramType,
    pub executable: bool,
    pub writable: bool,
    pub offset: u64,
    pub virt: u64,
    pub file_size: u64,
    pub memory_size: u64,
    pub align: u64,
}

impl Segment {
    /// Returns the file offset of the byte at `virt`, and the number of bytes from there to the segment's end in the
    /// file.
    pub fn locate(&self, virt: u64) -> Option<(u64, u64)> {
        let inside = virt.checked_sub(self.virt)?;
        let left = self.file_size.checked_sub(inside).filter(|&left| left > 0)?;
        Some((self.offset.checked_add(inside)?, left))
    }

    /// Returns true if the byte at `offset` of the file is loaded with this segment.
    fn contains(&self, offset: u64) -> bool {
        self.kind == PT_LOAD && offset.checked_sub(self.offset).is_some_and(|inside| inside < self.file_size)
    }
}

/// Returns the address in the object of the byte at the file offset `offset`; `None` if no segment loads the byte.
///
/// If several segments load the byte, an executable one is chosen.
pub(crate) fn virt_offset(segments: &[Segment], offset: FileOffset) -> Option<VirtOffset> {
    let executable = segments.iter().filter(|segment| segment.executable).find(|segment| segment.contains(offset.0));
    let segment = executable.or_else(|| segments.iter().find(|segment| segment.contains(offset.0)))?;
    segment.virt.checked_add(offset.0 - segment.offset).map(VirtOffset)
}

/// Returns the number of bytes in memory from the file offset `offset` to the end of the writable segment that it
/// belongs to, including `.bss`. Returns `None` if no writable segment contains the offset. The offset may be before
/// the segment in its first page, because the kernel maps whole pages.
pub fn variables_from(segments: &[Segment], offset: u64) -> Option<u64> {
    segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.writable).find_map(|segment| {
        let end = segment.offset.checked_add(segment.memory_size)?;
        let end_in_file = segment.offset.checked_add(segment.file_size)?;
        let first = segment.offset - segment.offset % PAGE;
        (first <= offset && offset < end_in_file).then(|| end - offset)
    })
}

/// Reads the program headers.
pub(super) fn read_segments(
    source: &impl Source,
    header: &FileHeader64<LittleEndian>,
) -> Result<Vec<Segment>, ElfError> {
    type Header = ProgramHeader64<LittleEndian>;
    let count = usize::from(header.e_phnum.get(LE));
    if count > 0 && usize::from(header.e_phentsize.get(LE)) != size_of::<Header>() {
        return Err(ElfError::Malformed("program headers of an unknown size"));
    }
    if count * size_of::<Header>() > MAX_PROGRAM_HEADERS {
        return Err(ElfError::Malformed("too many program headers"));
    }
    let mut bytes = vec![0; count * size_of::<Header>()];
    fill(source, header.e_phoff.get(LE), &mut bytes)?;
    let headers: &[Header] = pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?;
    Ok(headers
        .iter()
        .map(|header| Segment {
            kind: header.p_type.get(LE),
            executable: header.p_flags.get(LE).contains(PF_X),
            writable: header.p_flags.get(LE).contains(PF_W),
            offset: header.p_offset.get(LE),
            virt: header.p_vaddr.get(LE),
            file_size: header.p_filesz.get(LE),
            memory_size: header.p_memsz.get(LE),
            align: header.p_align.get(LE),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, file_size: u64, virt: u64, executable: bool) -> Segment {
        let kind = PT_LOAD;
        Segment { kind, executable, writable: false, offset, virt, file_size, memory_size: file_size, align: 4096 }
    }

    #[test]
    fn an_offset_maps_to_its_segments_address() {
        let segments = [segment(0, 0x500, 0, false), segment(0x500, 0x1000, 0x1500, true)];
        let virt = |offset| virt_offset(&segments, FileOffset(offset));
        assert_eq!(virt(0x4ff), Some(VirtOffset(0x4ff)));
        assert_eq!(virt(0x500), Some(VirtOffset(0x1500)));
        assert_eq!(virt(0x14ff), Some(VirtOffset(0x24ff)));
        assert_eq!(virt(0x1500), None);
    }

    #[test]
    fn a_byte_loaded_twice_maps_to_the_executable_segment() {
        let segments = [segment(0, 0x2000, 0, false), segment(0x1000, 0x1000, 0x9000, true)];
        assert_eq!(virt_offset(&segments, FileOffset(0x1800)), Some(VirtOffset(0x9800)));
    }

    #[test]
    fn a_segment_at_the_last_address_does_not_overflow() {
        let segments = [segment(0, u64::MAX, u64::MAX - 1, true)];
        assert_eq!(virt_offset(&segments, FileOffset(1)), Some(VirtOffset(u64::MAX)));
        assert_eq!(virt_offset(&segments, FileOffset(2)), None);
    }
}
