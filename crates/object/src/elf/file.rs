//! Headers and dynamic section of an ELF file.

use std::io;

use object::LittleEndian;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_SYMTAB, Dyn64,
    DynamicTag, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_DYNAMIC,
    PT_INTERP, PT_LOAD,
};
use object::pod::Pod;

use super::error::{BEYOND, ElfError};
use super::machine::Machine;
use super::segment::{Segment, read_segments};
use super::source::{LE, Source, fill, read};

/// Maximum size of a dynamic section in bytes. Real ones have about 40 entries of 16 bytes.
const MAX_DYNAMIC: u64 = 65536;
/// Maximum length of a string in bytes: the maximum length of a path (`PATH_MAX`, include/uapi/linux/limits.h).
const MAX_STRING: u64 = 4096;

/// An open ELF file: its segments and its dynamic section.
pub struct Elf<S> {
    source: S,
    header: FileHeader64<LittleEndian>,
    machine: Machine,
    segments: Vec<Segment>,
    dynamic: Vec<(DynamicTag, u64)>,
}

impl<S: Source> Elf<S> {
    /// Reads the headers and the dynamic section of an object for the host's architecture.
    pub fn parse(source: S) -> Result<Self, ElfError> {
        let mut elf = Self::parse_headers(source)?;
        if elf.machine != Machine::HOST {
            return Err(ElfError::Foreign("another architecture"));
        }
        elf.dynamic = elf.read_dynamic()?;
        Ok(elf)
    }

    /// Reads the headers of an object for any supported architecture. Does not read the dynamic section, which may be
    /// damaged.
    pub fn parse_headers(source: S) -> Result<Self, ElfError> {
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
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Aarch64,
            _ => return Err(ElfError::Foreign("another architecture")),
        };
        Ok(Self { machine, segments: read_segments(&source, &header)?, dynamic: Vec::new(), header, source })
    }

    pub(super) fn source(&self) -> &S {
        &self.source
    }

    pub(super) fn header(&self) -> &FileHeader64<LittleEndian> {
        &self.header
    }

    /// Returns the architecture of the code.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns all program headers in the order of the file.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns true for a linked program or library, false for a relocatable object or a core file.
    pub fn is_linked(&self) -> bool {
        matches!(self.header.e_type.get(LE), ET_EXEC | ET_DYN)
    }

    /// Returns the address of the entry point; 0 if the object has none.
    pub(crate) fn entry_point(&self) -> u64 {
        self.header.e_entry.get(LE)
    }

    /// Returns the length of the file in bytes.
    pub fn file_size(&self) -> Result<u64, ElfError> {
        Ok(self.source.size()?)
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
        for index in 0..segment.file_size / entry {
            let offset = segment.offset.checked_add(index * entry).ok_or(BEYOND)?;
            let entry: Dyn64<LittleEndian> = read(&self.source, offset)?;
            match entry.d_tag.get(LE) {
                DT_NULL => break,
                tag => entries.push((tag, entry.d_val.get(LE))),
            }
        }
        Ok(entries)
    }

    /// Returns the value of the first dynamic entry with this tag.
    pub(crate) fn dynamic_value(&self, tag: DynamicTag) -> Option<u64> {
        self.dynamic.iter().find(|entry| entry.0 == tag).map(|entry| entry.1)
    }

    /// Returns true if the object has dynamic symbols; statically linked executables have none.
    pub(crate) fn has_dynamic_symbols(&self) -> bool {
        self.dynamic_value(DT_SYMTAB).is_some()
    }

    fn dynamic_strings(&self, tag: DynamicTag) -> Result<Vec<Vec<u8>>, ElfError> {
        self.dynamic.iter().filter(|entry| entry.0 == tag).map(|entry| self.string(entry.1)).collect()
    }

    /// Returns the soname: the name that other objects use for this one.
    pub fn soname(&self) -> Result<Option<String>, ElfError> {
        let names = self.dynamic_strings(DT_SONAME)?;
        Ok(names.first().map(|name| String::from_utf8_lossy(name).into_owned()))
    }

    /// Returns the names of the needed libraries (`DT_NEEDED`).
    pub fn needed(&self) -> Result<Vec<Vec<u8>>, ElfError> {
        self.dynamic_strings(DT_NEEDED)
    }

    /// Returns the values of `DT_RPATH` and `DT_RUNPATH`. Each is a list of library directories, separated by colons.
    pub fn search_paths(&self) -> Result<Vec<Vec<u8>>, ElfError> {
        let mut paths = self.dynamic_strings(DT_RPATH)?;
        paths.extend(self.dynamic_strings(DT_RUNPATH)?);
        Ok(paths)
    }

    /// Returns the path of the dynamic linker that the kernel starts for this executable, if it names one.
    pub fn interpreter(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let Some(segment) = self.segments.iter().find(|segment| segment.kind == PT_INTERP) else {
            return Ok(None);
        };
        let path = self.bytes(segment.offset, segment.file_size.min(MAX_STRING))?;
        Ok(Some(until_nul(&path)?))
    }

    /// Returns true for a statically linked executable: it is marked as an executable and has no interpreter. The
    /// dynamic linker has no interpreter either, but is not marked.
    pub fn is_static(&self) -> Result<bool, ElfError> {
        Ok(self.is_marked_executable() && self.interpreter()?.is_none())
    }

    /// Returns true for an executable, even if it is not marked as one. A library may have an interpreter too, but it has a
    /// soname. The TLS block of an executable is the first one below the thread pointer.
    pub fn is_executable(&self) -> Result<bool, ElfError> {
        Ok(self.is_marked_executable() || (self.interpreter()?.is_some() && self.soname()?.is_none()))
    }

    /// Returns true if the headers mark the object as an executable. Older linkers do not mark position-independent
    /// executables.
    fn is_marked_executable(&self) -> bool {
        let flags = self.dynamic_value(DT_FLAGS_1).unwrap_or(0);
        self.header.e_type.get(LE) == ET_EXEC || flags & DF_1_PIE.0 != 0
    }

    pub(super) fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD)
    }

    /// Returns the file offset of the byte at `virt`, and the number of bytes from there to the segment's end in the
    /// file.
    pub fn locate(&self, virt: u64) -> Result<(u64, u64), ElfError> {
        self.loaded().find_map(|segment| segment.locate(virt)).ok_or(BEYOND)
    }

    /// Reads element `index` of the array of `T` at the address `base`.
    pub(super) fn entry<T: Pod>(&self, base: u64, index: u64) -> Result<T, ElfError> {
        let virt = index.checked_mul(size_of::<T>() as u64).and_then(|at| base.checked_add(at)).ok_or(BEYOND)?;
        let (offset, left) = self.locate(virt)?;
        if left < size_of::<T>() as u64 { Err(BEYOND) } else { read(&self.source, offset) }
    }

    /// Reads the string at `offset` of the dynamic string table.
    pub(super) fn string(&self, offset: u64) -> Result<Vec<u8>, ElfError> {
        let (offset, left) = self.locate_string(offset)?;
        until_nul(&self.bytes(offset, left.min(MAX_STRING))?)
    }

    /// Returns true if the string at `offset` of the dynamic string table is `expected`. Reads no more bytes than
    /// `expected` has, and a zero.
    pub(super) fn is_string(&self, offset: u64, expected: &str) -> Result<bool, ElfError> {
        let (offset, left) = self.locate_string(offset)?;
        let bytes = self.bytes(offset, left.min(expected.len() as u64 + 1))?;
        Ok(bytes.strip_suffix(&[0]).is_some_and(|bytes| bytes == expected.as_bytes()))
    }

    /// Returns the file offset of the string at `offset` of the dynamic string table, and a bound on its length in
    /// bytes.
    fn locate_string(&self, offset: u64) -> Result<(u64, u64), ElfError> {
        let table = self.dynamic_value(DT_STRTAB).ok_or(ElfError::Malformed("names without a string table"))?;
        let size = self.dynamic_value(DT_STRSZ).ok_or(ElfError::Malformed("a string table without a size"))?;
        let rest = size.checked_sub(offset).ok_or(BEYOND)?;
        let (offset, left) = self.locate(table.checked_add(offset).ok_or(BEYOND)?)?;
        Ok((offset, rest.min(left)))
    }

    /// Reads `length` bytes at the file offset `offset`. The caller bounds the length.
    pub(super) fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, ElfError> {
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| BEYOND)?];
        fill(&self.source, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads `length` bytes at the file offset `offset`, after a check that they lie in the file.
    pub(crate) fn bytes_in_file(&self, offset: u64, length: u64) -> Result<Vec<u8>, ElfError> {
        if offset.checked_add(length).is_none_or(|end| end > self.source.size().unwrap_or(0)) {
            return Err(BEYOND);
        }
        self.bytes(offset, length)
    }
}

fn until_nul(bytes: &[u8]) -> Result<Vec<u8>, ElfError> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(ElfError::Malformed("a string does not end"))?;
    Ok(bytes[..end].to_vec())
}

#[cfg(test)]
mod tests;
