//! Best source of function names of an object, by its headers and the debug files on the machine.

use std::path::PathBuf;

use memtrace_model::Object;

use super::debug_file;
use super::headers::Headers;
use crate::object_files::ObjectFiles;

/// Best source of function names of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// Debug information in the object itself, with source lines and inlined functions.
    DebugInfo,
    /// Debug information in this file, which has the object's build ID.
    DebugFile(PathBuf),
    /// Debug information in the file that `.gnu_debuglink` names, if it is installed. The object has no build ID.
    DebugLink,
    /// The symbol table: names without source lines and inlined functions.
    Symbols,
    /// Dynamic symbols: only exported functions have names.
    Exported,
    /// None: the file cannot be read.
    None,
}

/// Returns the best source of function names of `object`. `directories` are the directories of debug files.
pub(super) fn find(object: &Object, directories: &[PathBuf], files: &dyn ObjectFiles) -> NameSource {
    let headers = object.handle.as_deref().and_then(|handle| Headers::open(handle, files).ok());
    let Some(sections) = headers.and_then(|headers| headers.sections) else { return NameSource::None };
    if sections.has_debug_info {
        return NameSource::DebugInfo;
    }
    let build_id = sections.build_id.as_ref().or(object.build_id.as_ref());
    if let Some(file) = build_id.and_then(|build_id| debug_file::by_build_id(directories, build_id, files)) {
        return NameSource::DebugFile(file);
    }
    match build_id {
        None if sections.has_debug_link => NameSource::DebugLink,
        _ if sections.has_symbols => NameSource::Symbols,
        _ => NameSource::Exported,
    }
}
