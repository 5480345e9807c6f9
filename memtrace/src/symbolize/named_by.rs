//! What an object's functions can be named by, told without naming any.

use std::path::PathBuf;

use super::debug_file;
use super::headers::Headers;
use crate::model::Object;

/// What an object's functions can be named by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// Debug information in the object itself: source lines and inlined functions too.
    DebugInfo,
    /// Debug information in this file, which has the object's build-id.
    DebugFile(PathBuf),
    /// Debug information in a file that the object names, where it is installed; the object has no build-id.
    DebugLink,
    /// A table of all functions: their names, without source lines and inlined functions.
    Symbols,
    /// The names alone of the functions that others may call.
    Exported,
    /// Nothing: the file cannot be read.
    Nothing,
}

/// Looks in the object itself and in `directories` of debug files.
pub(super) fn named_by(object: &Object, directories: &[PathBuf]) -> NamedBy {
    let headers = object.handle.as_deref().and_then(|handle| Headers::read(handle).ok());
    let Some(sections) = headers.and_then(|headers| headers.sections) else { return NamedBy::Nothing };
    if sections.has_debug_info {
        return NamedBy::DebugInfo;
    }
    let build_id = sections.build_id.as_ref().or(object.build_id.as_ref());
    if let Some(file) = build_id.and_then(|build_id| debug_file::by_build_id(directories, build_id)) {
        return NamedBy::DebugFile(file);
    }
    match build_id {
        None if sections.has_debug_link => NamedBy::DebugLink,
        _ if sections.has_symbols => NamedBy::Symbols,
        _ => NamedBy::Exported,
    }
}
