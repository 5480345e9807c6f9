//! Finds the files with the names of an object's functions.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use memtrace_model::{BuildId, FileOffset, VirtOffset, printable};

use super::debug_file::{DebugFile, Search};
use super::functions::{NameFiles, NamesToRead};
use super::headers::{Headers, Sections};

/// Best source of function names of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// Debug information in the object itself, with source lines and inlined functions.
    DebugInfo,
    /// Debug information in this file.
    DebugFile(PathBuf),
    /// The symbol table: names without source lines and inlined functions.
    Symbols,
    /// Dynamic symbols: only exported functions have names.
    Exported,
    /// None: the file cannot be read.
    None,
}

/// An object with its headers.
#[derive(Debug)]
pub(super) struct OpenObject {
    file: File,
    headers: Headers,
}

impl OpenObject {
    /// Opens the file of an object.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`io::ErrorKind::NotFound`] if the object has no file, or if it has another build ID than the
    /// mapped file.
    pub(super) fn open(search: &Search<'_>) -> io::Result<Self> {
        let object = search.object;
        let opened = search.files.open(object.handle.as_deref().ok_or(io::ErrorKind::NotFound)?);
        let read = opened.and_then(|file| Headers::read(&file).map(|headers| Self { file, headers }));
        let open = read.inspect_err(|error| log::debug!("{}: {error}", printable(&object.path)))?;
        let build_id = open.sections().and_then(|sections| sections.build_id.as_ref());
        if let (Some(build_id), Some(mapped)) = (build_id, &object.build_id)
            && build_id != mapped
        {
            log::warn!("{}: the file was replaced since it was mapped", printable(&object.path));
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(open)
    }

    fn sections(&self) -> Option<&Sections> {
        self.headers.sections.as_ref()
    }

    /// Returns the address in the object of the byte at the file offset `offset`.
    pub(super) fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        self.headers.virt_offset(offset)
    }

    /// Returns the separate debug file. `added` returns the path of a further debug file by its build ID.
    fn debug_file(&self, search: &Search<'_>, added: impl Fn(&BuildId) -> Option<PathBuf>) -> Option<DebugFile> {
        let sections = self.sections();
        let build_id = sections.and_then(|sections| sections.build_id.as_ref()).or(search.object.build_id.as_ref());
        let by_build_id = build_id.and_then(|build_id| {
            search.by_build_id(build_id).or_else(|| {
                let path = added(build_id)?;
                Some(DebugFile { file: search.files.open(&path).ok()?, path })
            })
        });
        by_build_id.or_else(|| search.by_link(&self.file, sections?.debug_link.as_ref()?))
    }

    /// Returns the best source of function names.
    pub(super) fn name_source(&self, search: &Search<'_>) -> NameSource {
        let Some(sections) = self.sections() else { return NameSource::None };
        if sections.has_debug_info {
            return NameSource::DebugInfo;
        }
        match self.debug_file(search, |_| None) {
            Some(debug_file) => NameSource::DebugFile(debug_file.path),
            None if sections.has_symbols => NameSource::Symbols,
            None => NameSource::Exported,
        }
    }

    /// Returns the files with the names of functions. `added` returns the path of a further debug file by its build ID.
    /// Without `uses_debug_info`, only symbol tables are read.
    pub(super) fn into_name_files(
        self,
        search: &Search<'_>,
        added: impl Fn(&BuildId) -> Option<PathBuf>,
        uses_debug_info: bool,
    ) -> NameFiles {
        let has_debug_info = self.sections().is_some_and(|sections| sections.has_debug_info);
        let debug_file = if has_debug_info { None } else { self.debug_file(search, added) };
        let of_debug_file = debug_file.as_ref().and_then(|file| Headers::read(&file.file).ok()?.sections);
        let sections = if debug_file.is_some() { of_debug_file.as_ref() } else { self.sections() };
        let alt_link = sections.and_then(|sections| sections.alt_link.as_ref());
        // If the debug information refers to another file, it is not used: the library would open the other file by its path.
        let uses_debug_info = uses_debug_info && !sections.is_some_and(|sections| sections.refers_to_supplementary);
        let supplementary = alt_link.filter(|_| uses_debug_info).and_then(|link| search.supplementary(link));
        let reads = NamesToRead {
            object_debug_info: has_debug_info && uses_debug_info,
            // If the section headers are damaged, nothing is read.
            object_symbols: self.sections().is_some(),
            debug_file_debug_info: uses_debug_info,
        };
        NameFiles { object: self.file, debug_file: debug_file.map(|debug_file| debug_file.file), supplementary, reads }
    }
}
