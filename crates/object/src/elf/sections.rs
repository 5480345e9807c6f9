//! Section headers. They may be stripped, because no program needs them to run.

use object::elf::{CompressionHeader64, SHF_COMPRESSED, SHF_EXECINSTR, SHN_XINDEX, SectionHeader64};
use object::{LittleEndian, pod};

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::source::{LE, Source, read};

/// Maximum number of section headers. Executables and libraries have about 30. Only relocatable objects have a
/// section for each function.
const MAX_SECTIONS: u64 = 65536;

/// Section headers, with the file offset of their names.
pub struct Sections<'elf, S> {
    pub(super) elf: &'elf Elf<S>,
    headers: Vec<SectionHeader64<LittleEndian>>,
    names: u64,
}

impl<'elf, S: Source> Sections<'elf, S> {
    /// Returns the headers in the order of the file.
    pub fn headers(&self) -> &[SectionHeader64<LittleEndian>] {
        &self.headers
    }

    /// Reads the section headers; `None` if there are none or they are damaged. Tools that strip an object may remove
    /// the headers and leave their number.
    pub fn read(elf: &'elf Elf<S>) -> Option<Self> {
        type Header = SectionHeader64<LittleEndian>;
        let header = elf.header();
        let offset = header.e_shoff.get(LE);
        if offset == 0 || usize::from(header.e_shentsize.get(LE)) != size_of::<Header>() {
            return None;
        }
        // Numbers that do not fit into the file header are in the first section header (elf(5), e_shnum and
        // e_shstrndx).
        let first = || read::<Header>(elf.source(), offset).ok();
        let count = match header.e_shnum.get(LE) {
            0 => first()?.sh_size.get(LE),
            count => count.into(),
        };
        let names = match header.e_shstrndx.get(LE) {
            SHN_XINDEX => first()?.sh_link.get(LE),
            index => index.0.into(),
        };
        if count == 0 || count > MAX_SECTIONS {
            return None;
        }
        let bytes = elf.bytes_in_file(offset, count * size_of::<Header>() as u64).ok()?;
        let headers: &[Header] = pod::slice_from_all_bytes(&bytes).ok()?;
        let names = headers.get(usize::try_from(names).ok()?).map_or(0, |section| section.sh_offset.get(LE));
        Some(Self { elf, headers: headers.to_vec(), names })
    }

    /// Returns true if the section has the name `name`. Reads no more bytes than `name` has, and a zero: a hostile
    /// name may be as long as the file.
    pub fn is_named(&self, section: &SectionHeader64<LittleEndian>, name: &str) -> bool {
        let at = self.names.saturating_add(section.sh_name.get(LE).into());
        let bytes = self.elf.bytes(at, name.len() as u64 + 1);
        bytes.is_ok_and(|bytes| bytes.strip_suffix(&[0]) == Some(name.as_bytes()))
    }

    /// Returns the first section with the name `name`.
    pub fn named(&self, name: &str) -> Option<&SectionHeader64<LittleEndian>> {
        self.headers.iter().find(|section| self.is_named(section, name))
    }

    /// Returns the end of the section of code that contains `address`; `None` if there is none.
    pub(crate) fn code_end(&self, address: u64) -> Option<u64> {
        let code = self.headers.iter().filter(|section| section.sh_flags.get(LE).contains(SHF_EXECINSTR));
        let mut bounds = code.map(|section| {
            let start = section.sh_addr.get(LE);
            (start, start.saturating_add(section.sh_size.get(LE)))
        });
        bounds.find(|&(start, end)| (start..end).contains(&address)).map(|(_, end)| end)
    }

    /// Reads a section that is not compressed; `None` if it has more than `limit` bytes, or is not in the file.
    pub(crate) fn content(&self, section: &SectionHeader64<LittleEndian>, limit: u64) -> Option<Vec<u8>> {
        let size = section.sh_size.get(LE);
        (size <= limit).then(|| self.elf.bytes_in_file(section.sh_offset.get(LE), size).ok()).flatten()
    }

    /// Returns the uncompressed size in bytes that the header of a compressed section states; `None` if the section
    /// is not compressed.
    pub(crate) fn uncompressed_size(&self, section: &SectionHeader64<LittleEndian>) -> Result<Option<u64>, ElfError> {
        if !section.sh_flags.get(LE).contains(SHF_COMPRESSED) {
            return Ok(None);
        }
        if section.sh_size.get(LE) < size_of::<CompressionHeader64<LittleEndian>>() as u64 {
            return Err(BEYOND);
        }
        let header: CompressionHeader64<LittleEndian> = read(self.elf.source(), section.sh_offset.get(LE))?;
        Ok(Some(header.ch_size.get(LE)))
    }
}
