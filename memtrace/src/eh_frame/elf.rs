//! Where an ELF file has its code and its call frame information.
//!
//! The section headers are asked first, since they say how long `.eh_frame` is. Where they are stripped or lie, the
//! program headers are enough, as they are for the program itself: `PT_GNU_EH_FRAME` leads to a sorted index of
//! `.eh_frame` (LSB Core 5.0, 10.6.2), and the index to its last entry.

use std::mem::size_of;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian as Little, Pointer};
use object::LittleEndian;
use object::elf::{
    self, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64,
    SHF_ALLOC, SHF_COMPRESSED, SHT_NOBITS, SectionHeader64,
};
use object::read::ReadRef;

use super::error::Error;
use super::machine::Machine;
use super::table::Code;
use crate::model::{FileOffset, VirtOffset};

const LE: LittleEndian = LittleEndian;

/// The most bytes of program headers: what the kernel takes (`load_elf_phdrs`, fs/binfmt_elf.c).
const MAX_PROGRAM_HEADERS: u64 = 65536;
/// The most section headers that are looked through. Programs and libraries have about 30; a file with a section for
/// every function has not been linked yet.
const MAX_SECTIONS: u64 = 65536;
/// How far apart parts of an object may be loaded: the largest page that linkers align to (`max-page-size`, x86-64 and
/// aarch64), in pages of 4 KiB.
const ALIGNMENT_PAGES: u64 = (2 << 20) >> 12;

/// The most pages of one object, which keeps the offset of its rows within 32 bits.
const MAX_PAGES: u32 = (1 << 20) - 2;

/// What of a file tells how to unwind its code.
#[derive(Clone, Debug)]
pub(super) struct Contents<'data> {
    pub(super) machine: Machine,
    /// The parts that are code, ordered by address, none overlapping another.
    pub(super) code: Vec<Code>,
    /// Where it begins to run; 0 for what does not by itself.
    pub(super) entry: VirtOffset,
    /// `.eh_frame`, or what is left of the segment from its beginning on.
    pub(super) eh_frame: &'data [u8],
    /// Where it is loaded.
    pub(super) address: u64,
    /// Where `.text` is loaded; some pointers count from there.
    pub(super) text: Option<u64>,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    size: u64,
    executable: bool,
}

impl<'data> Contents<'data> {
    pub(super) fn find(data: impl ReadRef<'data>) -> Result<Self, Error> {
        let header = data.read_at::<FileHeader64<LittleEndian>>(0).map_err(|()| Error::NotLoadable("too short"))?;
        let machine = machine(header)?;
        let programs = program_headers(header, data)?;
        let segments = segments(programs, data)?;
        let code = code(&segments, data)?;
        let entry = VirtOffset(header.e_entry.get(LE));
        let mut contents = Self { machine, code, entry, eh_frame: &[], address: 0, text: None };
        if let Some(sections) = section_headers(header, data) {
            contents.take_sections(&sections, data);
        }
        if contents.eh_frame.is_empty() {
            let index = programs.iter().find(|program| program.p_type.get(LE) == PT_GNU_EH_FRAME);
            contents.take_index(index.ok_or(Error::NoFrames)?, &segments, data)?;
        }
        Ok(contents)
    }

    /// Believes the section headers, if they name an `.eh_frame` that is there.
    fn take_sections(&mut self, sections: &Sections<'data>, data: impl ReadRef<'data>) {
        let text = sections.named(b".text\0", data);
        self.text = text.map(|section| section.sh_addr.get(LE));
        if let Some(section) = sections.named(b".eh_frame\0", data)
            && section.sh_type.get(LE) != SHT_NOBITS
            && section.sh_flags.get(LE).contains(SHF_ALLOC)
            && !section.sh_flags.get(LE).contains(SHF_COMPRESSED)
            && let Ok(bytes) = data.read_bytes_at(section.sh_offset.get(LE), section.sh_size.get(LE))
        {
            self.eh_frame = bytes;
            self.address = section.sh_addr.get(LE);
        }
    }

    /// Finds `.eh_frame` by its index, as programs find it when they throw.
    fn take_index(
        &mut self,
        header: &ProgramHeader64<LittleEndian>,
        segments: &[Segment],
        data: impl ReadRef<'data>,
    ) -> Result<(), Error> {
        let index = data.read_bytes_at(header.p_offset.get(LE), header.p_filesz.get(LE));
        let index =
            index.map_err(|()| Error::Malformed("the index of call frame information lies outside the file"))?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr.get(LE));
        let damaged = |_| Error::Malformed("the index of call frame information");
        let index = EhFrameHdr::new(index, Little).parse(&bases, 8).map_err(damaged)?;
        let Pointer::Direct(address) = index.eh_frame_ptr() else {
            return Err(Error::Malformed("a pointer to a pointer to call frame information"));
        };
        let inside = segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            let size = segment.size.checked_sub(inside).filter(|&size| size > 0)?;
            Some((segment.offset.checked_add(inside)?, size))
        });
        let (offset, size) = inside.ok_or(Error::Malformed("call frame information that is not loaded"))?;
        let bytes = data.read_bytes_at(offset, size);
        let bytes = bytes.map_err(|()| Error::Malformed("call frame information outside the file"))?;
        let mut last = None;
        if let Some(table) = index.table() {
            let mut entries = table.iter(&bases);
            while let Ok(Some((_, entry))) = entries.next() {
                last = last.max(entry.pointer().checked_sub(address));
            }
        }
        self.eh_frame = last.and_then(|last| until_entry(bytes, last)).unwrap_or(bytes);
        self.address = address;
        Ok(())
    }
}

/// `bytes` to the end of the entry that begins at `last`.
fn until_entry(bytes: &[u8], last: u64) -> Option<&[u8]> {
    let begin = usize::try_from(last).ok()?;
    let length = u32::from_le_bytes(bytes.get(begin..)?.first_chunk().copied()?);
    let end = begin.checked_add(size_of::<u32>())?.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(..end)
}

fn machine(header: &FileHeader64<LittleEndian>) -> Result<Machine, Error> {
    if header.e_ident.magic != elf::ELFMAG {
        return Err(Error::NotLoadable("not an ELF file"));
    }
    if header.e_ident.class != elf::ELFCLASS64 {
        return Err(Error::Foreign("32 bits"));
    }
    if header.e_ident.data != elf::ELFDATA2LSB {
        return Err(Error::Foreign("big-endian"));
    }
    if !matches!(header.e_type.get(LE), ET_EXEC | ET_DYN) {
        return Err(Error::NotLoadable("not linked"));
    }
    match header.e_machine.get(LE) {
        EM_X86_64 => Ok(Machine::X86_64),
        EM_AARCH64 => Ok(Machine::Aarch64),
        _ => Err(Error::Foreign("another architecture")),
    }
}

fn program_headers<'data>(
    header: &FileHeader64<LittleEndian>,
    data: impl ReadRef<'data>,
) -> Result<&'data [ProgramHeader64<LittleEndian>], Error> {
    let entry = size_of::<ProgramHeader64<LittleEndian>>();
    let count = usize::from(header.e_phnum.get(LE));
    if count == 0 {
        return Err(Error::NotLoadable("without program headers"));
    }
    if usize::from(header.e_phentsize.get(LE)) != entry || (count * entry) as u64 > MAX_PROGRAM_HEADERS {
        return Err(Error::Malformed("program headers of another size"));
    }
    let headers = data.read_slice_at(header.e_phoff.get(LE), count);
    headers.map_err(|()| Error::Malformed("program headers outside the file"))
}

fn segments<'data>(
    programs: &[ProgramHeader64<LittleEndian>],
    data: impl ReadRef<'data>,
) -> Result<Vec<Segment>, Error> {
    let length = length(data)?;
    let loaded = programs.iter().filter(|program| program.p_type.get(LE) == PT_LOAD);
    let segments = loaded.map(|program| {
        let (offset, size) = (program.p_offset.get(LE), program.p_filesz.get(LE));
        let address = program.p_vaddr.get(LE);
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(Error::Malformed("a segment that lies outside the file"));
        }
        if address.checked_add(size).is_none() {
            return Err(Error::Malformed("a segment at the end of all addresses"));
        }
        Ok(Segment { offset, address, size, executable: program.p_flags.get(LE).contains(PF_X) })
    });
    segments.collect()
}

/// The segments that are code, and whether they can be what they say: a table has an entry for every page between them.
fn code<'data>(segments: &[Segment], data: impl ReadRef<'data>) -> Result<Vec<Code>, Error> {
    let code = segments.iter().filter(|segment| segment.executable && segment.size > 0);
    let code = code.map(|segment| Code {
        offset: FileOffset(segment.offset),
        address: VirtOffset(segment.address),
        size: segment.size,
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
    if pages > (length(data)? >> 12) + 1 + ALIGNMENT_PAGES * code.len() as u64 {
        return Err(Error::TooMuch("code farther apart than the file is long"));
    }
    if pages > u64::from(MAX_PAGES) {
        return Err(Error::TooMuch("4 GiB of code"));
    }
    Ok(code)
}

fn length<'data>(data: impl ReadRef<'data>) -> Result<u64, Error> {
    data.len().map_err(|()| Error::Malformed("of unknown length"))
}

/// The section headers, and where the strings begin that name them.
struct Sections<'data> {
    headers: &'data [SectionHeader64<LittleEndian>],
    names: u64,
}

fn section_headers<'data>(header: &FileHeader64<LittleEndian>, data: impl ReadRef<'data>) -> Option<Sections<'data>> {
    let offset = header.e_shoff.get(LE);
    if offset == 0 || usize::from(header.e_shentsize.get(LE)) != size_of::<SectionHeader64<LittleEndian>>() {
        return None;
    }
    // Counts that do not fit are in the first section header (elf(5), e_shnum and e_shstrndx).
    let first = data.read_at::<SectionHeader64<LittleEndian>>(offset).ok()?;
    let count = match header.e_shnum.get(LE) {
        0 => first.sh_size.get(LE),
        count => count.into(),
    };
    let names = match header.e_shstrndx.get(LE) {
        elf::SHN_XINDEX => first.sh_link.get(LE),
        index => index.0.into(),
    };
    let count = usize::try_from(count.min(MAX_SECTIONS)).ok()?;
    let headers: &[SectionHeader64<LittleEndian>] = data.read_slice_at(offset, count).ok()?;
    let names = headers.get(usize::try_from(names).ok()?)?.sh_offset.get(LE);
    Some(Sections { headers, names })
}

impl<'data> Sections<'data> {
    /// The first section with that name, which ends with a zero byte. Other names are not read to their ends: they may
    /// all be as long as the file.
    fn named(&self, name: &[u8], data: impl ReadRef<'data>) -> Option<&'data SectionHeader64<LittleEndian>> {
        self.headers.iter().find(|section| {
            let at = self.names.saturating_add(section.sh_name.get(LE).into());
            data.read_bytes_at(at, name.len() as u64) == Ok(name)
        })
    }
}

#[cfg(test)]
mod tests;
