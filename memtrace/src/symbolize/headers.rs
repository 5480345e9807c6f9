//! What an object's own headers say of it: where its bytes are loaded, and what it has to name them by.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{CompressionHeader as _, FileHeader, ProgramHeader as _, SectionHeader as _};
use object::read::{FileKind, ReadCache, ReadRef};

use crate::model::{BuildId, FileOffset, VirtOffset};

/// Why headers can't be read.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// The most bytes read for one table of headers, one name or one note. Real ones are far smaller; a file that claims more
/// is broken or means harm.
const MAX_READ: u64 = 16 << 20;

/// The best that zlib can do is 1032:1 (zlib's technical notes). A section that claims more is broken or means harm: the
/// claim is how much memory is taken to decompress it.
const MAX_COMPRESSION: u64 = 1032;

/// What an object's headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    segments: Vec<Segment>,
    /// What is in the file besides; `None` where that part of it is broken.
    pub(super) sections: Option<Sections>,
}

/// What an object's sections say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sections {
    /// The build-id.
    pub(super) build_id: Option<BuildId>,
    /// Whether the file itself holds debug information.
    pub(super) has_debug_info: bool,
    /// Whether it names a file that holds it.
    pub(super) has_debug_link: bool,
    /// Whether it has a table of all functions, not of those alone that others may call.
    pub(super) has_symbols: bool,
}

/// A part of the file that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
    executable: bool,
}

impl Headers {
    /// Reads the headers of the file at `path`.
    ///
    /// # Errors
    ///
    /// What opening and reading return; [`io::ErrorKind::InvalidData`] where it is no ELF file, or a broken one.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let cache = ReadCache::new(file);
        Self::parse(Bounded(&cache)).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn parse<'data>(data: impl ReadRef<'data>) -> Result<Self, Error> {
        match FileKind::parse(data)? {
            FileKind::Elf32 => Self::parse_elf::<FileHeader32<Endianness>, _>(data),
            FileKind::Elf64 => Self::parse_elf::<FileHeader64<Endianness>, _>(data),
            _ => Err("not an ELF file".into()),
        }
    }

    fn parse_elf<'data, Elf, R>(data: R) -> Result<Self, Error>
    where
        Elf: FileHeader<Endian = Endianness>,
        R: ReadRef<'data>,
    {
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, data)?;
        let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let segments = loaded.map(|segment| Segment {
            offset: segment.p_offset(endian).into(),
            size: segment.p_filesz(endian).into(),
            address: segment.p_vaddr(endian).into(),
            executable: segment.p_flags(endian).contains(elf::PF_X),
        });
        Ok(Self { segments: segments.collect(), sections: Sections::parse(header, endian, data).ok() })
    }

    /// The address at which the byte at `offset` is loaded, as the object's own symbols count; `None` where it is not.
    ///
    /// Where a byte is loaded twice, the place where it can run is meant.
    pub(super) fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        let holds =
            |segment: &&Segment| offset.0.checked_sub(segment.offset).is_some_and(|inside| inside < segment.size);
        let executable = self.segments.iter().filter(|segment| segment.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        segment.address.checked_add(offset.0 - segment.offset).map(VirtOffset)
    }
}

impl Sections {
    fn parse<'data, Elf, R>(header: &Elf, endian: Endianness, data: R) -> Result<Self, Error>
    where
        Elf: FileHeader<Endian = Endianness>,
        R: ReadRef<'data>,
    {
        let table = header.sections(endian, data)?;
        let mut sections = Self::default();
        for section in table.iter() {
            if let Some((compression, _, size)) = section.compression(endian, data)?
                && compression.ch_size(endian).into() > size.saturating_mul(MAX_COMPRESSION)
            {
                return Err("a section that cannot be as large as it says".into());
            }
            if section.sh_type(endian) != elf::SHT_NOBITS {
                match table.section_name(endian, section) {
                    Ok(b".debug_info") => sections.has_debug_info = true,
                    Ok(b".gnu_debuglink") => sections.has_debug_link = true,
                    // The second is the first, compressed, as Fedora leaves it in stripped objects.
                    Ok(b".symtab" | b".gnu_debugdata") => sections.has_symbols = true,
                    _ => {}
                }
            }
            if let Ok(Some(mut notes)) = section.notes(endian, data) {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                        sections.build_id = Some(BuildId(note.desc().into()));
                    }
                }
            }
        }
        Ok(sections)
    }
}

/// A file read in small pieces only.
#[derive(Clone, Copy)]
struct Bounded<'data>(&'data ReadCache<File>);

impl<'data> ReadRef<'data> for Bounded<'data> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        if size > MAX_READ { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, size: u64, address: u64, executable: bool) -> Segment {
        Segment { offset, size, address, executable }
    }

    #[test]
    fn an_offset_is_where_its_segment_is_loaded() {
        let headers = Headers {
            segments: vec![segment(0, 0x500, 0, false), segment(0x500, 0x1000, 0x1500, true)],
            ..Headers::default()
        };
        assert_eq!(headers.virt_offset(FileOffset(0x4ff)), Some(VirtOffset(0x4ff)));
        assert_eq!(headers.virt_offset(FileOffset(0x500)), Some(VirtOffset(0x1500)));
        assert_eq!(headers.virt_offset(FileOffset(0x14ff)), Some(VirtOffset(0x24ff)));
        assert_eq!(headers.virt_offset(FileOffset(0x1500)), None);
    }

    #[test]
    fn a_byte_loaded_twice_is_meant_where_it_can_run() {
        let headers = Headers {
            segments: vec![segment(0, 0x2000, 0, false), segment(0x1000, 0x1000, 0x9000, true)],
            ..Headers::default()
        };
        assert_eq!(headers.virt_offset(FileOffset(0x1800)), Some(VirtOffset(0x9800)));
    }

    #[test]
    fn a_segment_at_the_end_of_all_addresses_does_no_harm() {
        let headers = Headers { segments: vec![segment(0, u64::MAX, u64::MAX - 1, true)], ..Headers::default() };
        assert_eq!(headers.virt_offset(FileOffset(1)), Some(VirtOffset(u64::MAX)));
        assert_eq!(headers.virt_offset(FileOffset(2)), None);
    }
}
