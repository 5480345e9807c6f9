//! ELF notes: the build ID, and the note of Go's linker.

use memtrace_model::BuildId;
use object::LittleEndian;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, NoteType, PT_NOTE, SHT_NOTE};
use object::read::elf::NoteIterator;

use super::error::ElfError;
use super::file::Elf;
use super::sections::Sections;
use super::source::{LE, Source};

/// Maximum number of bytes that are read of a note segment. Real ones have less than 200 bytes.
const MAX_NOTES: u64 = 65536;
/// Maximum length of a build ID in bytes. Linkers write 8 to 32 bytes.
const MAX_BUILD_ID: usize = 64;

/// Names of the section with Go's table of functions, in a fixed and in a position-independent executable.
const GO_FUNCTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Finds the build ID by the program headers.
pub fn build_id(elf: &Elf<impl Source>) -> Result<Option<BuildId>, ElfError> {
    Ok(note(elf, b"GNU", NT_GNU_BUILD_ID, has_valid_length)?.map(|content| BuildId(content.into())))
}

/// Finds the build ID by the section headers. This is for separate debug files: the program headers of such a file are
/// copied from the original object, and lead to no contents. Unreadable sections are skipped.
pub fn build_id_of_sections(sections: &Sections<'_, impl Source>) -> Option<BuildId> {
    let mut notes = sections.headers().iter().filter(|section| section.sh_type.get(LE) == SHT_NOTE);
    notes.find_map(|section| {
        let data = sections.elf.bytes(section.sh_offset.get(LE), section.sh_size.get(LE).min(MAX_NOTES)).ok()?;
        let align = section.sh_addralign.get(LE);
        find_note(&data, align, b"GNU", NT_GNU_BUILD_ID, has_valid_length).map(|content| BuildId(content.into()))
    })
}

/// Returns true if Go's linker made the object. The linker leaves a note (`ELF_NOTE_GOBUILDID_TAG`,
/// cmd/link/internal/ld/elf.go), even if the C linker runs last. Without a Go build ID (`-buildid=`, as in many
/// releases) there is no note, but the table of functions remains (cmd/link/internal/ld/pcln.go).
pub fn is_go(elf: &Elf<impl Source>) -> Result<bool, ElfError> {
    if note(elf, b"Go", NoteType(4), |_| true)?.is_some() {
        return Ok(true);
    }
    let sections = Sections::read(elf);
    Ok(sections.is_some_and(|sections| GO_FUNCTIONS.iter().any(|name| sections.named(name).is_some())))
}

/// Searches the note segments. Returns the content of the first note of this owner and type that `is_valid` accepts.
fn note(
    elf: &Elf<impl Source>,
    owner: &[u8],
    kind: NoteType,
    is_valid: fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, ElfError> {
    for segment in elf.segments().iter().filter(|segment| segment.kind == PT_NOTE) {
        let data = elf.bytes(segment.offset, segment.file_size.min(MAX_NOTES))?;
        if let Some(content) = find_note(&data, segment.align, owner, kind, is_valid) {
            return Ok(Some(content.to_vec()));
        }
    }
    Ok(None)
}

/// Returns true if the length of a build ID is plausible.
fn has_valid_length(build_id: &[u8]) -> bool {
    (1..=MAX_BUILD_ID).contains(&build_id.len())
}

/// Returns the content of the first note of this owner and type that `is_valid` accepts.
fn find_note<'data>(
    notes: &'data [u8],
    align: u64,
    owner: &[u8],
    kind: NoteType,
    is_valid: impl Fn(&[u8]) -> bool,
) -> Option<&'data [u8]> {
    let mut notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LE, align, notes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == owner && note.n_type(LE) == kind && is_valid(note.desc()) {
            return Some(note.desc());
        }
    }
    None
}
