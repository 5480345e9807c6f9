//! Input of the unwind table: the code and the call frame information of an ELF file.
//!
//! The section headers are read first, because they have the length of `.eh_frame`. If they are stripped or wrong,
//! the program headers suffice, as for an unwinder in the process: `PT_GNU_EH_FRAME` leads to a sorted index of
//! `.eh_frame` (LSB Core 5.0, 10.6.2). The index has the position of the last entry.
//!
//! `.debug_frame` has the same information about code that was compiled with debug information and without
//! `.eh_frame`.

use std::fs::File;
use std::io;
use std::mem::size_of;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian as Little, Pointer};
use memtrace_model::{FileOffset, VirtOffset};
use object::LittleEndian;
use object::elf::{PT_GNU_EH_FRAME, PT_LOAD, SHF_ALLOC, SHF_COMPRESSED, SHT_NOBITS};

use super::code::Code;
use super::entry::{DEBUG_FRAME_COMMON, Entry};
use super::error::Error;
use super::named_code::{self, NamedCode};
use crate::elf::{Elf, Machine, Sections, Segment, Source, notes};

const LE: LittleEndian = LittleEndian;

/// Maximum distance between two executable parts of an object, in pages of 4 KiB: the largest alignment of segments by linkers
/// (`max-page-size`, x86-64 and aarch64).
const ALIGNMENT_PAGES: u64 = (2 << 20) >> 12;

/// Maximum number of pages of one object, so that the offsets of its rows have 32 bits.
const MAX_PAGES: u32 = (1 << 20) - 2;

/// Code and call frame information of one object: the input of its unwind table.
#[derive(Clone, Debug)]
pub struct ObjectContents {
    pub(super) machine: Machine,
    /// Executable parts, ordered by address and without overlap.
    pub(super) code: Vec<Code>,
    /// Address of the first instruction; 0 if the object has none.
    pub(super) entry: VirtOffset,
    /// Functions with a rule that follows from their name.
    pub(super) named: Vec<NamedCode>,
    /// Bytes of `.eh_frame`. If its length is not known, they reach to the end of its segment.
    pub(super) eh_frame: Vec<u8>,
    /// Address of `.eh_frame`.
    pub(super) address: u64,
    /// Bytes of `.debug_frame`, which are well-formed entries; empty if there is none.
    pub(super) debug_frame: Vec<u8>,
    /// Address of `.text`, if the section headers have it. Some pointers in `.eh_frame` are relative to it.
    pub(super) text: Option<u64>,
}

impl ObjectContents {
    /// Reads the code and the call frame information of the object in `file`.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table.
    pub fn read(file: &File) -> Result<Self, Error> {
        if !file.metadata()?.is_file() {
            return Err(Error::Io(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        Self::find(file)
    }

    /// Returns the size of the call frame information in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.eh_frame.len() + self.debug_frame.len()
    }

    pub(super) fn find(source: impl Source) -> Result<Self, Error> {
        Self::find_in(&Elf::parse_headers(source)?)
    }

    pub(super) fn find_in(elf: &Elf<impl Source>) -> Result<Self, Error> {
        if !elf.is_linked() {
            return Err(Error::NotLoadable("not linked"));
        }
        if elf.segments().is_empty() {
            return Err(Error::NotLoadable("without program headers"));
        }
        let length = elf.file_size()?;
        let loaded = loaded_segments(elf.segments(), length)?;
        let code = code(&loaded, length)?;
        let entry = VirtOffset(elf.entry_point());
        let named = named_code::find(elf, &code);
        let mut contents = Self {
            machine: elf.machine(),
            code,
            entry,
            named,
            eh_frame: Vec::new(),
            address: 0,
            debug_frame: Vec::new(),
            text: None,
        };
        contents.read_by_sections(elf);
        if contents.eh_frame.is_empty() {
            let index = elf.segments().iter().find(|segment| segment.kind == PT_GNU_EH_FRAME);
            let read = index.ok_or(Error::NoFrames).and_then(|index| contents.read_by_index(elf, index, &loaded));
            if contents.debug_frame.is_empty() {
                read?;
            }
        }
        Ok(contents)
    }

    /// Reads `.eh_frame` and `.debug_frame`, each only if the section headers list it and its contents are in the file.
    ///
    /// The `.debug_frame` of Go is not read: it does not describe the frame pointer, which Go's functions save.
    fn read_by_sections(&mut self, elf: &Elf<impl Source>) {
        let Some(sections) = Sections::read(elf) else { return };
        self.text = sections.named(".text").map(|section| section.sh_addr.get(LE));
        if let Some(section) = sections.named(".eh_frame")
            && section.sh_type.get(LE) != SHT_NOBITS
            && section.sh_flags.get(LE).contains(SHF_ALLOC)
            && !section.sh_flags.get(LE).contains(SHF_COMPRESSED)
            && let Ok(bytes) = elf.bytes_in_file(section.sh_offset.get(LE), section.sh_size.get(LE))
        {
            self.eh_frame = bytes;
            self.address = section.sh_addr.get(LE);
        }
        if let Some(section) = sections.named(".debug_frame")
            && section.sh_type.get(LE) != SHT_NOBITS
            && !section.sh_flags.get(LE).contains(SHF_COMPRESSED)
            && !notes::is_go(elf).unwrap_or(false)
            && let Ok(bytes) = elf.bytes_in_file(section.sh_offset.get(LE), section.sh_size.get(LE))
            && Entry::are_valid(&bytes, DEBUG_FRAME_COMMON)
        {
            self.debug_frame = bytes;
        }
    }

    /// Reads `.eh_frame` by its index, as an unwinder in the process does.
    fn read_by_index(&mut self, elf: &Elf<impl Source>, header: &Segment, loaded: &[Segment]) -> Result<(), Error> {
        let index = elf
            .bytes_in_file(header.offset, header.file_size)
            .map_err(|_| Error::Malformed("the index of call frame information lies outside the file"))?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.virt);
        let damaged = |_| Error::Malformed("the index of call frame information");
        let index = EhFrameHdr::new(&index, Little).parse(&bases, 8).map_err(damaged)?;
        let Pointer::Direct(address) = index.eh_frame_ptr() else {
            return Err(Error::Malformed("a pointer to a pointer to call frame information"));
        };
        let location = loaded.iter().find_map(|segment| segment.locate(address));
        let (offset, size) = location.ok_or(Error::Malformed("call frame information that is not loaded"))?;
        let mut bytes =
            elf.bytes_in_file(offset, size).map_err(|_| Error::Malformed("call frame information outside the file"))?;
        let mut last = None;
        if let Some(table) = index.table() {
            let mut entries = table.iter(&bases);
            while let Ok(Some((_, entry))) = entries.next() {
                last = last.max(entry.pointer().checked_sub(address));
            }
        }
        if let Some(end) = last.and_then(|last| end_of_entry(&bytes, last)) {
            bytes.truncate(end);
        }
        self.eh_frame = bytes;
        self.address = address;
        Ok(())
    }
}

/// Returns the end of the entry that starts at `start`; `None` if the end does not lie within `bytes`.
fn end_of_entry(bytes: &[u8], start: u64) -> Option<usize> {
    let start = usize::try_from(start).ok()?;
    let length = u32::from_le_bytes(bytes.get(start..)?.first_chunk().copied()?);
    let end = start.checked_add(size_of::<u32>())?.checked_add(usize::try_from(length).ok()?)?;
    (end <= bytes.len()).then_some(end)
}

/// Returns the `PT_LOAD` segments, after a check that they lie within the file. `length` is the file size in bytes.
fn loaded_segments(segments: &[Segment], length: u64) -> Result<Vec<Segment>, Error> {
    let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let check = |segment: &Segment| {
        if segment.offset.checked_add(segment.file_size).is_none_or(|end| end > length) {
            return Err(Error::Malformed("a segment that lies outside the file"));
        }
        if segment.virt.checked_add(segment.file_size).is_none() {
            return Err(Error::Malformed("a segment at the end of all addresses"));
        }
        Ok(*segment)
    };
    loaded.map(check).collect()
}

/// Returns the executable segments, after a check that their addresses are plausible. A table has an entry for every
/// page between the first and the last address.
fn code(loaded: &[Segment], length: u64) -> Result<Vec<Code>, Error> {
    let executable = loaded.iter().filter(|segment| segment.executable && segment.file_size > 0);
    let code = executable.map(|segment| Code {
        offset: FileOffset(segment.offset),
        address: VirtOffset(segment.virt),
        size: segment.file_size,
    });
    let mut code: Vec<Code> = code.collect();
    code.sort_by_key(|code| code.address);
    let (Some(first), Some(last)) = (code.first(), code.last()) else {
        return Err(Error::NotLoadable("without code"));
    };
    if code.windows(2).any(|pair| pair[0].end() > pair[1].address) {
        return Err(Error::Malformed("code that overlaps"));
    }
    let pages = (last.end().0 - first.address.0) >> 12;
    if pages > (length >> 12) + 1 + ALIGNMENT_PAGES * code.len() as u64 {
        return Err(Error::TooMuch("code farther apart than the file is long"));
    }
    if pages > u64::from(MAX_PAGES) {
        return Err(Error::TooMuch("4 GiB of code"));
    }
    Ok(code)
}

#[cfg(test)]
mod tests;
