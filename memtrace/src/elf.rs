//! ELF files as the dynamic linker reads them: by program headers and the dynamic section. Only the table of all symbols is
//! found by section headers, which may be stripped and by which no program runs.
//!
//! A file is not trusted: every count and size in
//! it is checked against a bound before memory is taken for it, and every read is checked against the file's end. Files
//! are read, not mapped into memory: a file that somebody truncates would otherwise end memtrace with SIGBUS.

mod code;
mod imports;
mod listed;
mod ranges;
mod runtime;
mod symbols;

pub use runtime::{is_go, is_stripped};

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::{
    DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, Dyn64, DynamicTag, EM_AARCH64, EM_X86_64,
    FileHeader64, NT_GNU_BUILD_ID, NoteType, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader64,
    ProgramType,
};
use object::elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG};
use object::pod::{self, Pod};
use object::read::elf::NoteIterator;

use crate::model::BuildId;
use crate::probe_site::Machine;

pub(crate) use symbols::{Symbol, SymbolKind};

const LE: LittleEndian = LittleEndian;

/// The most bytes of program headers: what the kernel takes (`load_elf_phdrs`, fs/binfmt_elf.c).
const MAX_PROGRAM_HEADERS: usize = 65536;
/// The most bytes of a dynamic section; real ones have about 40 entries of 16 bytes.
const MAX_DYNAMIC: u64 = 65536;
/// The most bytes of one note segment; real ones have under 200.
const MAX_NOTES: u64 = 65536;
/// The longest string: a path (`PATH_MAX`, include/uapi/linux/limits.h).
const MAX_STRING: u64 = 4096;
/// The longest build-id that is believed; linkers write 8 to 32 bytes.
const MAX_BUILD_ID: usize = 64;

/// Why a file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file does not begin as ELF files do.
    #[error("not an ELF file")]
    NotElf,
    /// The file is for another kind of machine.
    #[error("made for another machine ({0})")]
    Foreign(&'static str),
    /// The file contradicts itself.
    #[error("damaged ELF file: {0}")]
    Malformed(&'static str),
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Bytes that can be read at an offset.
pub(crate) trait Source {
    /// Fills `into` from `offset` on; `UnexpectedEof` where there are not as many bytes.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Source for &File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

impl Source for &[u8] {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// One program header.
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: ProgramType,
    executable: bool,
    writable: bool,
    offset: u64,
    virt: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

impl Segment {
    /// Where in the file the byte at `virt` lies, and how many bytes of the segment follow from there on.
    fn locate(&self, virt: u64) -> Option<(u64, u64)> {
        let inside = virt.checked_sub(self.virt)?;
        let left = self.file_size.checked_sub(inside).filter(|&left| left > 0)?;
        Some((self.offset.checked_add(inside)?, left))
    }
}

/// The opened ELF file: its segments and its dynamic section.
pub(crate) struct Elf<S> {
    source: S,
    machine: Machine,
    segments: Vec<Segment>,
    dynamic: Vec<(DynamicTag, u64)>,
}

impl<S: Source> Elf<S> {
    /// Reads the headers.
    pub(crate) fn parse(source: S) -> Result<Self, ElfError> {
        let mut magic = [0; 4];
        match source.read_at(0, &mut magic) {
            Ok(()) if magic == ELFMAG => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(ElfError::NotElf),
        }
        let header: FileHeader64<LittleEndian> = read(&source, 0)?;
        if header.e_ident.class != ELFCLASS64 {
            return Err(ElfError::Foreign("32 bits"));
        }
        if header.e_ident.data != ELFDATA2LSB {
            return Err(ElfError::Foreign("big-endian"));
        }
        let machine = match header.e_machine.get(LE) {
            EM_X86_64 if cfg!(target_arch = "x86_64") => Machine::X86_64,
            EM_AARCH64 if cfg!(target_arch = "aarch64") => Machine::Aarch64,
            _ => return Err(ElfError::Foreign("another architecture")),
        };
        let mut elf = Self { machine, segments: segments(&source, &header)?, dynamic: Vec::new(), source };
        elf.dynamic = elf.read_dynamic()?;
        Ok(elf)
    }

    fn read_dynamic(&self) -> Result<Vec<(DynamicTag, u64)>, ElfError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
            return Ok(Vec::new());
        };
        if segment.file_size > MAX_DYNAMIC {
            return Err(ElfError::Malformed("the dynamic section is too large"));
        }
        let entry = size_of::<Dyn64<LittleEndian>>() as u64;
        let mut entries = Vec::new();
        for place in 0..segment.file_size / entry {
            let offset = segment.offset.checked_add(place * entry).ok_or(BEYOND)?;
            let entry: Dyn64<LittleEndian> = read(&self.source, offset)?;
            match entry.d_tag.get(LE) {
                DT_NULL => break,
                tag => entries.push((tag, entry.d_val.get(LE))),
            }
        }
        Ok(entries)
    }

    /// The value of the first dynamic entry with this tag.
    fn dynamic_value(&self, tag: DynamicTag) -> Option<u64> {
        self.dynamic.iter().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// The strings that the dynamic entries with this tag name.
    fn dynamic_strings(&self, tag: DynamicTag) -> Result<Vec<Vec<u8>>, ElfError> {
        self.dynamic.iter().filter(|entry| entry.0 == tag).map(|entry| self.string(entry.1)).collect()
    }

    /// The name by which other objects ask for this one.
    pub(crate) fn soname(&self) -> Result<Option<String>, ElfError> {
        let names = self.dynamic_strings(DT_SONAME)?;
        Ok(names.first().map(|name| String::from_utf8_lossy(name).into_owned()))
    }

    /// The names of the libraries that the object asks for.
    pub(crate) fn needed(&self) -> Result<Vec<Vec<u8>>, ElfError> {
        self.dynamic_strings(DT_NEEDED)
    }

    /// The lists of directories in which the object wants its libraries looked for, separated by colons.
    pub(crate) fn search_paths(&self) -> Result<Vec<Vec<u8>>, ElfError> {
        let mut paths = self.dynamic_strings(DT_RPATH)?;
        paths.extend(self.dynamic_strings(DT_RUNPATH)?);
        Ok(paths)
    }

    /// The program that the kernel starts in order to load this one.
    pub(crate) fn interpreter(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.kind == PT_INTERP) else {
            return Ok(None);
        };
        let path = self.bytes(segment.offset, segment.file_size.min(MAX_STRING))?;
        Ok(Some(until_nul(&path)?))
    }

    /// The build-id, where there is one.
    pub(crate) fn build_id(&self) -> Result<Option<BuildId>, ElfError> {
        let found = self.note(b"GNU", NT_GNU_BUILD_ID, |content| (1..=MAX_BUILD_ID).contains(&content.len()))?;
        Ok(found.map(|content| BuildId(content.into())))
    }

    /// Whether Go's own linker made it: it leaves a note of this name and type (`ELF_NOTE_GOBUILDID_TAG`,
    /// cmd/link/internal/ld/elf.go), also where the C linker comes last.
    pub(crate) fn is_go(&self) -> Result<bool, ElfError> {
        Ok(self.note(b"Go", NoteType(4), |_| true)?.is_some())
    }

    /// The content of the first note of this owner and type that is `wanted`.
    fn note(&self, owner: &[u8], kind: NoteType, wanted: impl Fn(&[u8]) -> bool) -> Result<Option<Vec<u8>>, ElfError> {
        for segment in self.segments.iter().filter(|segment| segment.kind == PT_NOTE) {
            let data = self.bytes(segment.offset, segment.file_size.min(MAX_NOTES))?;
            let Ok(mut notes) = NoteIterator::<FileHeader64<LittleEndian>>::new(LE, segment.align, &data) else {
                continue;
            };
            while let Ok(Some(note)) = notes.next() {
                if note.name() == owner && note.n_type(LE) == kind && wanted(note.desc()) {
                    return Ok(Some(note.desc().into()));
                }
            }
        }
        Ok(None)
    }

    fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD)
    }

    /// Where in the file the byte at `virt` lies, and how many bytes of its segment follow from there on.
    fn locate(&self, virt: u64) -> Result<(u64, u64), ElfError> {
        self.loaded().find_map(|segment| segment.locate(virt)).ok_or(BEYOND)
    }

    /// The `T` at `base + index * size_of::<T>()`, as addresses count.
    fn entry<T: Pod>(&self, base: u64, index: u64) -> Result<T, ElfError> {
        let virt = index.checked_mul(size_of::<T>() as u64).and_then(|at| base.checked_add(at)).ok_or(BEYOND)?;
        let (offset, left) = self.locate(virt)?;
        if left < size_of::<T>() as u64 { Err(BEYOND) } else { read(&self.source, offset) }
    }

    /// The string at `offset` in the dynamic string table.
    fn string(&self, offset: u64) -> Result<Vec<u8>, ElfError> {
        let (offset, left) = self.locate_string(offset)?;
        until_nul(&self.bytes(offset, left.min(MAX_STRING))?)
    }

    /// Whether the string at `offset` in the dynamic string table is `expected`; reads no more than it needs to.
    fn is_string(&self, offset: u64, expected: &str) -> Result<bool, ElfError> {
        let (offset, left) = self.locate_string(offset)?;
        let bytes = self.bytes(offset, left.min(expected.len() as u64 + 1))?;
        Ok(bytes.strip_suffix(&[0]).is_some_and(|bytes| bytes == expected.as_bytes()))
    }

    /// Where in the file the string at `offset` in the dynamic string table lies, and what it can be long at most.
    fn locate_string(&self, offset: u64) -> Result<(u64, u64), ElfError> {
        let table = self.dynamic_value(DT_STRTAB).ok_or(ElfError::Malformed("names without a table of strings"))?;
        let size = self.dynamic_value(DT_STRSZ).ok_or(ElfError::Malformed("a table of strings without a size"))?;
        let rest = size.checked_sub(offset).ok_or(BEYOND)?;
        let (offset, left) = self.locate(table.checked_add(offset).ok_or(BEYOND)?)?;
        Ok((offset, rest.min(left)))
    }

    /// `length` bytes from `offset` in the file on; the caller has bounded the length.
    fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, ElfError> {
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| BEYOND)?];
        fill(&self.source, offset, &mut bytes)?;
        Ok(bytes)
    }
}

const BEYOND: ElfError = ElfError::Malformed("a table lies outside of the file");

fn segments(source: &impl Source, header: &FileHeader64<LittleEndian>) -> Result<Vec<Segment>, ElfError> {
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

fn read<T: Pod>(source: &impl Source, offset: u64) -> Result<T, ElfError> {
    let mut bytes = [0; 64];
    let bytes = bytes.get_mut(..size_of::<T>()).ok_or(BEYOND)?;
    fill(source, offset, bytes)?;
    pod::from_bytes::<T>(bytes).map(|(value, _)| *value).map_err(|()| BEYOND)
}

fn fill(source: &impl Source, offset: u64, bytes: &mut [u8]) -> Result<(), ElfError> {
    // A read at an offset that no file can have is an invalid argument for pread, and a damaged file for us.
    if i64::try_from(offset).is_err() {
        return Err(BEYOND);
    }
    source.read_at(offset, bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ElfError::Malformed("the file ends before its headers say so"),
        _ => ElfError::Io(error),
    })
}

fn until_nul(bytes: &[u8]) -> Result<Vec<u8>, ElfError> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(ElfError::Malformed("a string without an end"))?;
    Ok(bytes[..end].to_vec())
}

#[cfg(test)]
mod tests;
