//! Headers of an object that symbolization needs: its segments, and the sources of names in its sections.

use std::fs::File;
use std::io;

use memtrace_model::{BuildId, FileOffset, VirtOffset};
use object::LittleEndian;
use object::elf::SHT_NOBITS;

use super::debug_link::{AltLink, DebugLink};
use crate::elf::{self, Elf, ElfError, Segment, Source, notes};

/// Maximum compression ratio of zlib (zlib's technical notes). A section with a larger ratio is damaged or hostile. No
/// names are read from such a file, because a reader would allocate the size that the section states.
const MAX_COMPRESSION: u64 = 1032;

const LE: LittleEndian = LittleEndian;

/// Headers of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    segments: Vec<Segment>,
    /// Sources of names in the sections; `None` if the section headers are damaged.
    pub(super) sections: Option<Sections>,
}

/// Sources of names in an object's sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sections {
    pub(super) build_id: Option<BuildId>,
    /// True if the file itself has debug information.
    pub(super) has_debug_info: bool,
    /// Separate debug file that the object refers to.
    pub(super) debug_link: Option<DebugLink>,
    /// Supplementary file that the debug information refers to.
    pub(super) alt_link: Option<AltLink>,
    /// True if the debug information refers to another file by `.debug_sup` (DWARF 5, section 7.3.6), which memtrace does not
    /// look up.
    pub(super) refers_to_supplementary: bool,
    /// True if the file has a full symbol table, not only dynamic symbols.
    pub(super) has_symbols: bool,
}

impl Headers {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    ///
    /// Errors of read(2); [`io::ErrorKind::InvalidData`] if the file is not ELF or is damaged.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let elf = Elf::parse_headers(file).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Self { segments: elf.segments().to_vec(), sections: Sections::read(&elf).ok() })
    }

    /// Returns the address in the object of the byte at the file offset `offset`.
    pub(super) fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        elf::virt_offset(&self.segments, offset)
    }
}

impl Sections {
    fn read(elf: &Elf<impl Source>) -> Result<Self, ElfError> {
        let Some(table) = elf::Sections::read(elf) else { return Ok(Self::default()) };
        let mut sections = Self { build_id: notes::build_id_of_sections(&table), ..Self::default() };
        for section in table.headers() {
            if let Some(claimed) = table.uncompressed_size(section)?
                && claimed > section.sh_size.get(LE).saturating_mul(MAX_COMPRESSION)
            {
                return Err(ElfError::Malformed("a section cannot be as large as it claims"));
            }
            if section.sh_type.get(LE) != SHT_NOBITS {
                let is_named = |name| table.is_named(section, name);
                sections.has_debug_info |= is_named(".debug_info");
                sections.refers_to_supplementary |= is_named(".debug_sup");
                if is_named(".gnu_debuglink") {
                    sections.debug_link = DebugLink::read(&table, section);
                }
                if is_named(".gnu_debugaltlink") {
                    sections.alt_link = AltLink::read(&table, section);
                }
                // In stripped objects, Fedora leaves a compressed symbol table: .gnu_debugdata.
                sections.has_symbols |= is_named(".symtab") || is_named(".gnu_debugdata");
            }
        }
        Ok(sections)
    }
}
